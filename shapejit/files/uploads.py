"""Files that are written elsewhere, by URL: they appear as a whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any

from ..errors import FileFormatError
from .remote import AbstractBufferedFile, resolved, told, version_at
from .urls import Url

__all__ = ["uploading"]

_BLOCK = 1 << 23  # bytes that are sent at a time
_UNKNOWN = 1 << 25  # of a file of unknown size
_BLOCKS = 9_000  # of a file; S3 takes 10 000
_PIPE = 1 << 16  # bytes in a pipe, as Linux makes them


@contextmanager
def uploading(url: str, size: int | None = None) -> Iterator[int]:
    """A descriptor to write to, from begin to end; then what was written is the file at `url`.

    It is a pipe, from which a thread sends blocks; a block or two are in memory. `size` are
    the bytes of the file, if they are known. On any error what is at `url` stays as it is; a
    few file systems (`memory://`) replace a file when it is begun: then nothing is left of it.
    OSErrors name the URL.
    """
    if Url.of(url).names_folder:
        raise FileFormatError(url, None, "it names a folder, not a file")
    sending = _Sending(url, _UNKNOWN if size is None else max(_BLOCK, size // _BLOCKS))
    try:
        try:
            yield sending.descriptor
        finally:
            sending.finish()
    except BaseException as fault:
        sending.discard()
        if isinstance(fault, BrokenPipeError) and sending.fault is not None:
            raise sending.fault from None  # which broke the pipe
        raise
    sending.commit()


class _Sending:
    """A thread that sends what is written to `descriptor`."""

    def __init__(self, url: str, block: int) -> None:
        self.fault: BaseException | None = None
        self._url = url
        self._sink: Any = None
        self._block, (self._system, self._place) = block, resolved(url)
        self._before: str | None = None
        self._source, self.descriptor = os.pipe()
        self._thread = Thread(target=self._send, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """All is written: wait until it is sent."""
        os.close(self.descriptor)
        self._thread.join()

    def commit(self) -> None:
        """Let it appear; the error of the thread, if it met with one."""
        try:
            if self.fault is not None:
                raise self.fault
            with told(self._url):
                self._sink.close()
                self._sink.commit()
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Forget what was sent."""
        if self._sink is None:
            return
        with suppress(Exception):
            self._sink.discard()
        with suppress(Exception):
            self._sink.closed = True  # or its end would send the rest
        if not isinstance(self._sink, AbstractBufferedFile):  # those do discard
            with suppress(Exception):
                if version_at(self._system, self._place) not in (self._before, None):
                    self._system.rm_file(self._place)

    def _send(self) -> None:
        try:
            with told(self._url):
                system, place = self._system, self._place
                self._before = version_at(system, place)
                self._sink = sink = system.open(
                    place, "wb", block_size=self._block, autocommit=False
                )
                while piece := os.read(self._source, _PIPE):
                    sink.write(piece)
        except BaseException as fault:
            self.fault = fault
        finally:
            os.close(self._source)
