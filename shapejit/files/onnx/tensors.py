"""Conversion between onnx's TensorProto (onnx.proto, message TensorProto) and Tensors.

Supports every dtype of ONNX, strings included, in every field that may hold its
elements. Sub-byte elements stay packed: ONNX and Tensor have the same bit order.
"""

from __future__ import annotations

import os
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from ...arrays.buffers import bytes_of
from ...arrays.tensor import Tensor, asarray, is_array
from ...dtypes.table import STRING, DType, dtype
from ...errors import (
    DTypeError,
    FileFormatError,
    FormatError,
    ReshapeError,
    elements,
    in_file,
    shape_text,
)
from ...operations.codes import pack
from ...operations.views import dtype_of
from ...runtime.ndarrays import is_a, plain
from ...shapes.layout import checked_shape
from ...shapes.request import Ints
from ..checkpoint import is_text
from ..open_files import File
from ..paths import Path
from ..places import HERE, FileSystem

# The field of each dtype's elements if they are not in raw_data; int32_data for all others.
_TYPED_FIELDS = {
    "float32": "float_data",
    "complex64": "float_data",
    "float64": "double_data",
    "complex128": "double_data",
    "int64": "int64_data",
    "uint32": "uint64_data",
    "uint64": "uint64_data",
    "string": "string_data",
}
_FIELD_DTYPES: dict[str, Any] = {
    "float_data": np.float32,
    "double_data": np.float64,
    "int32_data": np.int32,
    "int64_data": np.int64,
    "uint64_data": np.uint64,
}


def from_tensorproto(proto: TensorProto, *, base_dir: Path | None = None) -> Tensor | NDArray[Any]:
    """A TensorProto as a Tensor, sub-byte dtypes packed; strings as an object ndarray of str.

    raw_data is wrapped without copying (protobuf itself returns a copy), external
    data are a read-only memory map of the file in `base_dir`, the model's folder.
    Raises DTypeError for unknown dtypes, FormatError (with the tensor's name) for
    a proto that violates onnx.proto: elements in no field, in several or in the
    wrong one, too few or too many, segments; FileFormatError (with the file, too)
    for external data, OSError if their file cannot be opened. Checksums are not
    verified.

    >>> from onnx import helper
    >>> from_tensorproto(helper.make_tensor("w", TensorProto.INT4, [3], [1, -2, 3]))
    Tensor([1, -2, 3], shape=(3,), dtype=int4, 4 bits each)
    """
    if not isinstance(proto, TensorProto):
        raise DTypeError(f"expected an onnx.TensorProto, not {type(proto).__name__}")
    try:
        return _tensor(proto, base_dir)
    except (FormatError, ReshapeError) as fault:
        raise FormatError(f"{title(proto.name)}: {fault}") from None
    except DTypeError as fault:
        raise DTypeError(f"{title(proto.name)}: {fault}") from None


def title(name: str | None) -> str:
    """The name of a tensor in errors."""
    return f"tensor {name!r}" if name else "a tensor without a name"


def _tensor(proto: TensorProto, base_dir: Path | None) -> Tensor | NDArray[Any]:
    kind, shape, field = described(proto)
    count = prod(shape)
    if field == "string_data":
        return _texts(proto, shape, count)
    if field == "external_data":
        need = kind.nbytes(count)
        file, begin = external(proto, HERE, base_dir, need, proto.name, {})
        memory = file.part(begin, begin + need, proto.name)
        return Tensor.frombuffer(memory, kind, shape)
    if field == "raw_data":
        return Tensor.frombuffer(bytes_of(proto.raw_data), kind, shape)
    return typed(proto, field, kind, shape)


def described(proto: TensorProto) -> tuple[DType, Ints, str]:
    """The dtype, the shape, and the name of the field that holds the elements.

    Raises DTypeError, FormatError or ReshapeError for a proto that violates onnx.proto.
    """
    kind = dtype(proto.data_type, vocabulary="onnx")
    shape = checked_shape(tuple(proto.dims), "dims", "onnx.TensorProto")
    if proto.HasField("segment"):
        raise FormatError("tensor segments are not supported (onnx.proto does not define them)")
    return kind, shape, _field(proto, kind, prod(shape))


def _field(proto: TensorProto, kind: DType, count: int) -> str:
    """The name of the field that holds the elements."""
    typed = [f for f in (*_FIELD_DTYPES, "string_data") if len(getattr(proto, f)) > 0]
    used = ["raw_data"] * proto.HasField("raw_data") + typed
    used += ["external_data"] * (proto.data_location == TensorProto.EXTERNAL)
    own = _TYPED_FIELDS.get(kind.name, "int32_data")
    if len(used) > 1:
        raise FormatError(
            f"its elements are in {' and in '.join(used)}, but only one field may be used"
        )
    if not used and count > 0:
        raise FormatError(
            f"shape {shape_text(proto.dims)} has {elements(count)}, but all fields are empty"
        )
    if used and used[0] != own and (kind is STRING or used[0] in typed):
        raise FormatError(f"elements of {kind} belong in {own}, not in {used[0]}")
    return used[0] if used else own


def typed(proto: TensorProto, field: str, kind: DType, shape: Ints) -> Tensor:
    """The numbers of a repeated field as a Tensor."""
    values, count = getattr(proto, field), prod(shape)
    # An int32 holds two 4-bit elements, four 2-bit ones or one of 6 bits; a complex is two floats.
    one_each = kind.bits == 6
    per_entry = kind.nbytes(count) if kind.packed and not one_each else count
    want = 2 * count if kind.kind == "complex" else per_entry
    if len(values) != want:
        raise FormatError(
            f"{elements(count)} of {kind} in shape {shape_text(shape)} need {want} entries of "
            f"{field}, which has {len(values)}"
        )
    numbers: NDArray[Any] = np.fromiter(values, _FIELD_DTYPES[field], want)
    width = 8 if kind.packed else kind.bits
    if kind.kind != "complex" and width < 8 * numbers.itemsize:
        high = 1 if kind.name == "bool" else 63 if one_each else (1 << width) - 1
        low = 0 if high < 64 else -(1 << (width - 1))
        bad = np.flatnonzero((numbers < low) | (numbers > high))
        if bad.size:
            at = int(bad[0])
            raise FormatError(f"{field}[{at}] = {numbers[at]} is out of range for {kind}")
        numbers = numbers.astype(f"u{width // 8}")
    if one_each:
        return pack(numbers.reshape(shape), kind)
    return Tensor.frombuffer(numbers, kind, shape)


def _texts(proto: TensorProto, shape: Ints, count: int) -> NDArray[Any]:
    if len(proto.string_data) != count:
        raise FormatError(
            f"{elements(count)} in shape {shape_text(shape)} need as many entries of string_data, "
            f"which has {len(proto.string_data)}"
        )
    texts = np.empty(count, object)
    for i, raw in enumerate(proto.string_data):
        try:
            texts[i] = raw.decode()
        except UnicodeDecodeError as fault:
            raise FormatError(f"string_data[{i}] is not UTF-8 (byte {fault.start})") from None
    try:
        return texts.reshape(shape)
    except ValueError as fault:
        raise FormatError(str(fault)) from None  # more dims than NumPy's 64


def external(
    proto: TensorProto, place: FileSystem, folder: Path | None, need: int, name: str,
    known: dict[str, File],
) -> tuple[File, int]:  # fmt: skip
    """The file of external data, and the first of the `need` bytes in it.

    Its location is relative to `folder`, the model's in its file system (empty: the current one);
    symbolic links must not lead out of it. `name` is the tensor's in errors; `known` are the files
    opened so far. Raises OSError if the file cannot be opened, FileFormatError if it ends too soon.
    """
    entries: dict[str, str] = {}
    for entry in proto.external_data:
        if not (is_text(entry.key) and is_text(entry.value)):  # bytes, where it is no UTF-8
            raise FormatError("its external_data are not UTF-8")
        if entry.key in entries:
            raise FormatError(f"duplicate key {entry.key!r} in its external_data")
        entries[entry.key] = entry.value
    location = entries.get("location")
    if location is None:
        raise FormatError("its external_data have no location")
    if folder is None:
        raise FormatError(f"its data are in {location!r}: pass base_dir=, the model's folder")
    path = os.path.join(os.fspath(folder), location)
    offset, length = (_number(proto, path, entries, key) for key in ("offset", "length"))
    if length not in (None, need):
        shape = shape_text(proto.dims)
        reason = f"its elements of shape {shape} are {need} bytes, but its length is {length}"
        raise FileFormatError(path, name, reason)
    found, begin = place.inside(os.fspath(folder), location, name), offset or 0
    if found not in known:
        with in_file(found, name):
            # `inside` has followed all links: what is one now was put there since.
            known[found] = place.open(found, follow=False)
    size = known[found].size
    if begin + need > size:
        reason = f"its {need} bytes from byte {begin} on end beyond the file's {size}"
        raise FileFormatError(path, name, reason)
    return known[found], begin


def _number(proto: TensorProto, path: str, entries: dict[str, str], key: str) -> int | None:
    text = entries.get(key)
    if text is None:
        return None
    # int() accepts signs, spaces, underscores and digits of other scripts, of any length.
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise FileFormatError(path, proto.name, f"its {key} {text[:40]!r} is not a number of bytes")
    return int(text)


def to_tensorproto(tensor: Tensor | NDArray[Any], name: str | None = None) -> TensorProto:
    """A Tensor (any view) or an ndarray as a TensorProto with raw_data; strings in string_data.

    An ndarray of ml_dtypes' sub-byte types is packed. Raises DTypeError for other
    objects and for dtypes that ONNX lacks (nf4, uint3 ...), FormatError for text
    that is not Unicode.

    >>> to_tensorproto(Tensor.frombuffer(b"\\x21\\x03", "uint4", (3,)), "w").raw_data.hex()
    '2103'
    """
    if not is_array(tensor):
        raise DTypeError(f"expected a shapejit.Tensor or an ndarray, not {type(tensor).__name__}")
    if not is_a(tensor, Tensor):
        tensor = plain(tensor)
    kind = dtype_of(tensor)
    if kind.onnx is None:
        raise DTypeError(f"{title(name)}: ONNX has no dtype for {kind}")
    proto = TensorProto(name=name or None, data_type=kind.onnx, dims=tensor.shape)
    if kind is STRING:
        proto.string_data.extend(_utf8(value, name) for value in np.asarray(tensor).flat)
        return proto
    proto.raw_data = asarray(tensor).tobytes()
    return proto


def _utf8(value: Any, name: str | None) -> bytes:
    try:
        if isinstance(value, bytes):
            value.decode()
            return value
        return str(value).encode()
    except UnicodeError as fault:
        raise FormatError(f"{title(name)}: {value!r} is not Unicode text: {fault}") from None
