"""Writes a model with other tensors: the graph is kept, declared dtypes and shapes are updated."""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress

from onnx import GraphProto, ModelProto, TensorProto
from onnx.checker import ValidationError
from onnx.shape_inference import InferenceError

from ...arrays.tensor import Tensor
from ...dtypes.table import dtype
from ...errors import FileFormatError, FormatError, in_file
from ..checkpoint import Checkpoint, is_text
from ..open_files import File
from ..paths import Path, file_name
from ..places import file_system, writing
from ..stored import Stored
from ..temporary import Check
from ..writing import New, NewFile, Progress, Written, names_of
from .graphs import GraphTensor, graphs, held, protos
from .reader import Model, read
from .shapes import inferred, reshape_nodes
from .wire import MAX_MESSAGE, Place, expanded

_UINT8 = dtype("uint8")
_ALIGNMENT = 4096  # bytes, of each tensor in a file of external data: a page
LEAST_OUTSIDE = (
    1024  # bytes of a tensor from which it becomes external data in a model that is too large
)
_NO_GRAPH = "an ONNX file needs the graph of an ONNX model with these tensors: convert one, or in "
_NO_GRAPH += "Python pass its path as save_file(..., source=)"
_TYPED = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data")
_DATA_FIELDS = (*_TYPED, "raw_data", "external_data", "data_location")


def write(
    path: Path,
    tensors: Iterable[New],
    metadata: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    check: Check | None = None,
    source: Checkpoint | None = None,
) -> int:
    """Write the model `source` with new tensors as `files.safetensors.write` does.

    `tensors` are all those that `read` finds, by the same names. Dtypes and shapes may differ if
    onnx's shape inference accepts them: the declarations of the graph, also of intermediate
    results, are updated. Tensors that were external data are so again, in one file next to the
    model; so are all larger ones if the model would exceed protobuf's 2 GiB. Returns the size of
    both files in bytes. Raises FileFormatError, before anything is written, for a source that is
    not a model, for missing or unknown tensors, and for those that the graph does not allow.
    """
    name = file_name(path)
    if source is None or source.format != "onnx":
        raise FileFormatError(name, None, _NO_GRAPH)
    own: Model = source.own
    given = list(tensors)
    with in_file(name):
        model, known = _replaced(source, given)
        if metadata is not None and dict(metadata) != (source.metadata or {}):
            _set_metadata(model, metadata)
    large = sum(new.nbytes for new in given) + model.ByteSize() > MAX_MESSAGE
    least = LEAST_OUTSIDE if large else math.inf
    outside = [new for new in given if new.name in own.external or new.nbytes >= least]
    location = _location(name)
    beside = _refer_outside(known, outside, location)
    parts, size = expanded(model.SerializeToString())
    if size > MAX_MESSAGE:
        raise FileFormatError(name, None, f"it would have {size} bytes, more than protobuf reads")
    old = _locations(name)

    def tell(count: int) -> None:
        if progress is not None and isinstance(count, Written) and count.tensor:
            progress(count)

    with ExitStack() as stack:
        if outside:
            stack.enter_context(_outside(name, location, beside, progress))
        placed = [*_placed(parts, own.file, given)]
        stack.enter_context(writing(name, NewFile(b"", placed, size), tell, check))
    _remove(name, old - {location})
    return size + beside.size


def _replaced(
    source: Checkpoint, given: Sequence[New]
) -> tuple[ModelProto, dict[str, GraphTensor]]:
    """The model with the dtypes, the shapes and the places of new tensors, and its tensors."""
    model = ModelProto()
    model.CopyFrom(source.own.proto)
    known = {each.name: each for each in held(model) if each.name in source.members}
    names = names_of(given, known.__contains__, "it is not in the graph of the source")
    for name in known:
        if name not in names:
            raise FileFormatError(None, name, "is in the graph, but missing among the tensors")
    changed = [_retyped(known[new.name], new) for new in given]
    if any(changed):
        _infer(model, source.own.file)
    for i, new in enumerate(given):
        proto = known[new.name].proto
        _clear(proto)
        proto.raw_data = Place(-1 - i, new.nbytes).encoded
    for proto in protos(model):
        if proto.data_location == TensorProto.EXTERNAL:
            reason = "it has external data, which only initialisers and Constants may have here"
            raise FileFormatError(None, proto.name, reason)
    return model, known


def _retyped(each: GraphTensor, new: New) -> bool:
    """Update the dtype and shape of a tensor, and of the input whose default it is.

    Up to IR version 3 every initialiser is the default of an input.
    """
    proto, code = each.proto, new.dtype.onnx
    if code is None:
        raise FileFormatError(None, new.name, f"ONNX has no dtype for {new.dtype}")
    if (code, new.shape) == (proto.data_type, tuple(proto.dims)):
        return False
    _clear(proto)
    proto.data_type = code
    proto.dims[:] = new.shape
    for value in each.graph.input if isinstance(each.graph, GraphProto) else ():
        if value.name == each.own:
            value.type.tensor_type.elem_type = code
            del value.type.tensor_type.shape.dim[:]
            for size in new.shape:
                value.type.tensor_type.shape.dim.add(dim_value=size)
    return True


def _clear(proto: TensorProto) -> None:
    for field in _DATA_FIELDS:
        proto.ClearField(field)


def _infer(model: ModelProto, file: File) -> None:
    """Check new dtypes and shapes, and update those of intermediate results."""
    had = {value.name for value in model.graph.value_info}
    for _, graph, _ in graphs(model):
        del graph.value_info[:]
    try:
        made = inferred(model, file, strict=True)
    except (InferenceError, ValidationError) as wrong:
        fault: str | None = str(wrong)
    else:
        fault = next((node.fault for node in reshape_nodes(made) if node.fault), None)
    if fault is not None:
        reason = (
            f"the graph does not allow these dtypes and shapes: {fault}; nodes, inputs and outputs "
            "stay as they are: change them with onnx first"
        )
        raise FormatError(reason)
    model.graph.value_info.extend(v for v in made.graph.value_info if v.name in had)


def _set_metadata(model: ModelProto, metadata: Mapping[str, str]) -> None:
    if not all(is_text(word) for pair in metadata.items() for word in pair):
        raise FormatError("metadata must be text")
    del model.metadata_props[:]
    for key, value in metadata.items():
        model.metadata_props.add(key=key, value=value)


def _location(path: str) -> str:
    """A name for a file of external data that is not in the folder yet."""
    system, base = file_system(path), file_system(path).base(path)
    if not system.exists(system.join(system.parent(path), f"{base}.data")):
        return f"{base}.data"
    return f"{base}.{secrets.token_hex(4)}.data"


def _refer_outside(
    known: Mapping[str, GraphTensor], outside: Sequence[New], location: str
) -> NewFile:
    """The file of external data; tensors refer to their positions in it."""
    placed, at = list[tuple[New, int]](), 0
    for new in outside:
        begin = -(-at // _ALIGNMENT) * _ALIGNMENT
        placed.append((new, begin))
        proto, at = known[new.name].proto, begin + new.nbytes
        proto.ClearField("raw_data")
        proto.data_location = TensorProto.EXTERNAL
        for key, value in (("location", location), ("offset", begin), ("length", new.nbytes)):
            proto.external_data.add(key=key, value=str(value))
    return NewFile(b"", placed, at)


@contextmanager
def _outside(path: str, location: str, file: NewFile, progress: Progress | None) -> Iterator[None]:
    """Write the file of external data; it is removed if the model cannot be written."""
    system = file_system(path)
    data_path = system.join(system.parent(path), location)
    try:
        with writing(data_path, file, progress):
            pass
        yield
    except BaseException:
        with suppress(OSError):
            system.remove(data_path)
        raise


def _placed(
    parts: Iterable[bytes | Place], file: File, given: Sequence[New]
) -> Iterator[tuple[New, int]]:
    """The parts of a model in sequence; those that are not new tensors have no name."""
    at = 0
    for part in parts:
        if not isinstance(part, Place):
            new = New.of("", Tensor.frombuffer(part, _UINT8, (len(part),)))
        elif part.begin < 0:
            new = given[-1 - part.begin]
        else:
            kept = Stored.row_major(file, "", part.begin, _UINT8, (part.nbytes,))
            new = New("", _UINT8, kept.shape, kept.pieces, kept.extent)
        yield new, at
        at += new.nbytes


def _locations(path: str) -> set[str]:
    """The files of external data of the model at `path`, if there is one."""
    try:
        model = read(path).own.proto
    except (OSError, FileFormatError):
        return set()
    return {
        entry.value
        for proto in protos(model)
        for entry in proto.external_data
        if entry.key == "location"
    }


def _remove(path: str, locations: Iterable[str]) -> None:
    """Remove the external data of a replaced model, if shapejit named the files."""
    system, base = file_system(path), file_system(path).base(path)
    ours = re.compile(re.escape(base) + r"(\.[0-9a-f]{8})?\.data")
    for location in filter(ours.fullmatch, locations):
        with suppress(OSError):
            system.remove(system.join(system.parent(path), location))
