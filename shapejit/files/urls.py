"""URLs as names of files: their parts, and names joined to them.

`zip://weights.npz::s3://bucket/a.zip` is a chain, as fsspec has it: the first link names
the file, within what the others name. A name without `://` is a path on this machine.
"""

from __future__ import annotations

import posixpath
import re
from typing import NamedTuple
from urllib.parse import quote

from ..errors import FileFormatError, quoted

_URL_START = re.compile(r"(?:[A-Za-z0-9+.-]+::)*([A-Za-z][A-Za-z0-9+.-]*)://")
_WEB = ("http", "https")


def is_url(name: str) -> bool:
    """Whether a name is a URL, not a path.

    >>> is_url("s3://bucket/a.npz"), is_url("simplecache::s3://bucket/a.npz"), is_url("a::b/c:d")
    (True, True, False)
    """
    return _URL_START.match(name) is not None


class Url(NamedTuple):
    """The parts of a URL: `head` ends with `://`, `rest` begins at a query or at `::`."""

    head: str
    scheme: str
    path: str
    rest: str

    @staticmethod
    def of(text: str) -> Url:
        """The parts of a name that is a URL.

        >>> Url.of("https://host/a/b?x=1")
        Url(head='https://', scheme='https', path='host/a/b', rest='?x=1')
        """
        found = _URL_START.match(text)
        assert found is not None
        scheme, left = found[1].lower(), text[found.end() :]
        end = re.search(r"[?#]|::" if scheme in _WEB else r"::", left)
        at = len(left) if end is None else end.start()
        return Url(found[0], scheme, left[:at], left[at:])

    def __str__(self) -> str:
        return f"{self.head}{self.path}{self.rest}"

    @property
    def base(self) -> str:
        """The last component."""
        return self.path.rpartition("/")[2]

    @property
    def parent(self) -> Url:
        """The folder of a file."""
        return self._replace(path="/".join(self.path.split("/")[:-1]))

    @property
    def names_folder(self) -> bool:
        """Whether it can only name a folder: it ends with a slash."""
        return not self.path or self.path.endswith("/")

    def joined(self, name: str) -> Url:
        """A file in a folder.

        >>> str(Url.of("https://host/model/?x=1").joined("a b.npz"))
        'https://host/model/a%20b.npz?x=1'
        """
        between = "" if not self.path or self.path.endswith("/") else "/"
        name = quote(name) if self.scheme in _WEB else name
        return self._replace(path=f"{self.path}{between}{name}")


def inside(folder: str, location: str, tensor: str | None) -> str:
    """The URL of the file at `location`, relative to a folder.

    `tensor` is the name in errors. Raises FileFormatError if the file is not in the folder: an
    absolute location, `..`, or another URL.
    """
    if not location or "\0" in location:
        raise FileFormatError(folder, tensor, f"no file can have the name {quoted(location)}")
    where = str(Url.of(folder).joined(location))
    if location.startswith("/") or is_url(location) or "::" in location:
        raise FileFormatError(where, tensor, "its location must be relative to the model's folder")
    if posixpath.normpath(location).split("/")[0] == posixpath.pardir:
        raise FileFormatError(where, tensor, "its location leads out of the model's folder")
    return str(Url.of(folder).joined(posixpath.normpath(location)))
