"""The one spelling of numba's options. The builder imports it, and whoever has the JIT off."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np
from numba import config, njit
from numba.types import unliteral
from numpy.typing import NDArray

COMPILED = not config.DISABLE_JIT

Numbers = NDArray[np.int64]  # of one dim
Table = NDArray[np.int64]  # of two dims

Kernel = TypeVar("Kernel", bound=Callable[..., Any])
Result = TypeVar("Result")


def kernel(function: Kernel) -> Kernel:
    """Compile for the builder, and for kernels that call it.

    Kernels take memory from whoever calls: without numba's they do not count references, which
    cost 0.1 us per call of another kernel. Nobody needs wrappers: see `builder.objects`.
    """
    options = {"error_model": "numpy", "boundscheck": False, "_nrt": False}
    options |= {"no_cfunc_wrapper": True, "no_cpython_wrapper": True}
    compiled = njit(**options)(function)
    if COMPILED:
        compiled.get_call_template = partial(_unliteral, compiled.get_call_template)
    return cast(Kernel, compiled)


def inlined(function: Kernel) -> Kernel:
    """Part of the kernels that call it: compiled with each of them, never by itself."""
    return cast(Kernel, njit(inline="always", error_model="numpy")(function))


def _unliteral(template: Callable[..., Result], kinds: Any, named: Any) -> Result:
    """Compile a kernel that another calls with a 0 as that of any int, not as one of its own."""
    return template(tuple(map(unliteral, kinds)), named)
