"""The one spelling of the numba options, and a disk cache that never stands in the way."""

from __future__ import annotations

import gc
import logging
import pickle
import re
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from hashlib import blake2b
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar, cast

import llvmlite
import numba
import numpy as np
from numba import config, njit
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.compiler_lock import global_compiler_lock
from numba.types import unliteral
from numpy.typing import NDArray

from ..runtime.compilation import apart

COMPILED = not config.DISABLE_JIT

Numbers = NDArray[np.int64]  # of one dim
Table = NDArray[np.int64]  # of two dims

LOGGER = logging.getLogger("shapejit")
NOTICED = 1.0  # seconds of a compilation that is logged
NOTICE = "compiled kernels in %.1f s; `shapejit warmup` or shapejit.warmup() does so beforehand"

# A module outside `kernels` whose functions or constants kernels compile.
SHARED = re.compile(rb"^from \.\.([\w.]+) import ", re.MULTILINE)

Kernel = TypeVar("Kernel", bound=Callable[..., Any])
Result = TypeVar("Result")


def kernel(function: Kernel) -> Kernel:
    """Compile at first use, without the GIL."""
    return _compile(function, nogil=True)


def held_kernel(function: Kernel) -> Kernel:
    """Compile at first use; the GIL stays held, for whoever reads Python's own objects."""
    return _compile(function, nogil=False)


def inlined(function: Kernel) -> Kernel:
    """Part of the kernels that call it: compiled with each of them, never by itself."""
    return cast(Kernel, njit(inline="always", error_model="numpy")(function))


def _compile(function: Kernel, nogil: bool) -> Kernel:
    # Kernels take memory from whoever calls: without numba's they do not count references,
    # which cost 0.1 us per call of another kernel. Wrappers for C would be a tenth of every
    # compilation, and nobody calls them.
    options = {"error_model": "numpy", "boundscheck": False}
    options |= {"_nrt": False, "no_cfunc_wrapper": True}
    compiled = njit(nogil=nogil, **options)(function)
    if COMPILED:
        try:
            compiled._cache = _Cache(function)
        except RuntimeError:  # numba found no folder that it may write
            _warn_of_no_folder()
        # numba calls these for arguments whose types it does not know yet (which imports
        # numpy.ma), and for types that it has not compiled; then it runs what it got.
        for name in ("typeof_pyval", "_compile_for_args"):
            setattr(compiled, name, partial(compile_apart, getattr(compiled, name)))
        compiled.get_call_template = partial(_unliteral, compiled.get_call_template)
    return cast(Kernel, compiled)


@cache
def _warn_of_no_folder() -> None:
    warnings.warn(
        "shapejit finds no folder that it may write for compiled kernels: every process compiles "
        "them anew. Let the environment variable NUMBA_CACHE_DIR name one.",
        RuntimeWarning,
        stacklevel=2,
    )


def compile_apart(step: Callable[..., Result], *arguments: Any) -> Result:
    """Take a step of a compilation where no signal strikes: see `compilation`.

    Not for a caller that numba's lock belongs to, being called by something that numba
    compiles: another thread would wait for that lock. A step that takes long is logged.
    """
    if global_compiler_lock.is_locked():
        return step(*arguments)
    start = perf_counter()
    try:
        result: Result = apart(_uncollected, step, *arguments)
        return result
    finally:
        taken = perf_counter() - start
        if taken > NOTICED:
            LOGGER.info(NOTICE, taken)


def _undisturbed(step: Callable[..., Result], *arguments: Any) -> Result:
    """Take a step whose errors are its own, never those of a signal handler."""
    return step(*arguments) if global_compiler_lock.is_locked() else apart(step, *arguments)


def _uncollected(step: Callable[..., Result], *arguments: Any) -> Result:
    """Take a step without garbage collections, a tenth of every compilation.

    Under the lock that forks take: a child would never collect again.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        return step(*arguments)
    finally:
        if enabled:
            gc.enable()


def _unliteral(template: Callable[..., Result], kinds: Any, named: Any) -> Result:
    """Compile a kernel that another calls with a 0 as that of any int, not as one of its own."""
    return template(tuple(map(unliteral, kinds)), named)


class _Cache(FunctionCache):  # type: ignore[misc]  # Any: numba is not type-checked
    """numba's disk cache with files of our own, ignored when the disk fails."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file = _CacheFiles(self._cache_path, self._impl.filename_base, _stamp())

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        return self._attempt(partial(super().load_overload, sig, target_context))

    def save_overload(self, sig: Any, data: Any) -> None:
        self._attempt(partial(super().save_overload, sig, data))

    def _attempt(self, action: Callable[[], Any]) -> Any:
        return _undisturbed(self._attempted, action)

    def _attempted(self, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except Exception as fault:
            # A full disk, a folder that is gone: the kernel can always be compiled.
            self.disable()
            warnings.warn(f"shapejit goes on without numba's disk cache: {fault}", stacklevel=2)
            return None


class StoredCode(_Cache):
    """Serialised machine code on disk, beside the kernels of the file that a function stands in."""

    def load(self, key: object) -> Any:
        """What was saved under a key; None where there is nothing."""
        return self._attempt(partial(self._cache_file.load, key)) if self._enabled else None

    def save(self, key: object, code: Any) -> None:
        """Keep code for other processes, if that can be."""
        if self._enabled:
            self._attempt(self._impl.locator.ensure_cache_path)
            self._attempt(partial(self._cache_file.save, key, code))


@cache
def stored_code(function: Callable[..., Any]) -> StoredCode | None:
    """Where code is kept that belongs to a function; None: numba found no folder for it."""
    with suppress(RuntimeError):
        return StoredCode(function)
    return None


@cache
def marks() -> StoredCode | None:
    """Where it is kept which kinds of kernels were compiled; None: there is no folder for it."""
    return _undisturbed(stored_code, kernel)


class _CacheFiles(IndexDataCacheFile):  # type: ignore[misc]  # Any: numba is not type-checked
    """One file per compiled signature: a checksum, then the pickled machine code.

    numba's files are trusted as they are, and share an index, in which concurrent
    processes overwrite each other's entries. Here the checksum is keyed with the stamp,
    the function and the signature: a file that is damaged, stale or another's counts
    as missing, and is replaced.
    """

    def load(self, key: Any) -> Any:
        name = self._name(key)
        try:
            stored = Path(self._data_path(name)).read_bytes()
        except FileNotFoundError:
            return None
        content = stored[blake2b.MAX_DIGEST_SIZE :]
        if stored != self._checksum(name, key, content) + content:
            return None
        return pickle.loads(content)

    def save(self, key: Any, data: Any) -> None:
        name = self._name(key)
        content = self._dump(data)
        with self._open_for_write(self._data_path(name)) as file:
            file.write(self._checksum(name, key, content) + content)

    def _name(self, key: Any) -> str:
        """The function's name and line, and a digest of the signature."""
        number = int.from_bytes(blake2b(repr(key).encode(), digest_size=8).digest())
        return str(self._data_name(number))

    def _checksum(self, name: str, key: Any, content: bytes) -> bytes:
        secret = blake2b(self._source_stamp + name.encode() + repr(key).encode())
        return blake2b(content, key=secret.digest()).digest()


@cache
def _stamp() -> bytes:
    """A digest of all that is compiled into kernels: they call each other and bake in constants.

    numba's own stamp is the digest of the one file that a function stands in. The modules that
    kernels share with the rest of the package import nothing of it themselves (a test of the
    architecture sees to that): so an error's text, say, is no part of this.
    """
    digest = blake2b(f"{numba.__version__} {llvmlite.__version__}".encode())
    folder = Path(__file__).parent
    own = [file.read_bytes() for file in sorted(folder.glob("*.py"))]
    shared = sorted({name.decode() for source in own for name in SHARED.findall(source)})
    files = [folder.parent / f"{name.replace('.', '/')}.py" for name in shared]
    for source in (*own, *(file.read_bytes() for file in files)):
        digest.update(source)
    return digest.digest()
