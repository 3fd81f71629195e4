"""Writes tensors to a GGUF file, with new metadata or with that of another file.

`gguf.GGUFWriter` cannot be used: it opens its files by path, and takes each tensor as a whole
ndarray. Here rows are streamed to a file that appears as a whole, or to an upload.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from math import inf
from typing import Any

import numpy as np

from ...errors import DTypeError, FileFormatError, FormatError, in_file, quoted, shape_text
from ..checkpoint import Checkpoint, is_text
from ..writing import New, NewFile, names_of
from .reader import MAGIC, MAX_DIMS, TENSOR_TYPES, VALUES, Header, alignment_of

_VERSION = 3
_MAX_NAME = 64  # bytes of a tensor's name (gguf.md, gguf_tensor_info_t)
_MAX_KEY = 65535  # bytes of a key (gguf.md, gguf_metadata_kv_t)
_MAX_FLOAT32 = float(np.finfo(np.float32).max)
_INTS = (("I", 0, 2**32), ("i", -(2**31), 2**31), ("q", -(2**63), 2**63), ("Q", 0, 2**64))


def placed(
    path: str,
    tensors: Iterable[New],
    metadata: Mapping[str, Any] | None = None,
    source: Checkpoint | None = None,
    types: Mapping[str, str] | None = None,
) -> NewFile:
    """The file with these tensors.

    Quantised tensors are uint8, rows of blocks; `types` has the type of each by name
    (`Q4_0`), or else the `source`, if that is a GGUF file. Without `metadata` those of such a
    source are copied. Values are str, bool, float (stored as float32, if it is not too
    large), int (uint32 if it fits, else int32, int64 or uint64), NumPy scalars (stored as
    they are), and lists of one of these. Raises FileFormatError for dtypes, names, and values that
    GGUF does not have.
    """
    given = list(tensors)
    known = source if source is not None and source.format == "gguf" else None
    kept = {} if known is None else known.metadata or {}
    metadata = kept if metadata is None else metadata
    types_by_name = dict(types or {})
    long = f"cannot be a name in GGUF: text of at most {_MAX_NAME} bytes"
    had = {} if known is None else known.types
    with in_file(path):
        alignment = alignment_of(metadata)
        for other in types_by_name.keys() - names_of(given, _fits, long):
            raise FileFormatError(path, other, "is named by types=, but is not among the tensors")
        for new in given:
            if new.dtype.name == "uint8" and new.name in had:
                types_by_name.setdefault(new.name, had[new.name])
        offsets = [0, *accumulate(-(-new.nbytes // alignment) * alignment for new in given)]
        head = [MAGIC, struct.pack("<IQQ", _VERSION, len(given), len(metadata))]
        head += [
            _pair(key, value, None if known is None or kept.get(key) is not value else known.own)
            for key, value in metadata.items()
        ]
        for new, offset in zip(given, offsets, strict=False):
            with in_file(path, new.name):
                head.append(_info(new, types_by_name.get(new.name), offset))
    first = b"".join(head)
    first += bytes(-len(first) % alignment)
    starts = [len(first) + offset for offset in offsets]
    # The last one includes the padding of the last tensor.
    return NewFile(first, [*zip(given, starts, strict=False)], starts[-1])


def _fits(name: str) -> bool:
    return is_text(name) and len(name.encode()) <= _MAX_NAME


def _info(new: New, type_name: str | None, offset: int) -> bytes:
    """The entry of a tensor in the header; its type is the given one, or else that of its dtype."""
    shape, type_name = list(new.shape), type_name or new.dtype.gguf
    if type_name is None:
        hint = ": types= must name the type of its blocks" if new.dtype.name == "uint8" else ""
        raise FormatError(f"GGUF has no type for {new.dtype}{hint}")
    found = next((row for row in TENSOR_TYPES.values() if row.name == type_name), None)
    if found is None:
        raise FormatError(f"the type {quoted(type_name)} is unknown")
    if found.dtype is not new.dtype:
        raise FormatError(f"{type_name} is stored as {found.dtype}, not {new.dtype}")
    if found.block:
        if not shape or shape[-1] % found.nbytes:
            reason = f"rows of {type_name} are blocks of {found.nbytes} bytes: shape "
            raise FormatError(f"{reason}{shape_text(shape)} is none")
        shape[-1] = shape[-1] // found.nbytes * found.block
    if len(shape) > MAX_DIMS:
        raise FormatError(f"it has {len(shape)} dims, more than {MAX_DIMS}")
    dims = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
    return _text(new.name) + dims + struct.pack("<IQ", found.code, offset)


def _pair(key: str, value: Any, known: Header | None) -> bytes:
    """The bytes of a key and its value: those of the source, or new ones."""
    if known is not None and key in known.pairs:
        begin, end = known.pairs[key]
        return bytes(known.file.bytes(begin, end - begin))
    if not is_text(key) or len(key.encode()) > _MAX_KEY:
        raise FormatError(f"{quoted(repr(key))} cannot be a key of metadata")
    try:
        code, raw = _packed([value])
    except DTypeError:
        reason = f"GGUF has no type for {quoted(repr(value))}, the value of {quoted(key)}"
        raise FormatError(reason) from None
    return _text(key) + struct.pack("<I", VALUES.index(code)) + raw


def _packed(values: Sequence[Any]) -> tuple[str, bytes]:
    """The one type of some values and their bytes; DTypeError if they have none.

    Integers have the first type that holds all of them.
    """
    if all(type(value) is int for value in values):
        low, high = min(values, default=0), max(values, default=0)
        codes = {next((c for c, least, end in _INTS if least <= low and high < end), None)}
    else:
        codes = {_code(value) for value in values}
    code = codes.pop() if len(codes) == 1 else None
    if code not in VALUES or not values:
        raise DTypeError("GGUF has no type for these values")
    if code == "string":
        return code, b"".join(map(_text, values))
    if code == "array":
        return code, b"".join(map(_array, values))
    return code, struct.pack(f"<{len(values)}{code}", *values)


def _array(values: Sequence[Any]) -> bytes:
    code, raw = _packed([*values])
    return struct.pack("<IQ", VALUES.index(code), len(values)) + raw


def _code(value: Any) -> str | None:
    """The type of a value, as in VALUES; None if GGUF has none for it."""
    if is_text(value):
        return "string"
    if isinstance(value, np.ndarray | list | tuple):
        return "array"
    if isinstance(value, bool | np.bool_):
        return "?"
    if isinstance(value, np.generic):
        return str(value.dtype.char.replace("l", "q").replace("L", "Q"))
    if isinstance(value, int):
        return _packed([int(value)])[0]
    if isinstance(value, float):
        return "d" if _MAX_FLOAT32 < abs(value) < inf else "f"
    return None


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw
