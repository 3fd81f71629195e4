"""What names a file."""

from __future__ import annotations

import os

from ..errors import FileFormatError

Path = str | os.PathLike[str]


def file_name(path: Path) -> str:
    """The path as text; FileFormatError for what can be the name of no file.

    >>> file_name("a.safetensors")
    'a.safetensors'
    """
    name = os.fspath(path)
    try:
        possible = bool(name) and b"\0" not in os.fsencode(name)
    except UnicodeEncodeError:
        possible = False
    if not possible:
        raise FileFormatError(repr(name), None, "no file can have this name")
    return name
