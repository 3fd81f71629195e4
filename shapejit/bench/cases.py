"""What is measured: a `Case` says which bytes there are and how a copy has to see them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..dtypes.table import dtype

MIB = 1024 * 1024
COUNTED = 64 * MIB  # smaller results stay in some machine's cache, and say little of its memory

_KEPT = 8  # dims up to this size make a case what it is, such as 3 channels or 4 x 4 patches
_PERIOD = 16  # a scaled dim keeps its remainder: rows that lay off the cache lines still do


@dataclass(frozen=True)
class Case:
    """One copy: a row-major array of `shape` and `dtype`, seen in another order, made row-major.

    The view is `axes`, a permutation of the array's dims, or else what `look`
    makes of the array, in words `note`. `shift` is how many bytes the output
    starts behind an allocation. `fresh` copies have no out=.
    """

    suite: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    axes: tuple[int, ...] | None = None
    look: Callable[[NDArray[Any]], NDArray[Any]] | None = None
    note: str = ""
    shift: int = 0
    fresh: bool = False

    @property
    def id(self) -> str:
        """What `--case` searches: suite, name and dtype."""
        return f"{self.suite}/{self.name}/{self.dtype}"

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return dtype(self.dtype).bits // 8

    @property
    def source_nbytes(self) -> int:
        """Bytes of the array; the result of a slice or a broadcast has others."""
        return prod(self.shape) * self.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of the result."""
        # A view of one stored byte: shapes only.
        seen = self.view(np.broadcast_to(np.empty((), np.uint8), self.shape))
        return seen.size * self.itemsize

    @property
    def moved(self) -> int:
        """Half the bytes that are read and written: so many does a memcpy of as many copy."""
        return self.nbytes

    @property
    def counted(self) -> bool:
        """Whether the result is too large for a cache."""
        return self.nbytes >= COUNTED

    @property
    def part(self) -> str:
        """The part of its suite that is summed up with this case."""
        return self.dtype

    def view(self, base: NDArray[Any]) -> NDArray[Any]:
        """The view of an array of this case's shape that a copy makes row-major."""
        if self.look is not None:
            return self.look(base)
        return base.transpose(self.axes)

    def source(self) -> NDArray[Any]:
        """The array: bytes that look random, the same in every process."""
        kind = dtype(self.dtype).numpy
        assert kind is not None
        return pattern(self.source_nbytes).view(kind).reshape(self.shape)

    def output(self) -> NDArray[Any]:
        """Memory for the result, as `shift` asks."""
        kind = dtype(self.dtype).numpy
        assert kind is not None
        shape = self.view(np.broadcast_to(np.empty((), np.uint8), self.shape)).shape
        memory = np.empty(self.shift + prod(shape) * self.itemsize, np.uint8)
        memory.fill(0)  # mapped before the clock runs
        return memory[self.shift :].view(kind).reshape(shape)

    def batched(self, nbytes: int = COUNTED) -> Case:
        """At least so many bytes (of a permutation): dim 0, or a new one before it, grows."""
        assert self.axes is not None
        times = -(-nbytes // self.source_nbytes)
        if times == 1:
            return self
        if self.axes[0] == 0:
            return replace(self, shape=(times * self.shape[0], *self.shape[1:]))
        return replace(self, shape=(times, *self.shape), axes=(0, *(1 + a for a in self.axes)))

    def scaled(self, factor: float) -> Case:
        """About `factor` times the bytes: all larger dims grow or shrink alike."""
        return self if factor == 1 else replace(self, shape=_scaled(self.shape, factor))

    def sized(self, nbytes: int) -> Case:
        """About so many bytes in the array."""
        return self.scaled(nbytes / self.source_nbytes)


def pattern(nbytes: int) -> NDArray[np.uint8]:
    """Bytes that look random and are made at the speed of memory (Fibonacci hashing)."""
    words = np.arange(1, nbytes // 8 + 2, dtype=np.uint64)
    words *= np.uint64(0x9E3779B97F4A7C15)
    return words.view(np.uint8)[:nbytes]


def _scaled(shape: tuple[int, ...], factor: float) -> tuple[int, ...]:
    """The shape with about `factor` times the elements.

    >>> _scaled((7264, 7264), 0.25), _scaled((4095, 4097), 0.25), _scaled((2, 2, 2), 0.25)
    ((3632, 3632), (2047, 2049), (1, 1, 2))
    """
    wanted = factor * prod(shape)
    if max(shape, default=1) <= _KEPT:
        gone = next((k for k in range(len(shape)) if prod(shape[k:]) <= wanted), len(shape))
        return (1,) * gone + shape[gone:]
    low, high = 0.0, max(1.0, factor)
    for _ in range(40):
        middle = (low + high) / 2
        if prod(_dims(shape, middle)) < wanted:
            low = middle
        else:
            high = middle
    return min(_dims(shape, low), _dims(shape, high), key=lambda dims: abs(prod(dims) - wanted))


def _dims(shape: tuple[int, ...], ratio: float) -> tuple[int, ...]:
    return tuple(_dim(size, ratio) for size in shape)


def _dim(size: int, ratio: float) -> int:
    if size <= _KEPT:
        return size
    # Dims below 128 would jump too far: they stay even or odd.
    period = _PERIOD if size * ratio >= 8 * _PERIOD else 2
    rest = size % period
    return max(_KEPT, period * round((size * ratio - rest) / period)) + rest
