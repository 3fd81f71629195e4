"""Tensors to write, and the writing of their bytes to a file."""

from __future__ import annotations

import errno
import io
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from math import prod
from typing import Any, NamedTuple

from ..arrays.tensor import Bytes, Tensor
from ..dtypes.table import DType
from ..errors import FileFormatError
from ..runtime import system
from .pieces import pieces
from .stored import Stored

Progress = Callable[[int], object]
Target = int | io.RawIOBase  # a descriptor of a file, or an upload, which is written in order

_AHEAD = 3  # pieces that are waiting or being written
_THREADED = 1 << 23  # bytes of a file from which a thread pays
_COPIED = 1 << 25  # bytes copied per call
_ZEROS = 1 << 20  # zero bytes between tensors that are sent at a time
_UNABLE = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF, errno.EPERM)


class InOrder(io.RawIOBase):
    """A file that is written in order, by a function; it counts what is written."""

    def __init__(self, write: Callable[[Any], int | None]) -> None:
        self._write, self._at = write, 0

    def write(self, data: Any, /) -> int:
        """Write bytes; return how many."""
        # Functions that return None have written everything.
        count = self._write(data)
        done = len(data) if count is None else count
        self._at += done
        return done

    def tell(self) -> int:
        """The number of bytes that are written."""
        return self._at


class Written(int):
    """A number of written bytes, the argument of `Progress`, with the name of the tensor."""

    tensor: str

    @staticmethod
    def of(tensor: str, count: int) -> Written:
        """Bytes of the tensor of this name."""
        made = Written(count)
        made.tensor = tensor
        return made


class New(NamedTuple):
    """A tensor to write: its entry in the file, and the source of its data.

    `data` is called once, when the tensor is written. It yields the packed elements in row-major
    order, piece by piece. `extent` is the tensor in a file whose bytes they are, if there is one.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    data: Callable[[], Iterable[Bytes]]
    extent: Stored | None = None

    @staticmethod
    def of(name: str, tensor: Tensor) -> New:
        """A Tensor in memory, contiguous or not."""
        return New(name, tensor.dtype, tensor.shape, lambda: pieces(tensor))

    @property
    def nbytes(self) -> int:
        """Bytes of the packed elements."""
        return self.dtype.nbytes(prod(self.shape))


class NewFile(NamedTuple):
    """A file to write: its first bytes, each tensor with the byte where it begins, and its size."""

    head: bytes
    tensors: Sequence[tuple[New, int]]
    size: int


def names_of(
    path: str, tensors: Iterable[New], fits: Callable[[str], bool], unfit: str
) -> set[str]:
    """The names of tensors. Raises FileFormatError for equal ones, and those that do not fit."""
    names = set[str]()
    for name, *_ in tensors:
        if name in names or not fits(name):
            raise FileFormatError(path, name, "stands twice" if name in names else unfit)
        names.add(name)
    return names


def announced(path: str, tensor: New) -> Iterator[Bytes]:
    """The pieces of its data. Raises FileFormatError at the end if the total size is wrong."""
    written = 0
    for piece in tensor.data():
        written += piece.size
        yield piece
    if written != tensor.nbytes:
        reason = f"announced as {tensor.nbytes} bytes, its data have {written}"
        raise FileFormatError(path, tensor.name, reason)


def write_all(target: Target, data: memoryview) -> None:
    """Write all bytes, in as many calls as necessary."""
    while data:
        done = os.write(target, data) if isinstance(target, int) else target.write(data)
        data = data[done:]


class Writer:
    """Writes pieces at positions in a file, on a thread of its own if that pays.

    Meanwhile callers, on any thread, read and convert the next ones. Pieces must not change until
    they are written; the end of `with` waits for all. `total` is the number of bytes, if known.

    256 MiB to a new file in memory (tmpfs) take 140 ms so, as by two threads, of which one
    waits for the other; through a memory map 340 ms, with two threads 300: page faults.
    """

    def __init__(self, target: Target, total: int = _THREADED) -> None:
        self.target, self._at = target, 0
        self._thread = ThreadPoolExecutor(1) if total >= _THREADED else None
        self._waiting = deque[Future[None]]()

    def put(self, at: int, piece: Bytes) -> None:
        """Write a piece at byte `at` of the file, now or later."""
        self._do(self._write, at, piece)

    def tensor(self, path: str, new: New, at: int, progress: Progress | None) -> None:
        """Write a tensor at byte `at`; `progress` is called with numbers of bytes."""
        tell = progress or (lambda _: None)
        done = 0
        for count in _copied(new, self.target, at):
            done += count
            tell(Written.of(new.name, count))
        for piece in announced(path, new) if new.nbytes and not done else ():
            self.put(at + done, piece)
            done += piece.size
            tell(Written.of(new.name, piece.size))

    def extend(self, size: int) -> None:
        """Let zeros follow until the file has so many bytes."""
        self._do(self._extend, size)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self._thread is not None:
            # After an error the file is useless: waiting pieces are not written.
            self._thread.shutdown(cancel_futures=kind is not None)
        while self._waiting and kind is None:
            self._waiting.popleft().result()

    def _do(self, call: Callable[..., None], *arguments: Any) -> None:
        if self._thread is None:
            call(*arguments)
            return
        while len(self._waiting) >= _AHEAD or (self._waiting and self._waiting[0].done()):
            self._waiting.popleft().result()
        self._waiting.append(self._thread.submit(call, *arguments))

    def _write(self, at: int, piece: Bytes) -> None:
        if at != self._at:
            self._seek(at)
        write_all(self.target, piece.data)
        self._at = at + piece.size

    def _seek(self, at: int) -> None:
        """Seek to a byte; in an upload, by writing zeros."""
        if isinstance(self.target, int):
            os.lseek(self.target, at, os.SEEK_SET)
            return
        if at < self._at:
            raise io.UnsupportedOperation("a file that is elsewhere is written in order")
        while self._at < at:
            zeros = bytes(min(at - self._at, _ZEROS))
            write_all(self.target, memoryview(zeros))
            self._at += len(zeros)

    def _extend(self, size: int) -> None:
        if isinstance(self.target, int):
            os.ftruncate(self.target, size)
        else:
            self._seek(size)


def _copied(tensor: New, target: Target, at: int) -> Iterator[int]:
    """Copy bytes from file to file within the operating system; yield the counts.

    They go to byte `at` of the target. Yields nothing if the system cannot do that.
    """
    done, extent = 0, tensor.extent
    if extent is None or not isinstance(target, int):
        return
    file: Any = extent.file  # an OpenFile
    while done < extent.nbytes:
        try:
            count = system.copy_file_range(
                file.descriptor,
                target,
                min(_COPIED, extent.nbytes - done),
                extent.first + done,
                at + done,
            )
        except OSError as fault:
            if done == 0 and fault.errno in _UNABLE:
                return
            raise
        if count == 0:  # raises the error of a file that ends too soon
            file.read(memoryview(bytearray(1)), extent.first + done, tensor.name)
            return
        file.check(tensor.name)
        done += count
        yield count
