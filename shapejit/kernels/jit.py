"""The one spelling of the numba options, and a disk cache that never stands in the way."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numba import config, njit
from numba.core.caching import FunctionCache
from numpy.typing import NDArray

COMPILED = not config.DISABLE_JIT

Numbers = NDArray[np.int64]  # of one dim
Table = NDArray[np.int64]  # of two dims

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


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
    compiled = njit(nogil=nogil, error_model="numpy", boundscheck=False)(function)
    if COMPILED:
        # RuntimeError: numba found no folder that it may write. Every process compiles then.
        with suppress(RuntimeError):
            compiled._cache = _Cache(function)
    return cast(Kernel, compiled)


class _Cache(FunctionCache):  # type: ignore[misc]  # Any: numba is not type-checked
    """numba's disk cache, stale when any kernel file changes, ignored when the disk fails.

    numba stamps a cache with the file of the function alone, so that an edited
    intrinsic in another file would leave old machine code in use.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        here = Path(__file__).parent
        # The resolver's arithmetic is compiled too, see `shapes`.
        files = [
            *sorted(here.glob("*.py")),
            *(here.parent / f for f in ("request.py", "resolver.py")),
        ]
        self._cache_file._source_stamp = tuple(
            (f.name, f.stat().st_mtime, f.stat().st_size) for f in files
        )

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        return self._attempt(partial(super().load_overload, sig, target_context))

    def save_overload(self, sig: Any, data: Any) -> None:
        self._attempt(partial(super().save_overload, sig, data))

    def _attempt(self, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except Exception as fault:
            # A full disk, a damaged or foreign file: the kernel can always be compiled.
            self.disable()
            warnings.warn(f"shapejit goes on without numba's disk cache: {fault}", stacklevel=2)
            return None
