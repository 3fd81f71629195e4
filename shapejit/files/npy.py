"""NPY (numpy.org/doc/stable/reference/generated/numpy.lib.format.html): one array per file.

Pickles are never loaded. A dtype that NumPy itself lacks is a record of one field: the
field is named as the dtype and holds the codes, one element of fewer than 8 bits per
byte. `numpy.load` gives such an array, and `array.view(ml_dtypes.bfloat16)` its values.
"""

from __future__ import annotations

import ast
import io
from collections.abc import Iterable, Iterator, Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.lib import format as numpy_format

from ..arrays.tensor import Bytes, Tensor
from ..dtypes import table
from ..dtypes.table import DType
from ..errors import FileFormatError, quoted
from ..shapes.layout import Layout
from .checkpoint import Checkpoint, size_in_bits
from .paths import Path, file_name
from .pieces import whole_elements
from .places import opened, replacing
from .stored import Source, Stored
from .writing import New, Progress, announced, check_room, write_all

__all__ = ["MAGIC", "NAME", "encoded", "header", "member", "nbytes", "read", "write"]

MAGIC = b"\x93NUMPY"
NAME = "arr_0"  # what NumPy calls an array without a name

_LENGTHS = {1: 2, 2: 4, 3: 4}  # bytes of the header's length, by the format's version
_MAX_HEADER = 10_000  # bytes; NumPy's own limit
_KEYS = {"descr", "fortran_order", "shape"}


def _descr(kind: DType) -> str | list[tuple[str, str]]:
    if kind.numpy is not None and kind.numpy.isbuiltin == 1:
        return kind.numpy.str
    return [(kind.name, np.dtype(f"u{_item(kind)}").str)]


def _item(kind: DType) -> int:
    """Bytes of an element in the file."""
    return max(kind.bits // 8, 1)


_KINDS = {repr(_descr(kind)): kind for kind in table.all() if kind.bits}


def read(path: Path) -> Checkpoint:
    """The one tensor of an NPY file, which is called `arr_0`.

    Raises OSError where the file cannot be opened, FileFormatError where it is not
    exactly what the format says, and for dtypes that no Tensor has.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/a.npy", np.arange(3))
    ...     read(f"{folder}/a.npy").tensors["arr_0"]
    Tensor([0, 1, 2], shape=(3,), dtype=int64, 64 bits each)
    """
    name = file_name(path)
    file = opened(name)
    found = member(file, NAME, 0, file.size)
    start = found.begin
    return Checkpoint(name, "npy", {NAME: found}, None, found.nbytes, start)


def member(file: Source, name: str, begin: int, size: int) -> Stored:
    """The tensor whose NPY bytes are the `size` bytes from byte `begin` of a file."""
    fields, start = _header(file, name, begin, size)
    descr, fortran, shape = (fields[key] for key in sorted(_KEYS))
    kind = _KINDS.get(repr(descr))
    if kind is None:
        raise FileFormatError(file.path, name, _unknown(descr))
    if type(fortran) is not bool or not _is_shape(shape):
        raise FileFormatError(file.path, name, "the shape or the order in its header is not one")
    item = 8 * _item(kind)
    need = size_in_bits(file.path, name, shape, item) // 8
    if need != begin + size - start:
        reason = f"its elements are {need} bytes, but {begin + size - start} follow its header"
        raise FileFormatError(file.path, name, reason)
    layout = _layout(shape, kind.bits, item, fortran)
    return Stored(file, name, start, kind, layout)


def _layout(shape: tuple[int, ...], bits: int, item: int, fortran: bool) -> Layout:
    """Elements of `bits` each, `item` bits apart, in row-major or in column-major order."""
    order = list(range(len(shape)))[:: 1 if fortran else -1]
    strides, step = [0] * len(shape), item
    for i in order:
        strides[i], step = step, step * max(shape[i], 1)
    return Layout.of(shape, strides, 0, bits)


def _is_shape(value: object) -> bool:
    return type(value) is tuple and all(type(size) is int and size >= 0 for size in value)


def _header(file: Source, name: str, begin: int, size: int) -> tuple[dict[str, Any], int]:
    """The dict of the header, and the byte where the data begin."""
    start = _bytes(file, name, begin, min(size, 8))
    if start[:6] != MAGIC or len(start) < 8:
        raise FileFormatError(file.path, name, "it is not an NPY array: it lacks the magic number")
    width = _LENGTHS.get(start[6])
    if width is None:
        reason = f"version {start[6]}.{start[7]} of the NPY format is unknown"
        raise FileFormatError(file.path, name, reason)
    length = int.from_bytes(_bytes(file, name, begin + 8, min(size - 8, width)), "little")
    if length > min(_MAX_HEADER, size - 8 - width):
        reason = f"its header is said to have {length} bytes, of {size} and {_MAX_HEADER} at most"
        raise FileFormatError(file.path, name, reason)
    raw = _bytes(file, name, begin + 8 + width, length)
    try:
        fields = ast.literal_eval(raw.decode("utf-8" if start[6] == 3 else "latin-1").strip())
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        fields = None
    if type(fields) is not dict or fields.keys() != _KEYS:
        reason = "its header is not a dict of descr, fortran_order and shape"
        raise FileFormatError(file.path, name, reason)
    return fields, begin + 8 + width + length


def _bytes(file: Source, name: str, at: int, count: int) -> bytearray:
    memory = bytearray(max(count, 0))
    file.read(memoryview(memory), at, name)
    return memory


def _unknown(descr: object) -> str:
    """Why no Tensor has this dtype."""
    text = quoted(descr if isinstance(descr, str) else repr(descr), 60)
    if not isinstance(descr, str):
        return f"its dtype {text} is unknown"
    if "O" in descr:
        return f"its dtype is {text}: a pickle, which is never loaded"
    if descr.startswith(">"):
        return f"its elements ({text}) are big-endian"
    if "V" in descr:
        return f"its dtype {text} is bytes without a meaning: NumPy writes ml_dtypes' arrays so"
    return f"its dtype {text} is unknown"


def header(tensor: New) -> bytes:
    """The bytes before the data, exactly as NumPy writes them."""
    fields = {"descr": _descr(tensor.dtype), "fortran_order": False, "shape": tensor.shape}
    sink = io.BytesIO()
    numpy_format.write_array_header_1_0(sink, fields)
    return sink.getvalue()


def nbytes(tensor: New) -> int:
    """Bytes of the data in the file."""
    return prod(tensor.shape) * _item(tensor.dtype)


def encoded(path: str, tensor: New) -> Iterator[Bytes]:
    """The bytes of the data, piece by piece: one element per byte, if it has fewer bits."""
    found, kind = announced(path, tensor), tensor.dtype
    if not kind.packed:
        yield from found
        return
    for data, count in whole_elements(found, kind.bits, prod(tensor.shape)):
        yield Tensor.frombuffer(data, kind, (count,)).unpack().view(np.uint8)


def write(
    path: Path,
    tensors: Iterable[New],
    metadata: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> int:
    """Write an NPY file as `files.safetensors.write` does; return its size in bytes.

    The file holds one tensor and neither its name nor metadata: FileFormatError for
    several tensors, none, or metadata, before anything is written.
    """
    name, given = file_name(path), list(tensors)
    if metadata:
        raise FileFormatError(name, None, "an NPY file has no metadata")
    if len(given) != 1:
        raise FileFormatError(name, None, f"an NPY file holds one tensor, not {len(given)}")
    first = header(given[0])
    size = len(first) + nbytes(given[0])
    with replacing(name, size) as descriptor:
        check_room(descriptor, size)
        write_all(descriptor, memoryview(first))
        for piece in encoded(name, given[0]):
            write_all(descriptor, piece.data)
            if progress is not None:
                progress(piece.size)
    return size
