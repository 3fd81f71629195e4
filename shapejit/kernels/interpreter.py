"""Kernels with the JIT off: the same functions, run by Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from ..runtime.kernel_names import Call, Code, Entry, Function
from . import reference
from .constants import TAGS


def bound(entry: Entry, arguments: Sequence[Any]) -> Callable[..., Any]:
    """As `runtime.kernels.bound`."""
    function = _named(entry.kernel)
    given = [
        TAGS[a] if isinstance(a, str)
        else a if isinstance(a, np.ndarray)
        else address(a) if isinstance(a, Function | Code)
        else int(a)
        for a in arguments
    ]  # fmt: skip
    return lambda places, work, span, stage: function(places, work, span, stage, *given)


@cache
def address(function: Function | Code) -> int:
    """The number of a function for `reference.call`, in place of its address."""
    if isinstance(function, Code):
        return reference.written(function.writer, function.what)
    kernel, tags = _named(function.kernel), [TAGS[tag] for tag in function.tags]
    return reference.entry_of(lambda *arguments: kernel(*arguments, *tags))


@cache
def called(call: Call) -> Callable[..., Any]:
    """As `runtime.kernels.called`."""
    function, objects = _named(call.kernel), call.kinds.count("o")
    return lambda *given: function(*map(id, given[:objects]), *given[objects:])


def _named(kernel: str) -> Callable[..., Any]:
    """The kernel "module.function"."""
    module, _, name = kernel.partition(".")
    function: Callable[..., Any] = getattr(import_module(f".{module}", __package__), name)
    return function
