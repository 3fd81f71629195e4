"""ONNX operators (onnx.ai/onnx/operators) in every version: shapes, casts, quantization."""

from .casts import cast, cast_like, dequantize_linear, quantize_linear
from .moves import center_crop_pad, concat, depth_to_space, gather, pad, space_to_depth, tile
from .reshapes import request, reshape, shape, shape_of
from .versions import Version, version
from .views import (
    expand,
    flatten,
    identity,
    size,
    slice,  # noqa: A004  # the operator's name
    split,
    squeeze,
    transpose,
    unsqueeze,
)

__all__ = [
    "Version",
    "cast",
    "cast_like",
    "center_crop_pad",
    "concat",
    "depth_to_space",
    "dequantize_linear",
    "expand",
    "flatten",
    "gather",
    "identity",
    "pad",
    "quantize_linear",
    "request",
    "reshape",
    "shape",
    "shape_of",
    "size",
    "slice",
    "space_to_depth",
    "split",
    "squeeze",
    "tile",
    "transpose",
    "unsqueeze",
    "version",
]
