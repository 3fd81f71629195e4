"""Thousands of tensors at once: what they are, where they lie, and that they lie apart."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from . import engine
from .compilation import load
from .engine import Addresses
from .errors import ReshapeError

Spans = tuple[Addresses, Addresses]  # the first byte of each, and the byte past the last

FEW = 32  # tensors that are asked one by one: numba is not imported for their sake


def headers(count: int) -> ModuleType | None:
    """The kernels that read ndarrays where they lie, if they are to be had and to be trusted."""
    if count < FEW and "numba" not in sys.modules:
        return None
    return _headers()


def parcels() -> ModuleType:
    """The kernels that make and move parcels."""
    return load("parcels")


def shapes() -> ModuleType:
    """The kernels that resolve shapes."""
    return load("shapes")


@cache
def _headers() -> ModuleType | None:
    headers = load("headers")
    return headers if headers.trusted() else None


def alike(
    items: tuple[Any, ...],
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    filled: bool = False,
) -> tuple[Addresses, int]:
    """The addresses of plain ndarrays of these facts (strides in bytes), and how many there are.

    They end with the first item that is another. Those to be `filled` must be
    C-contiguous and writable.
    """
    addresses = np.empty(len(items), np.int64)
    kernels = headers(len(items))
    if kernels is not None:
        facts = kernels.facts_of(dtype, shape, strides)
        flags = kernels.CONTIGUOUS_WRITEABLE if filled else 0
        call = id(items), len(items), facts, flags, addresses
        return addresses, kernels.read_alike(*call)
    for i, x in enumerate(items):
        like = type(x) is np.ndarray and x.dtype == dtype and x.shape == shape
        if not like or (x.strides != strides and x.size > 1) or (filled and not x.flags.carray):
            return addresses, i
        addresses[i] = engine.address_of(x)
    return addresses, len(items)


def spans(
    addresses: Addresses, shape: Sequence[int], strides: Sequence[int], itemsize: int
) -> Spans:
    """The bytes that each of like arrays reaches; strides in bytes."""
    if 0 in shape:
        return addresses, addresses
    reaches = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    low, high = sum(r for r in reaches if r < 0), sum(r for r in reaches if r > 0)
    return addresses + low, addresses + high + itemsize


def crossings(sources: Spans, targets: Spans) -> list[tuple[int, int]]:
    """The pairs (source, target) whose spans meet; the targets are disjoint."""
    lows, highs = sources
    starts, ends = targets
    filled = np.flatnonzero(ends > starts)
    if len(filled) == 0:
        return []
    # Nearly always all targets lie apart from all sources.
    near = np.flatnonzero((lows < ends.max()) & (highs > starts[filled].min()) & (lows < highs))
    if len(near) == 0:
        return []
    order = filled[np.argsort(starts[filled], kind="stable")]
    first = np.searchsorted(ends[order], lows[near], "right")
    last = np.searchsorted(starts[order], highs[near], "left")
    met = np.flatnonzero(last > first)
    return [
        (int(near[k]), int(j)) for k in met.tolist() for j in order[first[k] : last[k]].tolist()
    ]


def check_disjoint(targets: Spans, names: Sequence[object]) -> None:
    """Refuse spans that share bytes with one another: two results cannot lie there."""
    starts, ends = targets
    filled = np.flatnonzero(ends > starts)
    starts, ends = starts[filled], ends[filled]
    if not (starts[1:] < ends[:-1]).any():
        return
    order = np.argsort(starts, kind="stable")
    wrong = np.flatnonzero(starts[order][1:] < ends[order][:-1])
    if len(wrong):
        pair = sorted(int(filled[order[wrong[0] + k]]) for k in (0, 1))
        raise ReshapeError(f"out {names[pair[1]]!r} overlaps out {names[pair[0]]!r}")
