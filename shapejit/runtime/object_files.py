"""Object files: where object code is stored, what identifies it, whether it may be loaded.

A file is a checksum followed by an object file. The checksum is keyed with all that the code
depends on (sources, versions, processor) and with the kernel's name, so a file that is damaged,
outdated or of another kernel counts as missing. Object code runs in the process that loads it: it
is loaded only from folders that only this user and root may write.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

from . import processor, system
from .kernel_names import Code, Name

PACKAGE = Path(__file__).parents[1]
OBJECTS = PACKAGE / "objects"  # of a wheel that carries some, a folder for each level
# A module outside `kernels` whose functions or constants kernels compile.
# Begins of lines are looked for by their line feed, in .15 ms, not in 4.
SHARED = re.compile(rb"\nfrom \.\.([\w.]+) import ")
CHECKSUM = 32  # bytes
BUILDER_TIMEOUT = 120.0  # seconds that a builder waits for another one, which may hang


@cache
def stamp(level: str = "") -> bytes:
    """A digest of everything that object code depends on, except the kernel's name.

    The modules that kernels share with the rest of the package import nothing from it (see
    tests/test_architecture.py), so that the text of an error, say, does not change the digest.
    """
    digest = blake2b(repr(_surroundings(level)).encode())
    kernels, builder = PACKAGE / "kernels", PACKAGE / "builder"
    own = [path.read_bytes() for path in sorted(kernels.glob("*.py"))]
    shared = sorted({name.decode() for source in own for name in SHARED.findall(source)})
    others = [PACKAGE / f"{name.replace('.', '/')}.py" for name in shared]
    for source in (*own, *(path.read_bytes() for path in (*others, *sorted(builder.glob("*.py"))))):
        digest.update(source)
    return digest.digest()


def _surroundings(level: str) -> tuple[object, ...]:
    """Interpreter, system, processor and versions; for objects of a wheel, the level only."""
    common = platform.python_implementation(), *sys.version_info[:2], processor.triple()
    if level:
        return (*common, level)
    versions = (_version(name) for name in ("numba", "llvmlite"))
    return (*common, processor.name(), sorted(processor.features()), *versions)


def _version(name: str) -> bytes:
    """The version of a package, without importing it; empty if it is not installed."""
    found = find_spec(name)
    if found is None or found.origin is None:
        return b""
    return Path(found.origin).with_name("_version.py").read_bytes()


@cache
def symbol(name: Name, level: str = "") -> str:
    """The name of a kernel's function in its object file, and of that file without ".o"."""
    text = name.writer if isinstance(name, Code) else name.kernel
    digest = blake2b(repr(name).encode(), digest_size=12, key=stamp(level)[:64]).hexdigest()
    return f"shapejit_{text.replace('.', '_')}_{digest}"


@cache
def folder() -> Path | None:
    """The folder where object files are written; None if no folder can be trusted."""
    for directory in _choices():
        with suppress(OSError):
            directory.mkdir(mode=0o755, parents=True, exist_ok=True)
            if os.access(directory, os.W_OK) and trusted(directory):
                return directory
    return None


def _choices() -> list[Path]:
    """`NUMBA_CACHE_DIR`, or else the folder next to the kernels; then the user's cache.

    The second one is used if the first is not writable.
    """
    given = os.environ.get("NUMBA_CACHE_DIR")
    first = Path(given, "shapejit") if given else PACKAGE / "kernels" / "__pycache__"
    return [first, _cache_home() / "shapejit"]


@cache
def _folders() -> list[Path]:
    """The folders from which object files are read."""
    choices, own = _choices(), folder()
    return choices[: choices.index(own) + 1] if own else choices


def _cache_home() -> Path:
    """The cache folder of this user."""
    if os.name == "nt":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local")
    if sys.platform == "darwin":
        return Path.home() / "Library/Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def trusted(path: Path) -> bool:
    """Whether only this user and root may write to `path`."""
    if not hasattr(os, "getuid"):
        return True  # Windows: a user's folders are the user's
    found = path.stat()
    return found.st_uid in (os.getuid(), 0) and not found.st_mode & 0o002


class ObjectFile(NamedTuple):
    """An object file: its path, the name of its function, and its code."""

    path: Path
    label: str
    code: bytes


def read(name: Name) -> ObjectFile | None:
    """The object file of a kernel, if it exists and is intact.

    If there is none for this processor, a wheel's object file for its level is used.
    """
    directories = [(directory, "") for directory in _folders()]
    directories += [(OBJECTS / level, level) for level in processor.levels()]
    for directory, level in directories:
        label = symbol(name, level)
        path = directory / f"{label}.o"
        with suppress(OSError):
            stored = path.read_bytes()
            content = stored[CHECKSUM:]
            if stored[:CHECKSUM] != _checksum(name, level, content):
                continue
            if trusted(directory) and trusted(path):
                return ObjectFile(path, label, content)
    return None


def is_kept(name: Name) -> bool:
    """Whether `read` finds the file of this processor's builder."""
    found = read(name)
    return found is not None and found.label == symbol(name)


def write(name: Name, code: bytes, directory: Path | None = None, level: str = "") -> bool:
    """Store object code for other processes; return whether that succeeded."""
    directory = directory or folder()
    if directory is None:
        return False
    import tempfile  # what it imports takes milliseconds, and readers need none of it

    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(suffix=".tmp", dir=directory)
        with open(handle, "wb") as file:
            file.write(_checksum(name, level, code) + code)
        os.chmod(temporary, 0o644)  # for everyone who may read the folder
        os.replace(temporary, directory / f"{symbol(name, level)}.o")
    except OSError:  # a full disk, or a folder that was removed: it can be built again
        with suppress(OSError):
            os.unlink(temporary)
        return False
    return True


@contextmanager
def claimed(label: str) -> Iterator[None]:
    """Wait while another process holds this label, for at most `BUILDER_TIMEOUT` seconds."""
    directory = folder()
    if directory is None:
        yield
        return
    path, until = directory / f"{label}.lock", monotonic() + BUILDER_TIMEOUT
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
    except OSError:
        yield
        return
    try:
        while system.lock(descriptor) is False and monotonic() < until:
            sleep(0.05)
        yield
    finally:
        with suppress(OSError):
            path.unlink()
        os.close(descriptor)


def _checksum(name: Name, level: str, code: bytes) -> bytes:
    key = blake2b(stamp(level) + repr(name).encode()).digest()
    return blake2b(code, key=key, digest_size=CHECKSUM).digest()
