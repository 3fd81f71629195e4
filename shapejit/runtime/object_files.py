"""Object code on disk: where it lies, what it is known by, and whether it is to be trusted.

A file is a checksum, and an object file. The checksum is keyed with all that the code depends on
(sources, versions, processor) and with the kernel's name: a file that is damaged, stale or
another's counts as missing. Object code runs in the process that loads it, so that it is only
taken from folders that nobody but this user and root may write.
"""

from __future__ import annotations

import os
import platform
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from time import monotonic, sleep

from . import processor, system
from .kernel_names import Code, Name

PACKAGE = Path(__file__).parents[1]
# A module outside `kernels` whose functions or constants kernels compile.
SHARED = re.compile(rb"^from \.\.([\w.]+) import ", re.MULTILINE)
CHECKSUM = 32  # bytes
PATIENCE = 120.0  # seconds that a builder waits for another one, which may hang


@cache
def stamp() -> bytes:
    """A digest of all that object code depends on beside the kernel's name.

    The modules that kernels share with the rest of the package import nothing of it themselves
    (a test of the architecture sees to that): so an error's text, say, is no part of this.
    """
    digest = blake2b(repr(_surroundings()).encode())
    kernels, builder = PACKAGE / "kernels", PACKAGE / "builder"
    own = [path.read_bytes() for path in sorted(kernels.glob("*.py"))]
    shared = sorted({name.decode() for source in own for name in SHARED.findall(source)})
    others = [PACKAGE / f"{name.replace('.', '/')}.py" for name in shared]
    for source in (*own, *(path.read_bytes() for path in (*others, *sorted(builder.glob("*.py"))))):
        digest.update(source)
    return digest.digest()


def _surroundings() -> tuple[object, ...]:
    """Versions and processor."""
    versions = [_version(name) for name in ("numba", "llvmlite")]
    python = platform.python_implementation(), *map(str, sys.version_info[:2])
    features = sorted(processor.features())
    return (*versions, *python, sys.platform, platform.machine(), processor.name(), features)


def _version(name: str) -> bytes:
    """What a package says of its version, without importing it; nothing if it is not there."""
    found = find_spec(name)
    if found is None or found.origin is None:
        return b""
    return Path(found.origin).with_name("_version.py").read_bytes()


@cache
def symbol(name: Name) -> str:
    """What the function of a kernel is called in its object file, and the file without ".o"."""
    text = name.writer if isinstance(name, Code) else name.kernel
    digest = blake2b(repr(name).encode(), digest_size=12, key=stamp()[:64]).hexdigest()
    return f"shapejit_{text.replace('.', '_')}_{digest}"


@cache
def folder() -> Path | None:
    """Where object files are read and written; None: there is no folder that may be trusted."""
    for place in _folders():
        with suppress(OSError):
            place.mkdir(mode=0o755, parents=True, exist_ok=True)
            if os.access(place, os.W_OK) and trusted(place):
                return place
    return None


def _folders() -> list[Path]:
    """The one that NUMBA_CACHE_DIR names; or beside the kernels, or this user's own."""
    given = os.environ.get("NUMBA_CACHE_DIR")
    if given:
        return [Path(given, "shapejit")]
    return [PACKAGE / "kernels" / "__pycache__", _cache_home() / "shapejit"]


def _cache_home() -> Path:
    """The folder of this user's caches."""
    if os.name == "nt":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local")
    if sys.platform == "darwin":
        return Path.home() / "Library/Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def trusted(path: Path) -> bool:
    """Whether nobody but this user and root may write there."""
    if not hasattr(os, "getuid"):
        return True  # Windows: a user's folders are the user's
    found = path.stat()
    return found.st_uid in (os.getuid(), 0) and not found.st_mode & 0o002


def read(name: Name) -> bytes | None:
    """The object file of a kernel, if it is there and whole."""
    place = folder()
    if place is None:
        return None
    path = place / f"{symbol(name)}.o"
    with suppress(OSError):
        stored = path.read_bytes()
        if trusted(path) and stored[:CHECKSUM] == _checksum(name, stored[CHECKSUM:]):
            return stored[CHECKSUM:]
    return None


def write(name: Name, code: bytes) -> bool:
    """Keep object code for other processes, if that can be; whether it was."""
    place = folder()
    if place is None:
        return False
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(suffix=".tmp", dir=place)
        with open(handle, "wb") as file:
            file.write(_checksum(name, code) + code)
        os.replace(temporary, place / f"{symbol(name)}.o")
    except OSError:  # a full disk, a folder that is gone: it can always be built
        with suppress(OSError):
            os.unlink(temporary)
        return False
    return True


@contextmanager
def claimed(label: str) -> Iterator[None]:
    """Wait while another process has this label, `PATIENCE` seconds at most."""
    place = folder()
    if place is None:
        yield
        return
    path, until = place / f"{label}.lock", monotonic() + PATIENCE
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


def _checksum(name: Name, code: bytes) -> bytes:
    key = blake2b(stamp() + repr(name).encode()).digest()
    return blake2b(code, key=key, digest_size=CHECKSUM).digest()
