"""Reads a GGUF file: its metadata, and views of its tensors in the file.

The types and the sizes of their blocks come from the package `gguf`. The header is read here: each
count in it is checked against the number of bytes that follow.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from ...dtypes.table import DType, dtype
from ...errors import DTypeError, FileFormatError, FormatError, in_file, quoted, shape_text
from ...shapes.layout import Layout
from ..checkpoint import Checkpoint, check_apart, size_in_bits, together
from ..open_files import File, stream
from ..paths import Path, file_name
from ..places import file_system, opened
from ..stored import FileType, Stored

MAGIC = b"GGUF"

_VERSIONS = (2, 3)
_MAX_HEADER = 100_000_000  # bytes, as of a safetensors header
MAX_DIMS = 4  # GGMLMAX_DIMS
_MAX_ARRAY_NESTING = 4  # of arrays in the metadata
ALIGNMENT = "general.alignment"
# gguf_metadata_value_type: the codes of struct, or the names of those of no fixed width.
VALUES = ("B", "b", "H", "h", "I", "i", "f", "?", "string", "array", "Q", "q", "d")
_MIN_BYTES = {"string": 8, "array": 12}  # bytes of the shortest value


class TensorType(NamedTuple):
    """A type of tensors: its name and number, and the dtype of the elements.

    A quantised type is uint8: blocks of `block` elements in `nbytes` bytes; otherwise both are 0.
    """

    name: str
    code: int
    dtype: DType
    block: int = 0
    nbytes: int = 0


def _tensor_type(known: GGMLQuantizationType) -> TensorType:
    try:
        return TensorType(known.name, known.value, dtype(known.value, vocabulary="gguf"))
    except DTypeError:
        return TensorType(known.name, known.value, dtype("uint8"), *GGML_QUANT_SIZES[known])


TENSOR_TYPES = {known.value: _tensor_type(known) for known in GGMLQuantizationType}


class Header(NamedTuple):
    """The file, and the bytes [begin, end) of each key and value of the metadata in it."""

    file: File
    pairs: dict[str, tuple[int, int]]


# The type of a tensor, its shape, and where it begins, from the start of the data on.
_Info = tuple[TensorType, tuple[int, ...], int]


class _Cursor:
    """A reader of a header from its beginning."""

    def __init__(self, file: File) -> None:
        self.file, self.at = file, 0
        self._stream = stream(file)

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        left = self.file.size - self.at
        if count > left:
            raise FormatError(f"{count} bytes are expected at byte {self.at}, but {left} follow")
        if self.at + count > _MAX_HEADER:
            raise FormatError(f"its header has more than {_MAX_HEADER} bytes")
        self.at += count
        return self._stream.read(count)

    def number(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}")))[0]

    def count(self, what: str, least: int) -> int:
        """A count of items of at least `least` bytes each, which must fit into the file."""
        found: int = self.number("Q")
        if found * least > self.file.size - self.at:
            raise FormatError(f"{found} {what} cannot be in {self.file.size - self.at} bytes")
        return found

    def text(self) -> str:
        raw = self.take(self.count("bytes of text", 1))
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise FormatError(f"the text that ends at byte {self.at} is not UTF-8") from None

    def value(self, code: str, nesting: int = 0) -> Any:
        """A value of the metadata; an array is a list."""
        if code == "string":
            return self.text()
        if code != "array":
            return self.number(code)
        if nesting == _MAX_ARRAY_NESTING:
            raise FormatError(f"arrays are nested more than {_MAX_ARRAY_NESTING} times")
        item = self.code()
        least = _MIN_BYTES.get(item) or struct.calcsize(f"<{item}")
        count = self.count("values", least)
        if item in _MIN_BYTES:
            return [self.value(item, nesting + 1) for _ in range(count)]
        return list(struct.unpack(f"<{count}{item}", self.take(count * least)))

    def code(self) -> str:
        found: int = self.number("I")
        if found >= len(VALUES):
            raise FormatError(f"the type {found} of a value is unknown")
        return VALUES[found]


def _read_one(path: Path) -> Checkpoint:
    """The tensors and the metadata of a GGUF file, without copying the data.

    Shapes are in row-major order (GGUF's dims reversed). A quantised tensor is uint8:
    its raw blocks, row by row, so that the last size is the bytes of a row; `types`
    has the names of all types (`Q4_K` ...). Raises OSError where the file cannot be
    opened, FileFormatError (with the file and the tensor) where it is not what the
    format says.
    """
    name = file_name(path)
    cursor = _Cursor(opened(name))
    metadata: dict[str, Any] = {}
    ranges: dict[str, tuple[int, int]] = {}
    infos = dict[str, _Info]()
    with in_file(name):
        tensors, pairs = _counts(cursor)
        for _ in range(pairs):
            begin, key = cursor.at, cursor.text()
            if key in metadata:
                raise FormatError(f"{quoted(key)} occurs twice in its metadata")
            metadata[key] = cursor.value(cursor.code())
            ranges[key] = begin, cursor.at
        for _ in range(tensors):
            tensor, info = _info(cursor)
            if tensor in infos:
                raise FileFormatError(None, tensor, "two tensors have this name")
            infos[tensor] = info
        alignment = alignment_of(metadata)
        start = -(-cursor.at // alignment) * alignment
        members = _members(cursor.file, infos, start, alignment)
    return Checkpoint(
        path=name,
        format="gguf",
        members=members,
        metadata=metadata,
        start=start,
        types={tensor: known.name for tensor, (known, *_) in infos.items()},
        own=Header(cursor.file, ranges),
    )


def alignment_of(metadata: Mapping[str, Any]) -> int:
    """The alignment of each tensor in bytes."""
    alignment = metadata.get(ALIGNMENT, 32)
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
        raise FormatError(f"its {ALIGNMENT} {quoted(repr(alignment))} is not a power of two")
    return alignment


def _counts(cursor: _Cursor) -> tuple[int, int]:
    """The numbers of tensors and of metadata."""
    if cursor.file.size < 24 or cursor.take(4) != MAGIC:
        raise FormatError("it does not begin as a GGUF file")
    version = cursor.number("I")
    if version not in _VERSIONS:
        what = "is big-endian" if version & 0xFFFF == 0 else f"has version {version}"
        raise FormatError(f"it {what}; versions 2 and 3 are read, little-endian")
    return cursor.count("tensors", 24), cursor.count("metadata", 13)


def _info(cursor: _Cursor) -> tuple[str, _Info]:
    """The entry of a tensor, by its name."""
    name = cursor.text()
    rank = cursor.number("I")
    if rank > MAX_DIMS:
        raise FileFormatError(None, name, f"it has {rank} dims, more than {MAX_DIMS}")
    dims = [cursor.number("Q") for _ in range(rank)][::-1]
    code, offset = cursor.number("I"), cursor.number("Q")
    known = TENSOR_TYPES.get(code)
    if known is None:
        raise FileFormatError(None, name, f"its type {code} is unknown")
    if known.block:
        if not dims or dims[-1] % known.block:  # a block is within a row
            reason = f"rows of {known.name} are blocks of {known.block}: shape "
            raise FileFormatError(None, name, f"{reason}{shape_text(dims)} is none")
        dims[-1] = dims[-1] // known.block * known.nbytes
    return name, (known, tuple(dims), offset)


def _members(
    file: File, infos: Mapping[str, _Info], start: int, alignment: int
) -> dict[str, Stored]:
    """The tensors in the order of the header, checked not to overlap."""
    found = dict[str, Stored]()
    for name, (known, shape, offset) in infos.items():
        with in_file(None, name):
            nbytes = size_in_bits(shape, known.dtype.bits) // 8
            if offset % alignment or start + offset + nbytes > max(file.size, start):
                reason = f"its {nbytes} bytes from byte {offset} of the data are not in the file"
                raise FormatError(f"{reason}, or not aligned to {alignment}")
        layout = Layout.row_major(shape, known.dtype.bits)
        tensor_type = FileType(known.name)
        found[name] = Stored(file, name, start + offset, known.dtype, layout, tensor_type)
    check_apart(((name, m.begin, m.begin + m.nbytes) for name, m in found.items()))
    return found


# llama.cpp, llama_split_path; the keys of gguf-py, constants.py, Keys.Split.
_SHARD_NAME = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.DOTALL)
_NUMBER, _COUNT, _TENSORS = "split.no", "split.count", "split.tensors.count"


def read(path: Path) -> Checkpoint:
    """The content of a GGUF file; of a shard, that of all shards, with the metadata of the first.

    Raises what a single file raises, and FileFormatError for missing shards, shards whose numbers
    contradict their names, and tensors that contradict the first shard.
    """
    name = file_name(path)
    base = file_system(name).base(name)
    named = _SHARD_NAME.fullmatch(base)
    if named is None or int(named[3]) < 2:
        return _read_one(name)
    stem, count = named[1], int(named[3])
    shards = [
        _shard(name, f"{stem}-{k + 1:05d}-of-{named[3]}.gguf", k, count) for k in range(count)
    ]
    first, members = shards[0], together(shards)
    types = dict(chain.from_iterable(shard.types.items() for shard in shards))
    metadata = first.metadata or {}
    said = metadata.get(_TENSORS, len(members))
    if said != len(members):
        reason = f"its shards hold {len(members)} tensors, not {said}, as the first one says"
        raise FileFormatError(name, None, reason)
    kept = {key: value for key, value in metadata.items() if not key.startswith("split.")}
    return replace(first, path=name, members=members, types=types, metadata=kept)


def _shard(path: str, base: str, number: int, count: int) -> Checkpoint:
    """The path of another shard of `path`."""
    system = file_system(path)
    name = system.join(system.parent(path), base) if system.parent(path) else base
    try:
        found = _read_one(name)
    except FileNotFoundError:
        raise FileFormatError(path, None, f"its shard {quoted(base)} does not exist") from None
    metadata = found.metadata or {}
    said = metadata.get(_NUMBER, number), metadata.get(_COUNT, count)
    if said != (number, count):
        reason = f"it says that it is shard {said[0]} of {said[1]} (from 0 on), not {number}"
        raise FileFormatError(name, None, reason)
    return found
