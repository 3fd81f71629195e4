"""One tensor's entry in the header, and what is checked of it by itself."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from reprlib import Repr
from typing import Any, NamedTuple

from ...dtypes.table import DType, dtype
from ...errors import DTypeError, FileFormatError, elements, quoted, shape_text
from ..checkpoint import size_in_bits

__all__ = [
    "METADATA",
    "Entry",
    "entry",
    "json_object",
    "nbytes",
    "placed",
    "quoted_value",
    "sized",
    "twice",
]

METADATA = "__metadata__"

_FIELDS = {"dtype", "shape", "data_offsets"}

_short = Repr()
_short.maxstring = _short.maxother = 60
quoted_value = _short.repr  # of any JSON value, shortened


class Entry(NamedTuple):
    """One tensor of the header; offsets in bytes from the end of the header."""

    dtype: DType
    shape: tuple[int, ...]
    begin: int
    end: int


def entry(path: str, name: str, value: Any) -> Entry:
    """One tensor's entry, from the parsed JSON value."""
    fields = json_object(path, name, value, "its entry")
    if fields.keys() != _FIELDS:
        missing = sorted(_FIELDS - fields.keys())
        odd = "lacks" if missing else "has"
        field = quoted(missing[0] if missing else min(fields.keys() - _FIELDS))
        reason = f"its entry {odd} {field}; it holds dtype, shape and data_offsets"
        raise FileFormatError(path, name, reason)
    shape = _sizes(path, name, fields["shape"], "shape")
    facts = sized(path, name, fields["dtype"], shape)
    offsets = _sizes(path, name, fields["data_offsets"], "data_offsets")
    if len(offsets) != 2:
        reason = f"its data_offsets {quoted_value(list(offsets))} are not a pair [begin, end]"
        raise FileFormatError(path, name, reason)
    return placed(path, name, facts, *offsets)


def _sizes(path: str, name: str, value: Any, what: str) -> tuple[int, ...]:
    """A JSON array of sizes: ints of int64 that are not negative."""
    if not isinstance(value, list):
        reason = f"its {what} is not a JSON array but {quoted_value(value)}"
        raise FileFormatError(path, name, reason)
    for i, item in enumerate(value):
        if type(item) is not int:
            reason = f"its {what} holds {quoted_value(item)} at {i}, which is not a size"
            raise FileFormatError(path, name, reason)
    return tuple(value)


def sized(
    path: str, name: str, word: object, shape: Sequence[int]
) -> tuple[DType, tuple[int, ...], int]:
    """The dtype, the shape, and the bytes that they need."""
    try:
        kind = dtype(word, vocabulary="safetensors")
    except DTypeError:
        reason = f"its dtype {quoted_value(word)} is unknown"
        raise FileFormatError(path, name, reason) from None
    return kind, tuple(shape), nbytes(path, name, kind, shape)


def placed(
    path: str, name: str, facts: tuple[DType, tuple[int, ...], int], begin: int, end: int
) -> Entry:
    """The entry of data at these offsets, which hold exactly the bytes that are needed."""
    kind, shape, need = facts
    if end - begin == need:
        return Entry(kind, shape, begin, end)
    if begin > end:
        reason = f"its data_offsets [{begin}, {end}] are not a pair [begin, end]"
        raise FileFormatError(path, name, reason)
    raise FileFormatError(
        path,
        name,
        f"{elements(prod(shape))} of {kind} in shape {shape_text(shape)} are {need} bytes, "
        f"but its data_offsets [{begin}, {end}] hold {end - begin}",
    )


def json_object(path: str, tensor: str | None, value: Any, what: str) -> dict[str, Any]:
    """A JSON object whose keys differ."""
    if type(value) is not tuple:
        reason = f"{what} is not a JSON object but {quoted_value(value)}"
        raise FileFormatError(path, tensor, reason)
    found: dict[str, Any] = {}
    for key, item in value:
        if key in found:
            raise twice(path, tensor, key, what)
        found[key] = item
    return found


def twice(path: str, tensor: str | None, key: str, what: str) -> FileFormatError:
    """The error about a key that an object has two times."""
    return FileFormatError(path, tensor, f"{quoted(key)} stands twice in {what}")


def nbytes(path: str, name: str, kind: DType, shape: Sequence[int]) -> int:
    """Bytes of the packed elements: whole ones, within what int64 counts in bits."""
    bits = size_in_bits(path, name, shape, kind.bits)
    if bits % 8:
        count = elements(prod(shape))
        reason = f"{count} of {kind} are {bits} bits: safetensors holds whole bytes only"
        raise FileFormatError(path, name, reason)
    return bits // 8
