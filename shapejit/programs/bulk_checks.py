"""Checks of many ndarrays at once, by their attributes.

No check reads the address of an array: that takes Python longer than copying a small one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..runtime.launches import address_of

DTYPE, SHAPE, STRIDES, _BASE, _FLAGS = map(
    attrgetter, ("dtype", "shape", "strides", "base", "flags.num")
)
_CARRAY, _OWNDATA = 0x0501, 0x0004  # of NumPy's flags


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
    read, written = _owners(items, {*map(_FLAGS, items)}), _owners(outs, flags)
    if not read or not written or read & written:
        return False
    if len(written) == len(outs):  # each has memory of its own
        return True
    spans = sorted((address_of(into), into.nbytes) for into in outs)
    return all(begin + nbytes <= after for (begin, nbytes), (after, _) in pairwise(spans))


def _owners(arrays: Sequence[NDArray[Any]], flags: set[int]) -> set[int]:
    """The ndarrays that own this memory, by identity; empty if other objects own it."""
    if not all(one & _OWNDATA for one in flags):
        bases = zip(arrays, map(_BASE, arrays), strict=True)
        arrays = [x if base is None else base for x, base in bases]
        if not are_exact(arrays) or not all(one & _OWNDATA for one in {*map(_FLAGS, arrays)}):
            return set()
    return {*map(id, arrays)}
