"""Protocol buffers on the wire (protobuf.dev/programming-guides/encoding), without raw data.

A model is read as a skeleton: the same message, but with a Place of 16 bytes instead of each
tensor's `raw_data`, which refers to the data. protobuf parses and writes skeletons, which are
small, while raw data stay in their files: a model may be larger than memory.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

from onnx import ModelProto, TensorProto

from ...errors import FileFormatError
from ..open_files import File, stream

MAX_MESSAGE = 2**31 - 1  # bytes that protobuf reads

_MAX_NESTING = 100  # of messages; protobuf's own limit
_VARINT, _LENGTH_DELIMITED = 0, 2
_FIXED = {1: 8, 5: 4}  # bytes of the wire types of one width
_RAW = TensorProto.RAW_DATA_FIELD_NUMBER
_PLACE = struct.Struct("<qq")

Take = Callable[[int, int], bytes]  # the bytes of a message, from and how many


class Place(NamedTuple):
    """Where raw data are: from byte `begin` of the model's file; or, if negative, in new tensors.

    >>> Place.of(Place(5, 12).encoded)
    Place(begin=5, nbytes=12)
    """

    begin: int
    nbytes: int

    @staticmethod
    def of(raw: bytes) -> Place:
        """The Place that `encoded` returned."""
        return Place(*_PLACE.unpack(raw))

    @property
    def encoded(self) -> bytes:
        """The place as the raw data of a skeleton."""
        return _PLACE.pack(*self)


# Messages that hold no tensors; others are walked.
_WITHOUT_TENSORS = {
    "TypeProto", "ValueInfoProto", "StringStringEntryProto", "OperatorSetIdProto",
    "TensorAnnotation", "NodeDeviceConfigurationProto",
}  # fmt: skip


@cache
def _messages(kind: Any) -> dict[int, Any]:
    """The fields of a message that may hold tensors, and the messages that these are."""
    found = {field.number: field.message_type for field in kind.fields if field.message_type}
    return {n: each for n, each in found.items() if each.name not in _WITHOUT_TENSORS}


class _Field(NamedTuple):
    """A field of a message: its number, its wire type, and the position of it and its value."""

    number: int
    wire: int
    begin: int
    value: int
    end: int


class _Fields:
    """A reader of messages, whose bytes `take` returns; `fault` makes an error."""

    def __init__(self, take: Take, fault: Callable[[str], Exception]) -> None:
        self.take, self.fault = take, fault

    def of(self, begin: int, end: int, depth: int) -> Iterator[_Field]:
        """The fields of the message in these bytes."""
        if depth > _MAX_NESTING:
            raise self.fault(f"messages are nested more than {_MAX_NESTING} times")
        at = begin
        while at < end:
            key, value = self._varint(at, end)
            number, wire = key >> 3, key & 7
            if wire == _VARINT:
                _, stop = self._varint(value, end)
            elif wire == _LENGTH_DELIMITED:
                size, value = self._varint(value, end)
                stop = value + size
            elif wire in _FIXED:
                stop = value + _FIXED[wire]
            else:
                raise self.fault(f"the field at byte {at} has the wire type {wire}")
            if stop > end or number == 0:
                raise self.fault(f"the field at byte {at} does not end within its message")
            yield _Field(number, wire, at, value, stop)
            at = stop

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        """A varint (7 bits per byte), and the byte after it."""
        found = 0
        for i, byte in enumerate(self.take(at, min(10, end - at))):
            found |= (byte & 127) << 7 * i
            if byte < 128:
                return found, at + i + 1
        raise self.fault(f"the number at byte {at} does not end")


def _rewritten(
    fields: _Fields, of_raw: Callable[[_Field], tuple[bytes | Place, int]], end: int
) -> tuple[list[bytes | Place], int]:
    """A model of `end` bytes with other raw data and their size, and the size of all."""

    def message(kind: Any, begin: int, end: int, depth: int) -> tuple[list[bytes | Place], int]:
        made, size, inner, last = list[bytes | Place](), 0, _messages(kind), begin
        for field in fields.of(begin, end, depth):
            more: list[bytes | Place]
            if (
                field.wire == _LENGTH_DELIMITED
                and kind is TensorProto.DESCRIPTOR
                and field.number == _RAW
            ):
                raw, nbytes = of_raw(field)
                more = [raw]
            elif field.wire == _LENGTH_DELIMITED and field.number in inner:
                more, nbytes = message(inner[field.number], field.value, field.end, depth + 1)
            else:
                continue
            head = fields.take(last, field.begin - last) + _lengthy(field.number, nbytes)
            made += [head, *more]
            size += len(head) + nbytes
            last = field.end
        made.append(fields.take(last, end - last))
        return made, size + end - last

    return message(ModelProto.DESCRIPTOR, 0, end, 0)


def skeleton(file: File) -> bytes:
    """The message in a file with places for raw data; FileFormatError if it is none."""

    def fault(reason: str) -> FileFormatError:
        return FileFormatError(file.path, None, f"it is not an ONNX model: {reason}")

    def place(field: _Field) -> tuple[bytes, int]:
        return Place(field.value, field.end - field.value).encoded, _PLACE.size

    source = stream(file)

    def take(at: int, count: int) -> bytes:
        source.seek(at)
        return source.read(count)

    made, size = _rewritten(_Fields(take, fault), place, file.size)
    if size > MAX_MESSAGE:
        raise fault(f"beside raw data it has more than {MAX_MESSAGE} bytes")
    return b"".join(part for part in made if isinstance(part, bytes))


def expanded(raw: bytes) -> tuple[list[bytes | Place], int]:
    """The parts of the model that a skeleton represents: bytes and raw data, and the total size."""

    def place(field: _Field) -> tuple[Place, int]:
        found = Place.of(raw[field.value : field.end])
        return found, found.nbytes

    return _rewritten(_Fields(lambda at, n: raw[at : at + n], AssertionError), place, len(raw))


def _lengthy(number: int, size: int) -> bytes:
    """The bytes before the value of a length-delimited field of `size` bytes."""
    return _encoded(number << 3 | _LENGTH_DELIMITED) + _encoded(size)


def _encoded(number: int) -> bytes:
    """A number as the bytes of a varint.

    >>> _encoded(300).hex()
    'ac02'
    """
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    return bytes([*made, number])
