"""The header as a whole: its length, its encoding, and the cover of the data by its entries."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from ...dtypes.table import DType
from ...errors import FileFormatError, quoted
from ..checkpoint import is_text
from .entry import METADATA, Entry, nbytes, quoted_value

__all__ = ["LENGTH", "check_cover", "data_start", "encode"]

LENGTH = 8  # bytes of the header's length, and the alignment of the data

_MAX_HEADER = 100_000_000  # bytes; the reference's limit


def data_start(path: str, length: bytearray, size: int) -> int:
    """Where the header of a file of `size` bytes ends and the data begin."""
    announced = int.from_bytes(length, "little")
    reason = f"its header is said to have {announced} bytes"
    if announced > _MAX_HEADER:
        raise FileFormatError(path, None, f"{reason}; the format allows {_MAX_HEADER}")
    if announced > size - LENGTH:
        raise FileFormatError(path, None, f"{reason}, but only {size - LENGTH} follow")
    return LENGTH + announced


def check_cover(path: str, entries: dict[str, Entry], size: int) -> None:
    """The data section, `size` bytes, is covered from end to end, each byte once."""
    at = 0
    before = ""
    for name, entry in sorted(entries.items(), key=lambda item: item[1][2:]):
        if entry.end > size:
            reason = f"its data end at byte {entry.end}, but the file has {size} bytes of data"
            raise FileFormatError(path, name, reason)
        if entry.begin < at:
            reason = f"its data overlap those of tensor {quoted(before)}"
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
    metadata: Mapping[str, str] | None,
) -> bytes:
    """The header of tensors (name, dtype, shape) in this order, with its length before it.

    It is padded with spaces to whole eight bytes.
    """
    members, names = [], set()
    if metadata is not None:
        for word in (*metadata.keys(), *metadata.values()):
            if not is_text(word):
                reason = f"metadata must be text, not {quoted_value(word)}"
                raise FileFormatError(path, None, reason)
        members.append(f'"{METADATA}":{_json(dict(metadata))}')
    at = 0
    for name, kind, shape in tensors:
        if name == METADATA or name in names or not is_text(name):
            fault = "stands twice" if name in names else "cannot be a name in safetensors"
            raise FileFormatError(path, name, fault)
        if kind.safetensors is None:
            raise FileFormatError(path, name, f"safetensors has no dtype for {kind}")
        end = at + nbytes(path, name, kind, shape)
        sizes = ",".join(map(str, shape))
        members.append(
            f'{_json(name)}:{{"dtype":"{kind.safetensors}","shape":[{sizes}],'
            f'"data_offsets":[{at},{end}]}}'
        )
        names.add(name)
        at = end
    raw = ("{" + ",".join(members) + "}").encode()
    raw += b" " * (-len(raw) % LENGTH)
    if len(raw) > _MAX_HEADER:
        reason = f"its header would have {len(raw)} bytes; the format allows {_MAX_HEADER}"
        raise FileFormatError(path, None, reason)
    return len(raw).to_bytes(LENGTH, "little") + raw


_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
