"""The tensors to write to a file, and the writing of their bytes."""

from __future__ import annotations

import errno
import io
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from math import prod
from typing import Any, NamedTuple

import numpy as np

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
    """A file that a function writes in order, and that counts the bytes written."""

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


def names_of(tensors: Iterable[New], fits: Callable[[str], bool], unfit: str) -> set[str]:
    """The names of tensors.

    Raises FileFormatError (see `in_file`) for equal ones, and those that do not fit.
    """
    names = set[str]()
    for name, *_ in tensors:
        if name in names or not fits(name):
            raise FileFormatError(None, name, "occurs twice" if name in names else unfit)
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


@contextmanager
def written(
    target: Target, path: str, file: NewFile, progress: Progress | None = None
) -> Iterator[None]:
    """A context that writes a file: head and tensors, with zeros between them.

    It uses a thread of its own if that is faster. Meanwhile the caller, on any thread, reads and
    converts the next pieces, which must not change until they are written. When the body of `with`
    begins, all have been made; at its end, all are written. After an error the file is unusable:
    waiting pieces are not written.

    This takes 140 ms for 256 MiB in a new file in memory (tmpfs), as with two threads, which wait
    for each other; through a memory map it takes 340 ms, with two threads 300, because of page
    faults.
    """
    thread = ThreadPoolExecutor(1) if file.size >= _THREADED else None
    end, waiting = 0, deque[Future[None]]()

    def write(at: int, piece: Bytes) -> None:
        nonlocal end
        if at != end:
            _skip(target, end, at)
        write_all(target, piece.data)
        end = at + piece.size

    try:
        for at, piece in _pieces(target, path, file, progress or (lambda _: None)):
            if thread is None:
                write(at, piece)
                continue
            while len(waiting) >= _AHEAD or (waiting and waiting[0].done()):
                waiting.popleft().result()
            waiting.append(thread.submit(write, at, piece))
        yield
        for each in waiting:
            each.result()
        if isinstance(target, int):
            os.ftruncate(target, file.size)
    finally:
        if thread is not None:
            thread.shutdown(cancel_futures=True)


def _pieces(
    target: Target, path: str, file: NewFile, tell: Progress
) -> Iterator[tuple[int, Bytes]]:
    """The pieces of a file, each with its first byte, except those that the system copies."""
    yield 0, np.frombuffer(file.head, np.uint8)
    for new, at in file.tensors:
        done = 0
        for count in _copied(new, target, at):
            done += count
            tell(Written.of(new.name, count))
        for piece in announced(path, new) if new.nbytes and not done else ():
            yield at + done, piece
            done += piece.size
            tell(Written.of(new.name, piece.size))
    yield file.size, np.empty(0, np.uint8)


def _skip(target: Target, end: int, at: int) -> None:
    """Seek from a byte to another; in an upload, by writing zeros."""
    if isinstance(target, int):
        os.lseek(target, at, os.SEEK_SET)
        return
    if at < end:
        raise io.UnsupportedOperation("a remote file must be written in order")
    for begin in range(end, at, _ZEROS):
        write_all(target, memoryview(bytes(min(_ZEROS, at - begin))))


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
