"""The header: its length, and JSON with the dtype, shape and byte range of each tensor.

json parses it. Parsed objects take up to thirty times the bytes of their text, and a header may
have 100 MB and be malicious: a large one is first checked by a regular expression.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import prod
from reprlib import Repr
from typing import Any, NamedTuple

from ...dtypes.table import DType, dtype
from ...errors import (
    DTypeError,
    FileFormatError,
    FormatError,
    elements,
    in_file,
    quoted,
    shape_text,
)
from ...shapes.arithmetic import MAX_SIZE
from ...shapes.request import Ints
from ..checkpoint import check_apart, is_text, size_in_bits
from ..writing import New, names_of

LENGTH = 8  # bytes of the header's length, and the alignment of the data

_METADATA = "__metadata__"
_ENTRY_FIELDS = {"dtype", "shape", "data_offsets"}
_MAX_HEADER = 100_000_000  # bytes; the reference's limit
_UNCHECKED_BYTES = 1 << 16  # bytes of a header that is parsed without that check


def _pattern(text: str) -> re.Pattern[bytes]:
    """A pattern over JSON in which each blank stands for optional white space."""
    for name, meaning in (
        ("METADATA", rf'"{_METADATA}" : (?:null|\{{ (?:STRING : STRING ,? )*+\}})'),
        ("ENTRY", r'\{(?: "(?:dtype" : STRING|(?:shape|data_offsets)" : SIZES) ,?){3} \}'),
        ("SIZES", r"\[ (?:INT(?: , INT){0,99})? \]"),
        ("INT", r"[0-9]{1,18}+"),
        ("STRING", r'"(?:[^"\\]++|\\.)*+"'),
        (" ", r"[ \t\n\r]*+"),
    ):
        text = text.replace(name, meaning)
    return re.compile(text.encode(), re.DOTALL)


# The rest between strings and numbers; json checks the punctuation.
_OUTLINE = _pattern(r"\{ (?:(?:METADATA|STRING : ENTRY) ,? )*+\} ")

_short = Repr()
_short.maxstring = _short.maxother = 60
_quoted_value = _short.repr  # of any JSON value, shortened


class TensorEntry(NamedTuple):
    """One tensor of the header; offsets in bytes from the end of the header."""

    dtype: DType
    shape: Ints
    begin: int
    end: int


class _NotASize(NamedTuple):
    """A JSON number that cannot be a size: negative, fractional, beyond int64, NaN."""

    text: str

    def __repr__(self) -> str:
        return self.text


def _integer(token: str) -> int | _NotASize:
    # The digits are counted first: int() of a long token takes quadratic time or raises.
    if len(token) > 19 or token.startswith("-") or int(token) > MAX_SIZE:
        return _NotASize(token)
    return int(token)


_NUMBERS = {"parse_int": _integer, "parse_float": _NotASize, "parse_constant": _NotASize}


def data_start(length: bytearray, size: int) -> int:
    """The byte where the header of a file of `size` bytes ends and the data begin."""
    announced = int.from_bytes(length, "little")
    reason = f"its header length is {announced} bytes"
    if announced > _MAX_HEADER:
        raise FormatError(f"{reason}; the format allows {_MAX_HEADER}")
    if announced > size - LENGTH:
        raise FormatError(f"{reason}, but only {size - LENGTH} follow")
    return LENGTH + announced


def decode(raw: bytearray) -> tuple[dict[str, str] | None, dict[str, TensorEntry]]:
    """The metadata and the entries, each entry checked."""
    if not raw.startswith(b"{"):
        raise FormatError("its header does not begin with '{'")
    numbers: dict[str, Any] = _NUMBERS
    if len(raw) > _UNCHECKED_BYTES:
        if _OUTLINE.fullmatch(raw) is None:
            reason = f"its header of {len(raw)} bytes does not list tensors"
            raise FormatError(f"{reason}, or is nested too deeply")
        numbers = {}  # all are sizes
    shapes = dict[Ints, Ints]()

    def compact(pairs: list[tuple[str, Any]]) -> TensorEntry | tuple[tuple[str, Any], ...]:
        """A valid entry, as soon as it is parsed; other values are kept for errors."""
        fields = dict(pairs)
        if len(pairs) == len(fields) and fields.keys() == _ENTRY_FIELDS:
            with suppress(FormatError):
                entry = _entry(fields)
                return entry._replace(shape=shapes.setdefault(entry.shape, entry.shape))
        return tuple(pairs)

    pairs = parsed(raw, "its header", object_pairs_hook=compact, **numbers)
    if isinstance(pairs, TensorEntry):
        raise FormatError("its header is a tensor's entry without a name")
    entries = json_object(pairs, "its header")
    metadata = _metadata_value(entries.pop(_METADATA, None))
    for name, value in entries.items():
        _check_text(name)
        if not isinstance(value, TensorEntry):
            with in_file(None, name):
                entries[name] = _entry(json_object(value, "its entry"))
    return metadata, entries


def parsed(raw: bytes | bytearray, what: str, **hooks: Any) -> Any:
    """Parse a JSON value. Raises FormatError, which names it as `what`."""
    try:
        return json.loads(raw.decode(), **hooks)
    except UnicodeDecodeError as fault:
        raise FormatError(f"{what} is not UTF-8 (byte {fault.start})") from None
    except ValueError as fault:
        raise FormatError(f"{what} is not JSON: {fault}") from None
    except RecursionError:
        raise FormatError(f"{what} is not JSON: nested too deeply") from None


def json_object(value: Any, what: str) -> dict[str, Any]:
    """A JSON object, parsed as a tuple of pairs with different keys."""
    if type(value) is not tuple:
        raise FormatError(f"{what} is not a JSON object but {_quoted_value(value)}")
    found = dict[str, Any]()
    for key, item in value:
        if key in found:
            raise FormatError(f"{quoted(key)} occurs twice in {what}")
        found[key] = item
    return found


def _check_text(word: str) -> None:
    """FormatError for the lone surrogates that JSON's \\u allows."""
    if not is_text(word):
        raise FormatError(f"its header holds {quoted(word)}, which is not Unicode text")


def _metadata_value(value: Any) -> dict[str, str] | None:
    """Metadata as a parsed JSON value; null means that there are none."""
    if value is None:
        return None
    found = json_object(value, _METADATA)
    for key, item in found.items():
        if not isinstance(item, str):
            reason = f"{quoted(key)} in {_METADATA} must be text, not {_quoted_value(item)}"
            raise FormatError(reason)
        _check_text(key)
        _check_text(item)
    return found


def _entry(fields: Mapping[str, Any]) -> TensorEntry:
    """One tensor's entry, from the parsed JSON values."""
    if fields.keys() != _ENTRY_FIELDS:
        missing = sorted(_ENTRY_FIELDS - fields.keys())
        odd = "lacks" if missing else "has"
        field = quoted(missing[0] if missing else min(fields.keys() - _ENTRY_FIELDS))
        raise FormatError(f"its entry {odd} {field}; it holds dtype, shape and data_offsets")
    shape = _sizes(fields["shape"], "shape")
    try:
        kind = dtype(fields["dtype"], vocabulary="safetensors")
    except DTypeError:
        raise FormatError(f"its dtype {_quoted_value(fields['dtype'])} is unknown") from None
    need = _nbytes(kind, shape)
    offsets = _sizes(fields["data_offsets"], "data_offsets")
    if len(offsets) != 2 or offsets[0] > offsets[1]:
        reason = f"its data_offsets {_quoted_value(list(offsets))} are not a pair [begin, end]"
        raise FormatError(reason)
    begin, end = offsets
    if end - begin != need:
        raise FormatError(
            f"{elements(prod(shape))} of {kind} in shape {shape_text(shape)} are {need} bytes, "
            f"but its data_offsets [{begin}, {end}] hold {end - begin}",
        )
    return TensorEntry(kind, shape, begin, end)


def _sizes(value: Any, what: str) -> Ints:
    """A JSON array of sizes: ints of int64 that are not negative."""
    if not isinstance(value, list):
        raise FormatError(f"its {what} is not a JSON array but {_quoted_value(value)}")
    for i, item in enumerate(value):
        if type(item) is not int:
            raise FormatError(f"its {what} holds {_quoted_value(item)} at {i}, which is not a size")
    return tuple(value)


def _nbytes(kind: DType, shape: Sequence[int]) -> int:
    """Bytes of the packed elements: whole ones, within what int64 counts in bits."""
    bits = size_in_bits(shape, kind.bits)
    if bits % 8:
        count = elements(prod(shape))
        raise FormatError(f"{count} of {kind} are {bits} bits: safetensors holds whole bytes only")
    return bits // 8


def check_cover(entries: dict[str, TensorEntry], size: int) -> None:
    """Check that tensors cover each of the `size` bytes of the data section once."""
    for name, entry in entries.items():
        if entry.end > size:
            reason = f"its data end at byte {entry.end}, but the file has {size} bytes of data"
            raise FileFormatError(None, name, reason)
    check_apart(((name, e.begin, e.end) for name, e in entries.items()), gaps=False)
    end = max((entry.end for entry in entries.values()), default=0)
    if end < size:
        raise FormatError(f"{size - end} bytes at its end belong to no tensor")


def _fits(name: str) -> bool:
    return name != _METADATA and is_text(name)


def encode(tensors: Sequence[New], metadata: Mapping[str, str] | None) -> bytes:
    """The header of tensors in this order, with its length before it.

    It is padded with spaces to a multiple of eight bytes.
    """
    members = dict[str, Any]()
    if metadata is not None:
        for word in (*metadata.keys(), *metadata.values()):
            if not is_text(word):
                raise FormatError(f"metadata must be text, not {_quoted_value(word)}")
        members[_METADATA] = dict(metadata)
    at = 0
    names_of(tensors, _fits, "cannot be a name in safetensors")
    for name, kind, shape, *_ in tensors:
        with in_file(None, name):
            if kind.safetensors is None:
                raise FormatError(f"safetensors has no dtype for {kind}; save it as .npz")
            offsets = [at, at := at + _nbytes(kind, shape)]
        members[name] = {"dtype": kind.safetensors, "shape": shape, "data_offsets": offsets}
    raw = json.dumps(members, ensure_ascii=False, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % LENGTH)
    if len(raw) > _MAX_HEADER:
        reason = f"its header would have {len(raw)} bytes; the format allows {_MAX_HEADER}"
        raise FormatError(reason)
    return len(raw).to_bytes(LENGTH, "little") + raw
