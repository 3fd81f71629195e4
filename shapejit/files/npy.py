"""NPY (numpy.org/doc/stable/reference/generated/numpy.lib.format.html): one array per file.

Pickles are never loaded. A dtype that NumPy lacks is stored as a structured dtype with one field,
which is named after the dtype and holds the codes, sub-byte ones in a byte each. `numpy.load`
returns such an array; `array.view(ml_dtypes.bfloat16)` has its values.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from math import prod
from tokenize import TokenError
from typing import IO, Any

import numpy as np
from numpy.lib import format as numpy_format

from ..arrays.tensor import Bytes, Tensor
from ..dtypes import table
from ..dtypes.table import DType
from ..errors import FileFormatError, FormatError, in_file, quoted, shortened
from ..shapes.layout import Layout
from ..shapes.request import Ints
from .checkpoint import Checkpoint, size_in_bits
from .open_files import File, stream
from .paths import Path, file_name
from .pieces import whole_elements
from .places import opened
from .stored import Stored
from .writing import New, NewFile, announced

MAGIC = b"\x93NUMPY"
UNNAMED = "arr_0"  # what NumPy calls an array without a name

_MAX_START = 12 + 10_000  # bytes before the data: NumPy reads headers of 10 000 at most
_READERS = {
    (1, 0): numpy_format.read_array_header_1_0,
    (2, 0): numpy_format.read_array_header_2_0,
    (3, 0): numpy_format.read_array_header_2_0,  # UTF-8 names of fields do not occur
}
_FAULTS = (ValueError, TypeError, SyntaxError, MemoryError, RecursionError, TokenError)


def _descr(kind: DType) -> str | list[tuple[str, str]]:
    if kind.numpy is not None and kind.numpy.isbuiltin == 1:
        return kind.numpy.str
    return [(kind.name, np.dtype(f"u{_item(kind)}").str)]


def _item(kind: DType) -> int:
    """Bytes of an element in the file."""
    return max(kind.bits // 8, 1)


_BY_DESCR = {np.dtype(_descr(kind)): kind for kind in table.all() if kind.bits}


def read(path: Path) -> Checkpoint:
    """The tensor of an NPY file, which is named `arr_0`.

    Raises OSError if the file cannot be opened, FileFormatError if it does not conform to the
    format, and for dtypes that no Tensor has.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/a.npy", np.arange(3))
    ...     read(f"{folder}/a.npy").tensors["arr_0"]
    Tensor([0, 1, 2], shape=(3,), dtype=int64, 64 bits each)
    """
    name = file_name(path)
    file = opened(name)
    found = member(file, UNNAMED, 0, file.size, stream(file))
    return Checkpoint(name, "npy", {UNNAMED: found}, None, found.begin)


def member(file: File, name: str, begin: int, size: int, source: IO[bytes]) -> Stored:
    """The tensor whose NPY bytes are the `size` bytes from byte `begin` of a file.

    `source` is read from their first byte on.
    """
    with in_file(file.path, name):
        head = _Head(source, size)
        shape, fortran, descr = _header(head)
        kind = _BY_DESCR.get(descr)
        if kind is None:
            raise FormatError(_unknown(descr))
        if not all(type(length) is int and length >= 0 for length in shape):
            raise FormatError(f"its shape {quoted(repr(shape), 60)} is invalid")
        item = 8 * _item(kind)
        need = size_in_bits(shape, item) // 8
        if need != head.left:
            raise FormatError(f"its elements are {need} bytes, but {head.left} follow its header")
        layout = _layout(shape, kind.bits, item, fortran)
        return Stored(file, name, begin + size - head.left, kind, layout)


def _layout(shape: Ints, bits: int, item: int, fortran: bool) -> Layout:
    """Elements of `bits` each, `item` bits apart, in row-major or in column-major order."""
    step = -1 if fortran else 1
    return Layout.of(shape, Layout.row_major(shape[::step], item).strides[::step], 0, bits)


class _Head:
    """A reader of a header, limited to the bytes that NumPy may read.

    `left` are the bytes of the array after what has been read.
    """

    def __init__(self, source: IO[bytes], size: int) -> None:
        self._source, self.left = source, size

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _MAX_START:
            raise ValueError(f"it has {size} bytes")
        found = self._source.read(min(size, self.left))
        self.left -= len(found)
        return found


def _header(head: _Head) -> tuple[Ints, bool, Any]:
    """The shape, whether it is in column-major order, and the dtype."""
    try:
        version = numpy_format.read_magic(head)
        read = _READERS.get(version)
        if read is None:
            raise ValueError("version {}.{} of the format is unknown".format(*version))
        found: tuple[Ints, bool, Any] = read(head)
    except FileFormatError:  # of the file
        raise
    except _FAULTS as fault:
        reason = f"its header is not one of an NPY array: {shortened(str(fault), 200)}"
        raise FormatError(reason) from None
    return found


def _unknown(descr: Any) -> str:
    """Why no Tensor has this dtype."""
    text = quoted(descr.str if descr.names is None else repr(descr.descr), 60)
    if descr.hasobject:
        return f"its dtype is {text}: a pickle, which is never loaded"
    if descr.byteorder == ">":
        return f"its elements ({text}) are big-endian"
    if descr.kind == "V" and descr.names is None:
        return f"its dtype {text} is raw bytes of unknown type, as NumPy writes those of ml_dtypes"
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


def placed(path: str, tensors: Iterable[New], metadata: Mapping[str, str] | None = None) -> NewFile:
    """The file with this tensor, without its name.

    Raises FileFormatError for several tensors, none, or metadata.
    """
    given = list(tensors)
    if metadata:
        raise FileFormatError(path, None, "an NPY file has no metadata")
    if len(given) != 1:
        raise FileFormatError(path, None, f"an NPY file holds one tensor, not {len(given)}")
    (tensor,), first = given, header(given[0])
    count = nbytes(tensor)
    data = New(tensor.name, table.dtype("uint8"), (count,), lambda: encoded(path, tensor))
    return NewFile(first, [(data, len(first))], len(first) + count)
