"""A file written as a whole or not at all."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from math import gcd
from typing import NamedTuple

import numpy as np

from ...dtypes import DType
from ...errors import FileFormatError
from ...tensor import Bytes, Tensor
from ..paths import Path, file_name
from . import header

# Bytes that are converted and written at a time: enough for both threads, and
# still in the last-level cache when the write reads them.
_PIECE = 8 * 1024 * 1024


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
    name = file_name(path)
    if os.path.basename(name) in ("", os.curdir, os.pardir):
        raise FileFormatError(name, None, "it names a folder, not a file")
    ordered = _aligned(tensors)
    first = header.encode(name, (t[:3] for t in ordered), metadata)
    need = [header.nbytes(name, t.name, t.dtype, t.shape) for t in ordered]
    total = len(first) + sum(need)
    try:
        target = os.path.realpath(name)
        mode = _mode_of(target, name)
        temporary = os.path.join(os.path.dirname(target), f".shapejit-{secrets.token_hex(8)}.tmp")
        try:
            # Within the try: a signal's exception may come before the next line.
            descriptor = os.open(
                temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666
            )
            with open(descriptor, "wb", buffering=0) as file:
                if mode is not None:
                    os.fchmod(descriptor, mode)
                _reserve(descriptor, total)
                _write_all(descriptor, memoryview(first))
                for tensor, nbytes in zip(ordered, need, strict=True):
                    for piece in _pieces(_data(name, tensor, nbytes)):
                        _write_all(descriptor, piece.data)
                        if progress is not None:
                            progress(len(piece))
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            with suppress(OSError):
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
