"""The only module with numba's options; imported by the builder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba.core.registry import CPUDispatcher
from numba.core.target_extension import dispatcher_registry, jit_registry
from numba.types import unliteral
from numpy.typing import NDArray

from .compiler import TARGET, Compiler, Hardware

Address = int  # for type checkers: see `pointers`
BitAddress = int
Numbers = NDArray[np.int64]  # of one dim
Table = NDArray[np.int64]  # of two dims

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


class _Kernel(CPUDispatcher):  # type: ignore[misc]  # numba is not type-checked
    """A function whose calls with the literal 0 share the code of calls with any int."""

    targetdescr = TARGET

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """What a call of these types runs; numba would compile a kernel anew for each literal."""
        return super().get_call_template(tuple(map(unliteral, args)), kws)


def kernel(function: Kernel, **options: object) -> Kernel:
    """A decorator: compile for the builder, and for kernels that call the function.

    Callers pass all memory, so kernels count no references, which would cost 0.1 us per call of
    another kernel. Wrappers are not needed: see `builder.objects`.
    """
    options |= {
        "nopython": True,
        "error_model": "numpy",
        "boundscheck": False,
        "_nrt": False,
        "no_rewrites": True,
    }
    options |= {"no_cfunc_wrapper": True, "no_cpython_wrapper": True}
    return cast(Kernel, _Kernel(py_func=function, targetoptions=options, pipeline_class=Compiler))


def inlined(function: Kernel) -> Kernel:
    """A decorator: LLVM inlines the kernel into those that call it.

    numba's own inlining took 1.5 s of the 45 s of CPU of all kernels.
    """
    return kernel(function, forceinline=True)


# What numba implements in Python, such as `min`, is compiled as kernels are.
dispatcher_registry[Hardware] = _Kernel
jit_registry[Hardware] = lambda **_: kernel
