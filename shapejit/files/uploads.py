"""Uploads: remote files, by URL, which appear as a whole or not at all."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ..errors import FileFormatError
from .remote import asked, is_buffered, told, version_at
from .temporary import Check
from .urls import Url
from .writing import InOrder

_BLOCK = 1 << 23  # bytes that are sent at a time
_UNKNOWN = 1 << 25  # of a file of unknown size
_BLOCKS = 9_000  # of a file; S3 takes 10 000


@contextmanager
def uploading(
    url: str, size: int | None = None, check: Check | None = None
) -> Iterator[io.RawIOBase]:
    """A file to write in order; at the end it becomes the file at `url`.

    It is sent in blocks, one of which is in memory. `size` is the size of the file, if known. On
    any error the file at `url` is unchanged, but a few file systems (`memory://`) replace it at the
    start: then none is left. OSErrors name the URL. `check` is called with the URL once the file is
    there, since it cannot be read earlier; it is removed on errors.
    """
    if Url.of(url).names_folder:
        raise FileFormatError(url, None, "it names a folder, not a file: give a name in it")
    upload = _Upload(url, _UNKNOWN if size is None else max(_BLOCK, size // _BLOCKS))
    try:
        yield upload
        upload.commit()
    except BaseException:
        upload.discard()
        raise
    if check is not None:
        try:
            check(url)
        except BaseException:
            asked(url, "rm_file")
            raise


class _Upload(InOrder):
    """A remote file; it cannot seek back."""

    def __init__(self, url: str, block: int) -> None:
        super().__init__(self._send)
        self._url, self._before = url, version_at(url)
        self._sink = asked(url, "open", mode="wb", block_size=block, autocommit=False)

    def _send(self, data: Any) -> None:
        with told(self._url):
            self._sink.write(data)

    def commit(self) -> None:
        """Make the file appear."""
        with told(self._url):
            self._sink.close()
            self._sink.commit()

    def discard(self) -> None:
        """Discard the bytes sent."""
        with suppress(Exception):
            self._sink.discard()
        with suppress(Exception):
            self._sink.closed = True  # otherwise closing would send the rest
        if not is_buffered(self._sink):  # those do discard
            with suppress(Exception):
                if version_at(self._url) not in (self._before, None):
                    asked(self._url, "rm_file")
