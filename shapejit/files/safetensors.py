"""safetensors (huggingface.co/docs/safetensors): eight bytes of header size, JSON, packed data.

`read` checks the whole header before anything of the file is used; `write`
leaves either the whole new file or what stood there before.
"""

from __future__ import annotations

import json
import mmap
import os
import reprlib
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import gcd, prod
from typing import Any, NamedTuple

import numpy as np

from ..dtypes import DType, dtype
from ..errors import DTypeError, FileFormatError, elements, shape_text
from ..request import MAX_SIZE
from ..tensor import Bytes, Tensor

Path = str | os.PathLike[str]

_METADATA = "__metadata__"
_FIELDS = {"dtype", "shape", "data_offsets"}
_MAX_HEADER = 100_000_000  # bytes; the reference's limit
_MAX_RANK = 64  # NumPy's limit
_LENGTH = 8  # bytes of the header's length, and the alignment of the data

# Bytes that are converted and written at a time: enough for both threads, and
# still in the last-level cache when the write reads them.
_PIECE = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """What a file holds: tensors over its memory map, in the order of its header.

    `tensors` are read-only and keep the map alive; `offsets` are their bytes
    [begin, end) counted from the end of the header; `metadata` is None where
    the file has none.
    """

    path: str
    tensors: dict[str, Tensor]
    metadata: dict[str, str] | None
    offsets: dict[str, tuple[int, int]]

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors together."""
        return sum(tensor.nbytes for tensor in self.tensors.values())


class _Entry(NamedTuple):
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


def read(path: Path) -> Checkpoint:
    """The tensors and the metadata of a safetensors file, without copying the data.

    Raises OSError where the file cannot be opened, FileFormatError (with the
    file and the tensor) where it is not exactly what the format says. The file
    must not be overwritten in place while its tensors are in use; `write`
    renames, so that it may replace a file that is being read.
    """
    name = os.fspath(path)
    memory = _mapped(name)
    start = _header_end(name, memory)
    metadata, entries = _header(name, memory[_LENGTH:start].tobytes())
    _check_cover(name, entries, memory.size - start)
    tensors = {
        key: Tensor.frombuffer(memory[start + e.begin : start + e.end], e.dtype, e.shape)
        for key, e in entries.items()
    }
    return Checkpoint(name, tensors, metadata, {k: (e.begin, e.end) for k, e in entries.items()})


def _mapped(path: str) -> Bytes:
    """The file as read-only bytes; the array keeps the map, the map keeps the file."""
    # Before it is opened: a named pipe would block there.
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise FileFormatError(path, None, "it is no regular file")
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < _LENGTH:
            raise FileFormatError(
                path, None, f"it ends after {size} bytes, within the header's length"
            )
        return np.frombuffer(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ), np.uint8)


def _header_end(path: str, memory: Bytes) -> int:
    """Where the header ends and the data begin."""
    size = int.from_bytes(memory[:_LENGTH].tobytes(), "little")
    if size > _MAX_HEADER:
        raise FileFormatError(
            path, None, f"its header is said to have {size} bytes; the format allows {_MAX_HEADER}"
        )
    if size > memory.size - _LENGTH:
        raise FileFormatError(
            path,
            None,
            f"its header is said to have {size} bytes, but only {memory.size - _LENGTH} follow",
        )
    return _LENGTH + size


def _header(path: str, raw: bytes) -> tuple[dict[str, str] | None, dict[str, _Entry]]:
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


def _entry(path: str, name: str, value: Any) -> _Entry:
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
    need = _nbytes(path, name, kind, shape)
    begin, end = offsets
    if end - begin != need:
        reason = (
            f"{elements(prod(shape))} of {kind} in shape {shape_text(shape)} are {need} bytes, "
            f"but its data_offsets [{begin}, {end}] hold {end - begin}"
        )
        raise FileFormatError(path, name, reason)
    return _Entry(kind, shape, begin, end)


def _sizes(path: str, name: str, value: Any, what: str) -> tuple[int, ...]:
    """A JSON array of sizes: ints of int64 that are not negative."""
    if not isinstance(value, list):
        raise FileFormatError(path, name, f"its {what} is no JSON array but {reprlib.repr(value)}")
    for i, item in enumerate(value):
        if type(item) is not int:
            reason = f"its {what} holds {reprlib.repr(item)} at {i}, which is no size"
            raise FileFormatError(path, name, reason)
    return tuple(value)


def _nbytes(path: str, name: str, kind: DType, shape: Sequence[int]) -> int:
    """Bytes of the packed elements: whole ones, within what int64 counts in bits."""
    if len(shape) > _MAX_RANK:
        raise FileFormatError(path, name, f"its shape has {len(shape)} dims, more than {_MAX_RANK}")
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


def _check_cover(path: str, entries: dict[str, _Entry], size: int) -> None:
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


class New(NamedTuple):
    """A tensor to be written: what the header says of it, and where its data come from.

    `data` is called once, when the tensor's turn comes. The Tensor that it
    returns may be any view, and of another shape with as many elements: its
    elements are written in row-major order.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    data: Callable[[], Tensor]

    @staticmethod
    def of(name: str, tensor: Tensor) -> New:
        """A Tensor as it is."""
        return New(name, tensor.dtype, tensor.shape, lambda: tensor)


def write(
    path: Path,
    tensors: Iterable[New],
    metadata: dict[str, str] | None = None,
    progress: Callable[[int], object] | None = None,
) -> int:
    """Write a safetensors file in one step, seen from outside; return its size in bytes.

    Everything is checked first. The data go, a few megabytes at a time, to a
    temporary file in the folder of `path`, which is synced and then renamed
    over `path` (over the file that it points to, if it is a link); on any error
    the temporary file is removed and `path` stays as it was. `progress` is
    called with the number of bytes after each piece. A file that is replaced
    hands on its permissions, a new one gets those of the umask.

    Raises FileFormatError (with the tensor) for what the format cannot hold,
    OSError (with `path`) where the disk refuses.
    """
    name = os.fspath(path)
    ordered = _aligned(tensors)
    header = _header_bytes(name, ordered, metadata)
    need = [_nbytes(name, t.name, t.dtype, t.shape) for t in ordered]
    total = len(header) + sum(need)
    try:
        target = os.path.realpath(name)
        mode = _mode_of(target, name)
        temporary = os.path.join(os.path.dirname(target), f".shapejit-{secrets.token_hex(8)}.tmp")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            with open(descriptor, "wb", buffering=0) as file:
                if mode is not None:
                    os.fchmod(descriptor, mode)
                _reserve(descriptor, total)
                _write_all(descriptor, memoryview(header))
                for tensor, nbytes in zip(ordered, need, strict=True):
                    for piece in _pieces(_data(name, tensor, nbytes)):
                        _write_all(descriptor, piece.data)
                        if progress is not None:
                            progress(len(piece))
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
    except OSError as fault:
        # The user knows the destination, not the temporary file.
        raise OSError(fault.errno, fault.strerror, name) from fault
    _sync_folder(os.path.dirname(target))
    return total


def _aligned(tensors: Iterable[New]) -> list[New]:
    """Widest elements first, otherwise in the order given.

    With data that start at a multiple of eight bytes this puts every tensor at
    a multiple of its element, as the reference's order (by dtype, then name)
    does. It leaves the order of a file of the reference as it is, so that
    converting one without a rule gives the same bytes.
    """
    return sorted(tensors, key=lambda t: -max(t.dtype.bits // 8, 1))


def _header_bytes(path: str, tensors: Sequence[New], metadata: dict[str, str] | None) -> bytes:
    """The header with its length, padded with spaces to whole eight bytes."""
    header: dict[str, Any] = {}
    if metadata is not None:
        for word in (*metadata.keys(), *metadata.values()):
            if not _is_text(word):
                raise FileFormatError(path, None, f"metadata must be text, not {word!r}")
        header[_METADATA] = metadata
    at = 0
    for tensor in tensors:
        name, kind, shape, _ = tensor
        if name == _METADATA or name in header or not _is_text(name):
            fault = "stands twice" if name in header else "is no name that safetensors can hold"
            raise FileFormatError(path, name, fault)
        if kind.safetensors is None:
            raise FileFormatError(path, name, f"safetensors has no dtype for {kind}")
        end = at + _nbytes(path, name, kind, shape)
        header[name] = {"dtype": kind.safetensors, "shape": shape, "data_offsets": [at, end]}
        at = end
    raw = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % _LENGTH)
    if len(raw) > _MAX_HEADER:
        raise FileFormatError(
            path, None, f"its header would have {len(raw)} bytes; the format allows {_MAX_HEADER}"
        )
    return len(raw).to_bytes(_LENGTH, "little") + raw


def _mode_of(target: str, path: str) -> int | None:
    """The permissions of the file to be replaced; None where there is none."""
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        raise FileFormatError(path, None, "it is no regular file, so it cannot be replaced")
    return stat.S_IMODE(mode)


def _reserve(descriptor: int, size: int) -> None:
    """Take the disk space at once: a full disk shows before the work, not after it."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)


def _write_all(descriptor: int, data: memoryview) -> None:
    rest = data
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _data(path: str, tensor: New, nbytes: int) -> Tensor:
    found = tensor.data()
    if found.dtype is not tensor.dtype or found.nbytes != nbytes:
        reason = f"announced as {nbytes} bytes of {tensor.dtype}, it came as {found!r}"
        raise FileFormatError(path, tensor.name, reason)
    return found


def _pieces(t: Tensor) -> Iterator[Bytes]:
    """The packed elements in row-major order: the tensor's own memory, or copied part by part."""
    if t.contiguous and t.offset % 8 == 0:
        memory = t.buffer[t.offset // 8 :][: t.nbytes]
        for at in range(0, t.nbytes, _PIECE):
            yield memory[at : at + _PIECE]
        return
    scratch = np.empty(0, np.uint8)
    for part in _parts(t):
        if part.nbytes > scratch.size:
            scratch = np.empty(part.nbytes, np.uint8)
        out = Tensor.frombuffer(scratch[: part.nbytes], t.dtype, part.shape)
        yield part.ascontiguous(out=out).buffer


def _parts(t: Tensor) -> Iterator[Tensor]:
    """Slices along the outer dims, in order: whole bytes each, of about _PIECE at most."""
    if t.ndim == 0 or t.nbytes <= _PIECE:
        yield t
        return
    row = t.size // t.shape[0] * t.dtype.bits
    whole = 8 // gcd(row, 8)
    if row > 8 * _PIECE and whole == 1:
        for i in range(t.shape[0]):
            yield from _parts(t[i])
        return
    rows = max(8 * _PIECE // (row * whole), 1) * whole
    for i in range(0, t.shape[0], rows):
        yield t[i : i + rows]


def _sync_folder(folder: str) -> None:
    """Make the rename last; the new file is in place already, so a failure is no error."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
