"""Random permutations, slices and flips, to find copies that take far longer than memcpy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from .cases import MIB, Copy, Ints, bits_of, named
from .packed import Packed

GROUP, PERMUTATIONS = "random", "permutations"
COUNT, COUNT_OF_A_WIDTH = 60, 200  # cases of a seed
_SOURCE, _PERMUTED = 96 * MIB, 64 * MIB
_LARGEST = 512  # of all dims but the one that makes up the bytes
_LINE = 64
_DTYPES = ("uint8", "uint16", "float32", "float64", "complex128")
_PACKED = ("int4", "int2", "uint1")
_STEPS = (1, 1, 2, 3, 5)

Cut = tuple[float, float, int]  # start and end as parts of the dim, and the step


@dataclass(frozen=True)
class RandomCopy(Copy):
    """A copy of `axes` of a slice: `cuts` has a start, an end and a step for every dim.

    If a step is negative, the slice runs from end to start.
    """

    cuts: tuple[Cut, ...] = ()

    @cached_property
    def moved(self) -> int:
        """Half of the bytes read and written: of cache lines touched in the source, and the result.

        That is what memcpy copies with as much traffic. The source is taken to
        begin on a cache line of 64 bytes.
        """
        touched = np.zeros(self.shape, np.bool_)
        seen = self.view(touched)
        seen[...] = True
        each = _LINE // self.itemsize
        lines = np.zeros(-(-touched.size // each) * each, np.bool_)
        lines[: touched.size] = touched.reshape(-1)
        nbytes = _LINE * int(lines.reshape(-1, each).any(axis=1).sum())
        return int(min(nbytes, self.source_nbytes) + seen.size * self.itemsize) // 2

    def view(self, base: Any) -> Any:
        """The view of an array of this case's shape that a copy makes row-major."""
        kept = (_slice(size, cut) for size, cut in zip(base.shape, self.cuts, strict=True))
        return base[tuple(kept)].transpose(self.axes)


def _slice(size: int, cut: Cut) -> slice:
    start, end = int(size * cut[0]), max(int(size * cut[1]), int(size * cut[0]) + 1)
    if cut[2] > 0:
        return slice(start, end, cut[2])
    return slice(end - 1, start - 1 if start else None, cut[2])


def cases(seed: int = 0) -> tuple[RandomCopy, ...]:
    """`COUNT` cases of 96 MiB, the same for the same seed.

    Arrays have 2 to 6 dims of 2 to 512 elements, one of them longer if need be.
    Half of the cases are permutations, the others slices and flips, most of them
    permuted as well.
    """
    rng = np.random.default_rng(seed)
    return tuple(_case(rng, k) for k in range(COUNT))


def permutations(seed: int = 0) -> tuple[Copy, ...]:
    """`COUNT_OF_A_WIDTH` permutations of 64 MiB of every width, the same for the same seed."""
    made = list[Copy]()
    for dtype in (*_DTYPES, *_PACKED):
        kind = Packed if dtype in _PACKED else Copy
        rng = np.random.default_rng([seed, bits_of(dtype)])
        for number in range(COUNT_OF_A_WIDTH):
            shape = _shape(rng, _PERMUTED * 8 // bits_of(dtype))
            axes = _order(rng, len(shape))
            name = named(f"{number:03}", shape, axes, dtype)
            made.append(kind(PERMUTATIONS, name, dtype, shape, axes))
    return tuple(made)


def _order(rng: np.random.Generator, rank: int) -> Ints:
    """A permutation other than the identity."""
    axes = tuple(int(axis) for axis in rng.permutation(rank))
    return axes[::-1] if axes == tuple(sorted(axes)) else axes


def _case(rng: np.random.Generator, number: int) -> RandomCopy:
    kind = str(rng.choice(["permutation", "permutation", "slice", "flip"]))
    dtype = str(rng.choice(_DTYPES))
    shape = _shape(rng, _SOURCE // bits_of(dtype) * 8)
    axes = tuple(int(axis) for axis in rng.permutation(len(shape)))
    cuts = [(0.0, 1.0, 1)] * len(shape)
    if kind != "permutation":
        some = rng.permutation(len(shape))[: rng.integers(1, min(3, len(shape)) + 1)]
        for axis in some.tolist():
            cuts[axis] = (0.0, 1.0, -1) if kind == "flip" else _cut(rng)
        if rng.random() < 0.25:
            axes = tuple(range(len(shape)))
    elif axes == tuple(sorted(axes)):
        axes = axes[::-1]
    name = named(f"{number:02}-{kind}", shape, axes, dtype)
    return RandomCopy(GROUP, name, dtype, shape, axes, cuts=tuple(cuts))


def _shape(rng: np.random.Generator, count: int) -> Ints:
    """Dims of all orders of magnitude with about `count` elements."""
    while True:
        rank = int(rng.integers(2, 7))
        dims = np.exp(rng.uniform(np.log(2), np.log(_LARGEST + 1), rank)).astype(int).tolist()
        filled = int(rng.integers(rank))
        dims[filled] = 1
        dims[filled] = round(count / prod(dims))
        if dims[filled] >= 2 and abs(prod(dims) / count - 1) < 0.1:
            return tuple(dims)


def _cut(rng: np.random.Generator) -> Cut:
    start, end = float(rng.choice([0, 0, 0.01, 0.25])), float(rng.choice([1, 1, 0.99, 0.75]))
    return start, end, int(rng.choice(_STEPS)) * int(rng.choice([1, 1, -1]))
