"""The header: JSON <-> entries, each checked by itself and all of them against the data."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterable, Sequence
from math import prod
from typing import Any, NamedTuple

from ...dtypes import DType, dtype
from ...errors import DTypeError, FileFormatError, elements, shape_text
from ...request import MAX_SIZE

LENGTH = 8  # bytes of the header's length, and the alignment of the data
MAX_RANK = 64  # NumPy's limit

_METADATA = "__metadata__"
_FIELDS = {"dtype", "shape", "data_offsets"}
_MAX_HEADER = 100_000_000  # bytes; the reference's limit


class Entry(NamedTuple):
    """One tensor of the header; offsets in bytes from the end of the header."""

    dtype: DType
    shape: tuple[int, ...]
    begin: int
    end: int


class _Unfit(NamedTuple):
    """A JSON number that is no size: negative, fractional, beyond int64, NaN."""

    text: str

    def __repr__(self) -> str:
        return self.text


def data_start(path: str, length: bytes, size: int) -> int:
    """Where the header of a file of `size` bytes ends and the data begin."""
    announced = int.from_bytes(length, "little")
    if announced > _MAX_HEADER:
        raise FileFormatError(
            path,
            None,
            f"its header is said to have {announced} bytes; the format allows {_MAX_HEADER}",
        )
    if announced > size - LENGTH:
        raise FileFormatError(
            path,
            None,
            f"its header is said to have {announced} bytes, but only {size - LENGTH} follow",
        )
    return LENGTH + announced


def decode(path: str, raw: bytes) -> tuple[dict[str, str] | None, dict[str, Entry]]:
    """The metadata and the entries, each checked by itself."""
    if not raw.startswith(b"{"):
        raise FileFormatError(path, None, "its header does not begin with '{'")
    try:
        # Objects stay tuples of pairs, so that a key that stands twice is seen.
        parsed = json.loads(
            raw.decode(),
            object_pairs_hook=tuple,
            parse_int=_integer,
            parse_float=_Unfit,
            parse_constant=_Unfit,
        )
    except UnicodeDecodeError as fault:
        raise FileFormatError(path, None, f"its header is not UTF-8 (byte {fault.start})") from None
    except json.JSONDecodeError as fault:
        reason = f"its header is not JSON: {fault.msg} (character {fault.pos})"
        raise FileFormatError(path, None, reason) from None
    except RecursionError:
        raise FileFormatError(path, None, "its header is nested too deeply") from None
    header = _object(path, None, parsed, "its header")
    metadata = _metadata(path, header.pop(_METADATA, None))
    return metadata, {name: _entry(path, name, value) for name, value in header.items()}


def _integer(token: str) -> int | _Unfit:
    # The digits are counted first: int() of a long token takes quadratic time or raises.
    if len(token) > len(str(MAX_SIZE)) or token.startswith("-") or int(token) > MAX_SIZE:
        return _Unfit(token)
    return int(token)


def _object(path: str, tensor: str | None, value: Any, what: str) -> dict[str, Any]:
    """A JSON object whose keys differ and are text."""
    if type(value) is not tuple:
        raise FileFormatError(path, tensor, f"{what} is no JSON object but {reprlib.repr(value)}")
    found: dict[str, Any] = {}
    for key, item in value:
        if key in found:
            raise FileFormatError(path, tensor, f"{key!r} stands twice in {what}")
        if not _is_text(key):
            raise FileFormatError(path, tensor, f"{key!r} in {what} is no Unicode text")
        found[key] = item
    return found


def _is_text(value: object) -> bool:
    """A str that UTF-8 can write: without the lone surrogates that JSON's \\u allows."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _metadata(path: str, value: Any) -> dict[str, str] | None:
    if value is None:
        return None
    found = _object(path, None, value, _METADATA)
    for key, item in found.items():
        if not _is_text(item):
            raise FileFormatError(
                path, None, f"{key!r} in {_METADATA} must be text, not {reprlib.repr(item)}"
            )
    return found


def _entry(path: str, name: str, value: Any) -> Entry:
    """One tensor's entry; its bytes agree with its shape and dtype."""
    fields = _object(path, name, value, "its entry")
    if fields.keys() != _FIELDS:
        missing = sorted(_FIELDS - fields.keys())
        odd = f"lacks {missing[0]!r}" if missing else f"has {min(fields.keys() - _FIELDS)!r}"
        raise FileFormatError(
            path, name, f"its entry {odd}; it holds dtype, shape and data_offsets"
        )
    try:
        kind = dtype(fields["dtype"], vocabulary="safetensors")
    except DTypeError:
        reason = f"its dtype {reprlib.repr(fields['dtype'])} is unknown"
        raise FileFormatError(path, name, reason) from None
    shape = _sizes(path, name, fields["shape"], "shape")
    offsets = _sizes(path, name, fields["data_offsets"], "data_offsets")
    if len(offsets) != 2 or offsets[0] > offsets[1]:
        reason = f"its data_offsets {list(offsets)[:3]} are no pair [begin, end]"
        raise FileFormatError(path, name, reason)
    need = nbytes(path, name, kind, shape)
    begin, end = offsets
    if end - begin != need:
        reason = (
            f"{elements(prod(shape))} of {kind} in shape {shape_text(shape)} are {need} bytes, "
            f"but its data_offsets [{begin}, {end}] hold {end - begin}"
        )
        raise FileFormatError(path, name, reason)
    return Entry(kind, shape, begin, end)


def _sizes(path: str, name: str, value: Any, what: str) -> tuple[int, ...]:
    """A JSON array of sizes: ints of int64 that are not negative."""
    if not isinstance(value, list):
        raise FileFormatError(path, name, f"its {what} is no JSON array but {reprlib.repr(value)}")
    for i, item in enumerate(value):
        if type(item) is not int:
            reason = f"its {what} holds {reprlib.repr(item)} at {i}, which is no size"
            raise FileFormatError(path, name, reason)
    return tuple(value)


def nbytes(path: str, name: str, kind: DType, shape: Sequence[int]) -> int:
    """Bytes of the packed elements: whole ones, within what int64 counts in bits."""
    if len(shape) > MAX_RANK:
        raise FileFormatError(path, name, f"its shape has {len(shape)} dims, more than {MAX_RANK}")
    if prod(size for size in shape if size > 0) * kind.bits > MAX_SIZE:
        reason = f"the non-zero sizes of its shape {shape_text(shape)} overflow int64 (in bits)"
        raise FileFormatError(path, name, reason)
    bits = prod(shape) * kind.bits
    if bits % 8:
        reason = (
            f"{elements(prod(shape))} of {kind} are {bits} bits: safetensors holds whole bytes only"
        )
        raise FileFormatError(path, name, reason)
    return bits // 8


def check_cover(path: str, entries: dict[str, Entry], size: int) -> None:
    """The data section, `size` bytes, is covered from end to end, each byte once."""
    at = 0
    before: str | None = None
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.end > size:
            reason = f"its data end at byte {entry.end}, but the file has {size} bytes of data"
            raise FileFormatError(path, name, reason)
        if entry.begin < at:
            reason = f"its data overlap those of tensor {before!r}"
            raise FileFormatError(path, name, reason)
        if entry.begin > at:
            reason = f"{entry.begin - at} bytes before its data belong to no tensor"
            raise FileFormatError(path, name, reason)
        at, before = entry.end, name
    if at < size:
        raise FileFormatError(path, None, f"{size - at} bytes at its end belong to no tensor")


def encode(
    path: str,
    tensors: Iterable[tuple[str, DType, tuple[int, ...]]],
    metadata: dict[str, str] | None,
) -> bytes:
    """The header of tensors (name, dtype, shape) in this order, with its length before it.

    It is padded with spaces to whole eight bytes.
    """
    header: dict[str, Any] = {}
    if metadata is not None:
        for word in (*metadata.keys(), *metadata.values()):
            if not _is_text(word):
                raise FileFormatError(path, None, f"metadata must be text, not {word!r}")
        header[_METADATA] = metadata
    at = 0
    for name, kind, shape in tensors:
        if name == _METADATA or name in header or not _is_text(name):
            fault = "stands twice" if name in header else "is no name that safetensors can hold"
            raise FileFormatError(path, name, fault)
        if kind.safetensors is None:
            raise FileFormatError(path, name, f"safetensors has no dtype for {kind}")
        end = at + nbytes(path, name, kind, shape)
        header[name] = {"dtype": kind.safetensors, "shape": shape, "data_offsets": [at, end]}
        at = end
    raw = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % LENGTH)
    if len(raw) > _MAX_HEADER:
        raise FileFormatError(
            path, None, f"its header would have {len(raw)} bytes; the format allows {_MAX_HEADER}"
        )
    return len(raw).to_bytes(LENGTH, "little") + raw
