"""The members of the header's JSON object, in time and memory that are in proportion to them.

A header may have 100 MB and come from anyone. It is read entry by entry with
regular expressions that match what the format allows and nothing else. The JSON
parser, whose objects take up to forty times the bytes of their text, sees only
what the expressions do not match, a bounded piece at a time.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from itertools import chain
from json import JSONDecodeError
from typing import Any, NamedTuple

from ...dtypes.table import DType
from ...errors import FileFormatError, quoted
from ...shapes.arithmetic import MAX_SIZE
from ..checkpoint import MAX_RANK, is_text
from .entry import (
    METADATA,
    Entry,
    entry,
    json_object,
    placed,
    quoted_value,
    sized,
    twice,
)

__all__ = ["decode"]

_WINDOWS = (256, 4096, 65536)  # bytes of an unusual member's value that are tried in turn


def _pattern(text: str) -> re.Pattern[bytes]:
    """A pattern over JSON in which each blank stands for optional white space.

    `STRING` is the inside of a JSON string, `INT` an integer from 0 to 10^18,
    `NEXT` a comma with another member behind it, or the end of the object.
    """
    for name, meaning in (
        ("NEXT", r'(?:,(?= ")|(?=\}))'),
        ("STRING", r'(?:[^"\\\x00-\x1f]++|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*+'),
        ("INT", r"(?:0|[1-9][0-9]{0,17}+)"),
        (" ", r"[ \t\n\r]*+"),
    ):
        text = text.replace(name, meaning)
    return re.compile(text.encode())


_SIZES = rf"\[ (?:INT(?: , INT){{0,{MAX_RANK - 1}}})? \]"
_ENTRY = _pattern(
    r'\{(?: (?:"dtype" : "([A-Z0-9_]*+)"'
    rf'|"shape" : ({_SIZES})'
    r'|"data_offsets" : \[ (INT) , (INT) \]) NEXT){3}\} NEXT'
)
_NAME = _pattern(' "(STRING)" : ')
_METADATA = _pattern(r'\{ (?:"STRING" : "STRING" NEXT )*+\}')
_PAIRS = _pattern(' (?:"STRING" : "STRING" NEXT ){1,4096}+')
_NEXT = _pattern(" NEXT")
_SPACE = _pattern(" ")


class _NotASize(NamedTuple):
    """A JSON number that cannot be a size: negative, fractional, beyond int64, NaN."""

    text: str

    def __repr__(self) -> str:
        return self.text


def decode(path: str, raw: bytearray) -> tuple[dict[str, str] | None, dict[str, Entry]]:
    """The metadata and the entries, each checked by itself."""
    if not raw.startswith(b"{"):
        raise FileFormatError(path, None, "its header does not begin with '{'")
    entries: dict[str, Entry] = {}
    metadata: list[dict[str, str] | None] = []
    for name, value in _members(path, raw):
        if name in entries or (name == METADATA and metadata):
            raise twice(path, None, name, "its header")
        if isinstance(value, Entry):
            entries[name] = value
        else:
            metadata.append(value)
    return metadata[0] if metadata else None, entries


def _members(path: str, raw: bytearray) -> Iterator[tuple[str, Entry | dict[str, str] | None]]:
    """Name and value of each member of the header in order, the metadata included."""
    known: dict[tuple[bytes, bytes], tuple[DType, tuple[int, ...], int]] = {}
    at = _after(_SPACE, raw, 1)
    while raw[at : at + 1] != b"}":
        quoted_name = _NAME.match(raw, at)
        if quoted_name is None:
            raise _not_json(path, "a name in quotes and a colon are expected", at)
        name, at = _text(path, quoted_name, 1), quoted_name.end()
        found = None if name == METADATA else _ENTRY.match(raw, at)
        if found is None or None in found.groups():
            value, at = _unusual(path, name, raw, at)
            yield name, value
            continue
        word, shape, begin, end = found.groups()
        facts = known.get((word, shape))
        if facts is None:
            facts = known[word, shape] = sized(path, name, word.decode(), json.loads(shape))
        yield name, placed(path, name, facts, int(begin), int(end))
        at = found.end()
    at = _after(_SPACE, raw, at + 1)
    if at < len(raw):
        raise _not_json(path, "more follows the object", at)


def _unusual(
    path: str, name: str, raw: bytearray, at: int
) -> tuple[Entry | dict[str, str] | None, int]:
    """The value at byte `at`, metadata or an entry that JSON can write so, and where it ends."""
    strings = _METADATA.match(raw, at) if name == METADATA else None
    value: Entry | dict[str, str] | None
    if strings is not None:
        value, at = _strings(path, raw, *strings.span()), strings.end()
    else:
        parsed, at = _parsed(path, name, raw, at)
        read = _metadata_value if name == METADATA else entry
        value = read(path, name, parsed)
    following = _NEXT.match(raw, at)
    if following is None:
        raise _not_json(path, "a comma and another name, or '}', are expected", at)
    return value, following.end()


def _after(pattern: re.Pattern[bytes], raw: bytearray, at: int) -> int:
    """Where the match of a pattern ends that matches everywhere."""
    found = pattern.match(raw, at)
    assert found is not None
    return found.end()


def _text(path: str, found: re.Match[bytes], group: int) -> str:
    """The text of a JSON string, of which a group of a match is the inside."""
    text = _decoded(path, found, group)
    return _unicode(path, json.loads(f'"{text}"')) if "\\" in text else text


def _decoded(path: str, found: re.Match[bytes], group: int) -> str:
    try:
        return found[group].decode()
    except UnicodeDecodeError as fault:
        raise _not_utf8(path, found.start(group) + fault.start) from None


def _unicode(path: str, text: str) -> str:
    """The text, if it is without the lone surrogates that JSON's \\u allows."""
    if not is_text(text):
        reason = f"its header holds {quoted(text)}, which is not Unicode text"
        raise FileFormatError(path, None, reason)
    return text


def _strings(path: str, raw: bytearray, begin: int, end: int) -> dict[str, str]:
    """The object from byte `begin` to `end`, all of whose values are strings."""
    found: dict[str, str] = {}
    for some in _PAIRS.finditer(raw, begin + 1, end):
        text = _decoded(path, some, 0)
        pairs = json.loads("{" + text.rstrip(", \t\n\r") + "}", object_pairs_hook=tuple)
        if "\\" in text:
            for word in chain.from_iterable(pairs):
                _unicode(path, word)
        more = json_object(path, None, pairs, METADATA)
        if not found.keys().isdisjoint(more):
            raise twice(path, None, min(found.keys() & more.keys()), METADATA)
        found.update(more)
    return found


def _metadata_value(path: str, name: str, value: Any) -> dict[str, str] | None:
    """Metadata as a parsed JSON value; null means that there are none."""
    if value is None:
        return None
    found = json_object(path, None, value, name)
    for key, item in found.items():
        if not is_text(item):
            reason = f"{quoted(key)} in {name} must be text, not {quoted_value(item)}"
            raise FileFormatError(path, None, reason)
    return found


def _parsed(path: str, name: str, raw: bytearray, at: int) -> tuple[Any, int]:
    """The JSON value at byte `at`, and where it ends; objects are tuples of pairs."""
    for size in _WINDOWS:
        whole = at + size >= len(raw)
        try:
            text, _ = codecs.utf_8_decode(raw[at : at + size], "strict", whole)
            value, end = _PARSER.raw_decode(text)
            return value, at + len(text[:end].encode())
        except UnicodeDecodeError as fault:
            raise _not_utf8(path, at + fault.start) from None
        except JSONDecodeError as fault:
            if whole:
                byte = at + len(text[: fault.pos].encode())
                raise _not_json(path, fault.msg, byte) from None
        except RecursionError:
            raise FileFormatError(path, name, "its entry is nested too deeply") from None
    raise FileFormatError(path, name, f"its entry does not end within {size} bytes")


def _integer(token: str) -> int | _NotASize:
    # The digits are counted first: int() of a long token takes quadratic time or raises.
    if len(token) > len(str(MAX_SIZE)) or token.startswith("-") or int(token) > MAX_SIZE:
        return _NotASize(token)
    return int(token)


# Objects stay tuples of pairs, so that a key that stands twice is seen.
_PARSER = json.JSONDecoder(
    object_pairs_hook=tuple, parse_int=_integer, parse_float=_NotASize, parse_constant=_NotASize
)


def _not_json(path: str, fault: str, byte: int) -> FileFormatError:
    return FileFormatError(path, None, f"its header is not JSON: {fault} (byte {byte})")


def _not_utf8(path: str, byte: int) -> FileFormatError:
    return FileFormatError(path, None, f"its header is not UTF-8 (byte {byte})")
