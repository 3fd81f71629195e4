"""Shape inference by onnx for models whose raw data stay in their files."""

from __future__ import annotations

from onnx import ModelProto, TensorProto
from onnx.shape_inference import infer_shapes

from ..open_files import File
from .graphs import protos
from .wire import Place

__all__ = ["inferred", "with_small_data"]

_SMALL = 4096  # bytes: shapes, axes and the like, which inference reads


def inferred(model: ModelProto, file: File, *, strict: bool) -> ModelProto:
    """A copy of a skeleton with the types and shapes that onnx infers.

    If it is `strict`, onnx.shape_inference.InferenceError (a RuntimeError) tells what does not fit;
    operators that onnx does not know fit everything.
    """
    made: ModelProto = infer_shapes(
        with_small_data(model, file), check_type=strict, strict_mode=strict, data_prop=True
    )
    return made


def with_small_data(model: ModelProto, file: File) -> ModelProto:
    """A copy of a skeleton with the raw data of small tensors, and without those of others."""
    made = ModelProto()
    made.CopyFrom(model)
    for proto in protos(made):
        if proto.HasField("raw_data"):
            begin, nbytes = Place.of(proto.raw_data)
            proto.ClearField("raw_data")
            if begin >= 0 and nbytes <= _SMALL and proto.data_location != TensorProto.EXTERNAL:
                proto.raw_data = bytes(file.bytes(begin, nbytes))
    return made
