"""Checks of many ndarrays at once, by their attributes.

No check reads the address of an array: that takes Python longer than copying a small one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from operator import attrgetter
from types import NoneType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..runtime.launches import address_of

DTYPE, SHAPE, STRIDES, _BASE, _FLAGS = map(
    attrgetter, ("dtype", "shape", "strides", "base", "flags.num")
)
_CARRAY = 0x0501  # of NumPy's flags


def are_exact(arrays: Sequence[Any]) -> bool:
    """Whether all are ndarrays, and not of a subclass."""
    return {*map(type, arrays)} == {np.ndarray}


def are_alike(arrays: Sequence[Any], *like: object) -> bool:
    """Whether all are exact ndarrays of one dtype, shape and, where given, strides."""
    kind, count = zip((DTYPE, SHAPE, STRIDES), like, strict=False), len(arrays)
    return are_exact(arrays) and all([*map(get, arrays)].count(one) == count for get, one in kind)


def may_fill(items: Sequence[NDArray[Any]], outs: Sequence[NDArray[Any]]) -> bool:
    """Whether outputs are C-contiguous and writable, and obviously share no memory.

    Neither with a source nor with one another.
    """
    flags = {*map(_FLAGS, outs)}
    if not all(one & _CARRAY == _CARRAY for one in flags):
        return False
    read, written = _owners(items), {*map(id, _owners(outs))}
    if not read or not written or not written.isdisjoint(map(id, read)):
        return False
    if len(written) == len(outs):  # each has memory of its own
        return True
    spans = sorted((address_of(into), into.nbytes) for into in outs)
    return all(begin + nbytes <= after for (begin, nbytes), (after, _) in pairwise(spans))


def _owners(arrays: Sequence[NDArray[Any]]) -> Sequence[NDArray[Any]]:
    """The ndarrays that own this memory: those without a base; () if other objects own it."""
    bases = [*map(_BASE, arrays)]
    if {*map(type, bases)} != {NoneType}:
        arrays = [x if base is None else base for x, base in zip(arrays, bases, strict=True)]
        if not are_exact(arrays) or any(x.base is not None for x in arrays):
            return ()
    return arrays
