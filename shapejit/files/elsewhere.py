"""The file system of URLs: remote files and folders, and uploads, which appear as a whole."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

from ..errors import FileFormatError
from . import urls
from .open_files import File
from .places import FileSystem
from .remote import asked, is_buffered, naming_url, resolved, shared, version_at
from .temporary import Check
from .urls import Url
from .writing import InOrder


class _Elsewhere(FileSystem):
    """Other machines, which only tell what they hold and take whole files."""

    in_order = True

    def open(self, name: str) -> File:
        """The file that somebody has open already, if it is still the same."""
        return shared(name)

    def inside(self, folder: str, location: str, tensor: str | None) -> str:
        """The URL of a file in a folder."""
        return urls.inside(folder, location, tensor)

    def fresh(self, name: str) -> None:
        """Forget what a file system has said of a file, or of a folder and what is in it."""
        system, place = resolved(name)
        system.invalidate_cache(place)

    def replacing(
        self, name: str, size: int | None = None, check: Check | None = None
    ) -> AbstractContextManager[Any]:
        """A new file, which is sent in order."""
        return _uploading(name, size, check)

    def is_folder(self, name: str) -> bool:
        """Whether it ends with a slash, or a file system says so: web servers never do."""
        found = Url.of(name).names_folder or self._info(name).get("type") == "directory"
        if found:
            with suppress(OSError):  # file systems keep it, to answer what is asked of its files
                self.listed(name)
        return found

    def exists(self, name: str) -> bool:
        """Whether there is a file or a folder of this name."""
        return bool(self._info(name))

    def listed(self, folder: str) -> list[str]:
        """What a listing has; nothing where there is no folder."""
        try:
            found = asked(folder, "ls", detail=False)
        except FileNotFoundError:
            return []
        return [name.rstrip("/").rpartition("/")[2] for name in found]

    def files(self, folder: str) -> dict[str, str]:
        """What a listing has, folders in it included; FileFormatError for what leads out of it."""
        try:
            found = asked(folder, "find")
        except FileNotFoundError:
            return {}
        home = f"{resolved(folder)[1].rstrip('/')}/"
        names = [name.removeprefix(home) for name in found if name.startswith(home)]
        shown = [name for name in names if not any(p.startswith(".") for p in name.split("/")[:-1])]
        return {name: urls.inside(folder, name, None) for name in shown}

    def join(self, folder: str, name: str) -> str:
        """The URL of a file in a folder."""
        return str(Url.of(folder).joined(name))

    def parent(self, name: str) -> str:
        """The folder of a file."""
        return str(Url.of(name).parent)

    def base(self, name: str) -> str:
        """The last component of the path."""
        return Url.of(name).base

    def real(self, name: str) -> str:
        """The URL without a slash at its end."""
        url = Url.of(name)
        return str(url._replace(path=url.path.rstrip("/")))

    def relative(self, name: str, folder: str) -> str:
        """The path of a file without that of its folder."""
        home = Url.of(folder).path.rstrip("/")
        return Url.of(name).path.removeprefix(f"{home}/")

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        if self.exists(name):  # some file systems fail where there is none, each in its way
            with suppress(FileNotFoundError):  # by a call whose answer was lost
                asked(name, "rm_file")

    def _info(self, name: str) -> dict[str, Any]:
        """What is said of a file or a folder; empty where there is none.

        Stores that must not tell what they hold refuse what is missing, as they refuse what
        must not be read: that becomes an error when it is opened.
        """
        try:
            found: dict[str, Any] = asked(name, "info")
        except (FileNotFoundError, PermissionError):
            return {}
        return found


_BLOCK = 1 << 23  # bytes that are sent at a time
_UNKNOWN = 1 << 25  # of a file of unknown size
_BLOCKS = 9_000  # of a file; S3 takes 10 000


@contextmanager
def _uploading(
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
        with naming_url(self._url):
            self._sink.write(data)

    def commit(self) -> None:
        """Make the file appear."""
        with naming_url(self._url):
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


ELSEWHERE = _Elsewhere()
