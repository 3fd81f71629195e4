"""Files and folders at URLs, through fsspec: no other module imports it.

Ranges are read, never whole files; a response that is not the requested range raises. Uploads
appear as a whole.
"""

from __future__ import annotations

import errno
import io
import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from threading import Lock
from typing import Any, TypeVar
from weakref import WeakValueDictionary, ref

import numpy as np

try:
    import fsspec
    from fsspec.asyn import AsyncFileSystem
    from fsspec.spec import AbstractBufferedFile
except ImportError as missing:
    raise ImportError(
        "files by URL need fsspec: pip install 'shapejit[remote]'", name="fsspec"
    ) from missing

from ..arrays.tensor import Bytes
from ..errors import FileFormatError, ShapeJitError, in_file, redacted, redacted_url, shortened
from . import urls
from .ahead import awaited, read_parts
from .open_files import CHANGED, File
from .places import FileSystem
from .temporary import Check
from .urls import Url
from .writing import InOrder

# Attributes that change with a file, in file systems; the first available one is used.
_VERSION_KEYS = ("etag", "generation", "blobid", "mtime", "lastmodified", "modified", "created")
_STATUS = {401: errno.EACCES, 403: errno.EACCES, 404: errno.ENOENT, 410: errno.ENOENT}
_CAUSES = (
    (FileNotFoundError, errno.ENOENT),
    (PermissionError, errno.EACCES),
    (TimeoutError, errno.ETIMEDOUT),
    (NotImplementedError, errno.EROFS),
)
_FIRST = 1 << 16  # bytes of the first read at a place: most headers
_LONG = 1 << 22  # bytes of a read that is split into concurrent ones
_open = WeakValueDictionary[tuple[str, str], File]()
_recent = deque[Bytes](maxlen=16)  # read-ahead buffers of files, of at most 4 MiB each
_RANGE = re.compile(r"bytes[ =](\d+-\d+)(?:/(\d+))?")
# Seconds before each retry after a dropped connection; timeouts are not retried.
_PAUSES = (0.1, 0.4, 1.6)
_DROPPED = {
    "ConnectionError", "ClientConnectionError", "ClientPayloadError", "IncompleteReadError",
    "ChunkedEncodingError", "NetworkError", "ProtocolError",
}  # fmt: skip
_NO_RANGES = "its server does not support range requests: download the file first"


_Result = TypeVar("_Result")


@contextmanager
def _naming_url(url: str) -> Iterator[None]:
    """A context that turns errors of file systems into OSErrors that name the URL."""
    try:
        yield
    except (ShapeJitError, ImportError, MemoryError):
        raise
    except Exception as fault:
        raise _as_ours(fault, url) from None  # its cause may show credentials


def _retried(call: Callable[..., _Result], *arguments: Any) -> _Result:
    """The result of a call, which is retried a few times if the connection drops."""
    for pause in _PAUSES:
        try:
            return call(*arguments)
        except Exception as fault:
            # Errors of file systems may hide those of their libraries.
            kinds = {
                kind.__name__ for each in (fault, fault.__cause__) for kind in type(each).mro()
            }
            if kinds.isdisjoint(_DROPPED) or "TimeoutError" in kinds:
                raise
        time.sleep(pause)
    return call(*arguments)


def _as_ours(fault: Exception, url: str) -> Exception:
    cause: BaseException = fault
    if isinstance(fault, FileNotFoundError) and fault.__cause__ is not None:
        cause = fault.__cause__  # fsspec calls all that a web server refuses so
    status = getattr(cause, "status", 0)
    if type(cause).__name__ == "FileExpired":
        return FileFormatError(url, None, CHANGED)
    known = next((code for kind, code in _CAUSES if isinstance(cause, kind)), None)
    number = _STATUS.get(status) or known
    if number is not None:
        return OSError(number, os.strerror(number), redacted_url(url))
    said = shortened(redacted(str(cause).replace(url, redacted_url(url))), 300)
    if type(fault) is ValueError:
        return FileFormatError(url, None, said)
    number = getattr(cause, "errno", None) or errno.EIO
    return OSError(number, f"{type(cause).__name__}: {said}", redacted_url(url))


def _resolved(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it.

    Raises ImportError if its library is missing, FileFormatError for unknown schemes.
    """
    try:
        with _naming_url(url):
            found: tuple[Any, str] = fsspec.core.url_to_fs(url)
    except ImportError as missing:
        raise ImportError(f"{redacted_url(url)}: {missing}", name=missing.name) from None
    return found


def _asked(url: str, what: str, **settings: Any) -> Any:
    """Call a method of the file system of a URL with the path in it."""
    system, place = _resolved(url)
    with _naming_url(url):
        return _retried(partial(getattr(system, what), place, **settings))


def _info(url: str) -> dict[str, Any]:
    """The facts about a file or a folder; empty if there is none.

    Stores that do not reveal what they hold refuse access to missing files as to forbidden ones:
    that raises when the file is opened.
    """
    try:
        found: dict[str, Any] = _asked(url, "info")
    except (FileNotFoundError, PermissionError):
        return {}
    return found


def _version_at(url: str) -> str | None:
    """The current version of a file; None if there is none, or it is unknown."""
    with suppress(OSError):
        return _version(_asked(url, "info"))
    return None


def _version(info: Mapping[str, Any]) -> str:
    """The current version of a file."""
    known = {re.sub("[^a-z]", "", key.lower()): value for key, value in info.items()}
    said = next((f", {key} {known[key]}" for key in _VERSION_KEYS if known.get(key)), "")
    return f"{info.get('size')} bytes{said}"


async def _check_range(url: str, info: Mapping[str, Any], response: Any) -> None:
    """Raise FileFormatError if a web server sends another range than requested.

    Or a range of another version of the file than `info` describes.
    """
    if not response.ok:
        return  # raised elsewhere
    came = _RANGE.match(response.headers.get("Content-Range", ""))
    asked = _RANGE.match(response.request_info.headers.get("Range", ""))
    if came and asked and came[1] != asked[1]:
        reason = f"of bytes {asked[1]} its server sent others: {came[1]}"
        raise FileFormatError(url, None, reason)
    strong = not info.get("ETag", "W/").startswith("W/")
    said = {key: response.headers.get(key) for key in ("ETag", "Last-Modified")}
    if strong and said["ETag"]:
        del said["Last-Modified"]  # it may differ between servers of one file
    another = any(value and info.get(key, value) != value for key, value in said.items())
    if another or (came and came[2] and int(came[2]) != info["size"]):
        raise FileFormatError(url, None, CHANGED)


class RemoteFile(File):
    """A file of a file system, of which ranges are read; `size` is its size when opened.

    A change of the file raises, if the file system has versions: S3 and web servers are asked for
    the same version with each range, others on reopening. Sequential short reads are served from a
    read-ahead buffer, which grows with the number of bytes read in order.
    """

    version = ""

    def __init__(self, url: str) -> None:
        self.path = url
        info = _asked(url, "info")
        if info["type"] == "directory":
            raise FileFormatError(url, None, "it is a folder, not a file")
        if not isinstance(info.get("size"), int):
            raise FileFormatError(url, None, "its server does not report its size")
        if info.get("partial") is False:
            raise FileFormatError(url, None, _NO_RANGES)
        self.size: int = info["size"]
        self.version = _version(info)
        self._info = info
        self._held, self._begin, self._block = ref(np.empty(0, np.uint8)), 0, _FIRST
        self._connect(None)

    def _connect(self, old: Any) -> None:
        """Have no handle yet; `old`, if it is a parent's, is not closed, which would disturb it."""
        self._handle: Any = None
        self._process, self._old = os.getpid(), old
        self._reading, self._alone = Lock(), Lock()

    def read(self, memory: memoryview, at: int, tensor: str | None) -> None:
        """Fill `memory` from byte `at`; short reads are extended."""
        with self._checked(at + len(memory), tensor):
            if len(memory) >= _LONG:
                read_parts(self._fetch, memory, at)
            else:
                with self._reading:
                    memory[:] = self._ahead(at, at + len(memory))

    def part(self, begin: int, end: int, tensor: str | None) -> Bytes:
        """Exactly the bytes [begin, end), in memory of their own."""
        with self._checked(end, tensor):
            memory = np.empty(end - begin, np.uint8)
            read_parts(self._fetch, memory.data, begin)
        memory.flags.writeable = False
        return memory

    def _ahead(self, at: int, end: int) -> memoryview:
        """Bytes from the read-ahead buffer, which is refilled if necessary."""
        held, known = self._held(), self._begin + self._block
        if held is None or not self._begin <= at <= end <= self._begin + held.size:
            near = self._begin < at < known + _FIRST
            self._block = min(2 * self._block, _LONG) if near else _FIRST
            stop = min(max(end, at + self._block), self.size)
            held = np.frombuffer(awaited(self._fetch, at, stop), np.uint8)
            self._held, self._begin = ref(held), at
            _recent.append(held)
        return held[at - self._begin : end - self._begin].data

    @contextmanager
    def _checked(self, end: int, tensor: str | None) -> Iterator[None]:
        """Raise FileFormatError if the file is too short; add the tensor to errors of readers."""
        if end > self.size:
            raise FileFormatError(self.path, tensor, f"it ends after {self.size} bytes")
        if self._process != os.getpid():  # threads of file systems do not survive a fork
            self._connect(self._handle)
        with in_file(self.path, tensor):
            yield

    def _fetch(self, begin: int, end: int) -> bytes:
        """The bytes [begin, end), exactly."""
        with _naming_url(self.path):
            data: bytes = _retried(self._bytes, begin, end)
        if begin < end and not data:  # fsspec's answer if a file ends before the range
            raise FileFormatError(self.path, None, CHANGED)
        if len(data) != end - begin:
            reason = f"of {end - begin} bytes from byte {begin} on {len(data)} came"
            raise FileFormatError(self.path, None, reason)
        return data

    def _bytes(self, begin: int, end: int) -> Any:
        system, place = _resolved(self.path)
        if not isinstance(system, AsyncFileSystem):  # only one thread may use it at a time
            with self._alone:
                self._check_version(system.info(place))
                return system.cat_file(place, begin, end, cache_type="none")
        with self._alone:
            if self._handle is None:
                more: dict[str, Any] = {}
                if "https" in system.protocol:
                    # aiohttp has each response checked before its bytes are read. Not by a method:
                    # handles must not hold their file.
                    check = partial(_check_range, self.path, self._info)
                    headers = {"Accept-Encoding": "identity"}
                    more = {"size": self.size, "headers": headers, "raise_for_status": check}
                handle = system.open(place, "rb", cache_type="none", **more)
                if not more:
                    self._check_version(handle.details)
                self._handle = handle
        try:
            return self._handle.cache.fetcher(begin, end)  # it raises if ranges are ignored
        except ValueError as fault:
            if "range" in str(fault):
                raise FileFormatError(self.path, None, _NO_RANGES) from None
            raise

    def _check_version(self, info: Mapping[str, Any]) -> None:
        if _version(info) != self.version:
            raise FileFormatError(self.path, None, CHANGED)


def _opened(name: str, *, follow: bool = True) -> File:
    """The file that somebody has open already, if it is still the same."""
    made = RemoteFile(name)
    known = "," in made.version
    return _open.setdefault((name, made.version), made) if known else made


def _fresh(name: str) -> None:
    """Forget what a file system has said of a file, or of a folder and what is in it."""
    system, place = _resolved(name)
    system.invalidate_cache(place)


def _is_folder(name: str) -> bool:
    """Whether it ends with a slash, or a file system says so: web servers never do."""
    found = Url.of(name).names_folder or _info(name).get("type") == "directory"
    if found:
        with suppress(OSError):  # file systems keep it, to answer what is asked of its files
            _listed(name)
    return found


def _exists(name: str) -> bool:
    return bool(_info(name))


def _listed(folder: str) -> list[str]:
    """The files and folders in a folder; empty if it does not exist."""
    try:
        found = _asked(folder, "ls", detail=False)
    except FileNotFoundError:
        return []
    return [name.rstrip("/").rpartition("/")[2] for name in found]


def _files(folder: str) -> dict[str, str]:
    """What a listing has, folders in it included; FileFormatError for what leads out of it."""
    try:
        found = _asked(folder, "find")
    except FileNotFoundError:
        return {}
    home = f"{_resolved(folder)[1].rstrip('/')}/"
    names = [name.removeprefix(home) for name in found if name.startswith(home)]
    shown = [name for name in names if not any(p.startswith(".") for p in name.split("/")[:-1])]
    return {name: urls.inside(folder, name, None) for name in shown}


def _real(name: str) -> str:
    """The URL without a slash at its end."""
    url = Url.of(name)
    return str(url._replace(path=url.path.rstrip("/")))


def _relative(name: str, folder: str) -> str:
    """The path of a file without that of its folder."""
    home = Url.of(folder).path.rstrip("/")
    return Url.of(name).path.removeprefix(f"{home}/")


def _remove(name: str) -> None:
    if _exists(name):  # some file systems fail where there is none, each in its way
        with suppress(FileNotFoundError):  # by a call whose answer was lost
            _asked(name, "rm_file")


_BLOCK = 1 << 23  # bytes that are sent at a time
_UNKNOWN = 1 << 25  # of a file of unknown size
_MAX_BLOCKS = 9_000  # of a file; S3 takes 10 000


@contextmanager
def _uploading(url: str, size: int | None, check: Check | None) -> Iterator[io.RawIOBase]:
    """A context with a file to write in order, which finally becomes the file at `url`.

    It is sent in blocks, one of which is in memory. `size` is the size of the file, if known. On
    any error the file at `url` is unchanged, except that a few file systems (`memory://`) replace
    it at the start: then none is left. OSErrors name the URL. `check` is called with the URL once
    the file is there, since it cannot be read earlier; the file is removed on errors.
    """
    if Url.of(url).names_folder:
        raise FileFormatError(url, None, "it names a folder, not a file: give a name in it")
    block = _UNKNOWN if size is None else max(_BLOCK, size // _MAX_BLOCKS)
    before, sent = _version_at(url), False
    sink = _asked(url, "open", mode="wb", block_size=block, autocommit=False)

    def send(data: Any) -> None:
        with _naming_url(url):
            sink.write(data)

    try:
        yield InOrder(send)
        with _naming_url(url):
            sink.close()
            sink.commit()
        sent = True
        if check is not None:
            check(url)
    except BaseException:
        with suppress(Exception):
            sink.discard()
        with suppress(Exception):
            sink.closed = True  # otherwise closing would send the rest
        with suppress(Exception):
            # Files with a buffer discard what was sent; others have replaced what was there.
            replaced = sent or not isinstance(sink, AbstractBufferedFile)
            if replaced and (sent or _version_at(url) not in (before, None)):
                _asked(url, "rm_file")
        raise


# Other machines only tell what they hold, and take whole files.
ELSEWHERE = FileSystem(
    open=_opened,
    replacing=_uploading,
    remove=_remove,
    is_folder=_is_folder,
    exists=_exists,
    listed=_listed,
    files=_files,
    join=lambda folder, name: str(Url.of(folder).joined(name)),
    parent=lambda name: str(Url.of(name).parent),
    base=lambda name: Url.of(name).base,
    inside=urls.inside,
    real=_real,
    relative=_relative,
    fresh=_fresh,
    in_order=True,
)
