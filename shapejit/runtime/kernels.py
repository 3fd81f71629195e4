"""Kernels for whoever names one: ready to be called, or their addresses.

No module but this one, and those in `kernels`, knows who compiles them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from . import processor
from .compilation import apart, load
from .kernel_names import Call, Code, Entry, Function
from .numba_settings import number

Run = Callable[[Any, Any, Any, int], None]  # places, work, span, stage


@cache
def compiled() -> bool:
    """Whether kernels are compiled; with the JIT off they are plain Python."""
    return not number("NUMBA_DISABLE_JIT", 0)


@cache
def vector() -> int:
    """The bytes of the widest vector that kernels use."""
    return apart(processor.vector)


def kind(argument: Any) -> str:
    """The kind of an argument, as an Entry has it; a tag is its own."""
    if isinstance(argument, str):
        return argument
    return "at"[argument.ndim - 1] if isinstance(argument, np.ndarray) else "i"


def bound(entry: Entry, arguments: Sequence[Any]) -> Run:
    """A kernel with all that stands behind its first four arguments, in the order of `kinds`.

    Functions and Codes stand for their addresses, tags for themselves.
    """
    function, tags = _named(entry.kernel), load("constants").TAGS
    given = [
        tags[a] if isinstance(a, str)
        else a if isinstance(a, np.ndarray)
        else address(a) if isinstance(a, Function | Code)
        else int(a)
        for a in arguments
    ]  # fmt: skip

    def run(places: Any, work: Any, span: Any, stage: int) -> None:
        function(places, work, span, stage, *given)

    return run


@cache
def address(function: Function | Code) -> int:
    """Where the machine code of a function is, for kernels to call: not 0."""
    made: int
    if isinstance(function, Code):
        made = load(function.writer).entry(function.what)
    else:
        tags = load("constants").TAGS
        kernel, given = _named(function.kernel), (tags[tag] for tag in function.tags)
        made = load("calls").entry(kernel, function.ints, *given)
    return made


@cache
def called(call: Call) -> Callable[..., Any]:
    """A kernel that takes and returns what the Call says."""
    function, objects = _named(call.kernel), call.kinds.count("o")
    if objects == 1:
        return lambda x, *rest: function(id(x), *rest)
    if objects == 2:
        return lambda x, y, *rest: function(id(x), id(y), *rest)
    return function


def marks() -> Any:
    """Where it is kept which kinds of kernels were compiled; None: there is no folder for it."""
    return load("jit").marks()


def _named(kernel: str) -> Callable[..., Any]:
    """The kernel "module.function"."""
    module, _, name = kernel.partition(".")
    function: Callable[..., Any] = getattr(load(module), name)
    return function
