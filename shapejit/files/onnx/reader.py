"""A model as tensors: raw and external data stay in their files, others are in memory."""

from __future__ import annotations

from typing import NamedTuple

from google.protobuf.message import DecodeError
from onnx import ModelProto, TensorProto

from ...errors import FileFormatError, FormatError, in_file
from ..checkpoint import Checkpoint, is_text, size_in_bits
from ..in_memory import MemoryFile
from ..open_files import File
from ..paths import Path, file_name
from ..places import file_system, opened
from ..stored import Stored
from .graphs import GraphTensor, held
from .tensors import described, external, typed
from .weights import weight_nodes
from .wire import Place, skeleton


class Model(NamedTuple):
    """A model with a `wire.Place` instead of raw data, its file, and names of external tensors."""

    proto: ModelProto
    file: File
    external: frozenset[str]


def read(path: Path) -> Checkpoint:
    """The initialisers and Constant nodes of a model, including its subgraphs and functions.

    A tensor of the graph has its own name; that of a subgraph begins with the name of the subgraph
    (see `graphs.held`). Raw and external data are not copied; elements in typed fields are decoded.
    Tensors of strings are left out.

    Raises OSError if a file cannot be opened, FileFormatError (with the file and the tensor) if one
    violates onnx.proto, and for external data outside the model's folder.
    """
    name = file_name(path)
    file = opened(name)
    try:
        model = ModelProto.FromString(skeleton(file))
    except DecodeError:
        raise FileFormatError(name, None, "it is not an ONNX model") from None
    if not model.HasField("graph"):
        raise FileFormatError(name, None, "it is not an ONNX model: it has no graph")
    files = dict[str, File]()  # of external data
    members: dict[str, Stored] = {}
    outside = set[str]()
    for each in held(model):
        if each.proto.data_type == TensorProto.STRING:
            continue
        if not each.own:
            raise FileFormatError(name, None, "a tensor of its graph has no name")
        if not is_text(each.own):  # bytes, as proto2 has it
            raise FileFormatError(name, None, f"the name {each.own!r} is not UTF-8")
        if each.name in members:
            raise FileFormatError(name, each.name, "two tensors have this name")
        with in_file(name, each.name):
            members[each.name] = _stored(each, file, files)
        if each.proto.data_location == TensorProto.EXTERNAL:
            outside.add(each.name)
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    if not all(is_text(word) for pair in metadata.items() for word in pair):
        raise FileFormatError(name, None, "its metadata are not UTF-8")
    return Checkpoint(
        path=name,
        format="onnx",
        members=members,
        metadata=metadata or None,
        weight_nodes=weight_nodes(model, members),
        own=Model(model, file, frozenset(outside)),
    )


def _stored(each: GraphTensor, file: File, files: dict[str, File]) -> Stored:
    kind, shape, field = described(each.proto)
    nbytes = -(-size_in_bits(shape, kind.bits) // 8)
    if field == "external_data":
        system = file_system(file.path)
        folder = system.parent(file.path)
        other, begin = external(each.proto, system, folder, nbytes, each.name, files)
        return Stored.row_major(other, each.name, begin, kind, shape)
    if field == "raw_data":
        begin, found_bytes = Place.of(each.proto.raw_data)
        if found_bytes != nbytes:
            reason = f"its elements of {kind} are {nbytes} bytes, but its raw_data has"
            raise FormatError(f"{reason} {found_bytes}")
        return Stored.row_major(file, each.name, begin, kind, shape)
    memory = MemoryFile(file.path, typed(each.proto, field, kind, shape).buffer[:nbytes])
    return Stored.row_major(memory, each.name, 0, kind, shape)
