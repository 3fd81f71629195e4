"""The tensor transposition benchmark TTC: 57 permutations, about 200 MiB each as float32.

In row-major terms: the result is np.ascontiguousarray(a.transpose(axes)). Published in

https://github.com/springer13/hptt/blob/942538649b51ff14403a0c73a35d9825eab2d7de/benchmark/benchmark.sh
https://github.com/HPAC/TTC/blob/e1c61e2675c3970497311b6dacee4d6bc1cf9861/benchmark/benchmark.py
"""

from __future__ import annotations

from .cases import MIB, Copy, Ints

# Axes, and the shapes of three cases each.
_PERMUTATIONS: tuple[tuple[Ints, tuple[Ints, Ints, Ints]], ...] = (
    ((1, 0), ((7264, 7264), (1216, 43408), (43408, 1216))),
    ((1, 0, 2), ((384, 384, 368), (384, 64, 2144), (2307, 64, 368))),
    ((0, 2, 1), ((355, 384, 384), (59, 384, 2320), (59, 2320, 384))),
    ((2, 1, 0), ((384, 355, 384), (384, 59, 2320), (2320, 59, 384))),
    ((2, 1, 0, 3), ((96, 75, 96, 80), (96, 75, 16, 464), (582, 75, 16, 80))),
    ((3, 0, 2, 1), ((75, 96, 75, 96), (75, 96, 12, 608), (75, 608, 12, 96))),
    ((2, 0, 3, 1), ((75, 96, 75, 96), (75, 96, 12, 608), (75, 608, 12, 96))),
    ((1, 0, 3, 2), ((75, 75, 96, 96), (75, 12, 96, 608), (75, 12, 608, 96))),
    ((3, 2, 1, 0), ((96, 75, 75, 96), (96, 75, 12, 608), (608, 75, 12, 96))),
    ((1, 3, 2, 0, 4), ((48, 28, 28, 48, 32), (48, 28, 28, 8, 176), (298, 28, 28, 8, 32))),
    ((4, 0, 3, 2, 1), ((28, 48, 28, 28, 48), (28, 48, 28, 4, 352), (28, 352, 28, 4, 48))),
    ((1, 3, 0, 4, 2), ((28, 28, 48, 28, 48), (28, 28, 48, 4, 352), (28, 28, 352, 4, 48))),
    ((2, 0, 4, 1, 3), ((28, 28, 28, 48, 48), (28, 28, 4, 48, 352), (28, 28, 4, 352, 48))),
    ((4, 3, 2, 1, 0), ((48, 28, 28, 28, 48), (48, 28, 28, 4, 352), (352, 28, 28, 4, 48))),
    ((4, 1, 0, 3, 2, 5),
     ((15, 15, 32, 15, 32, 16), (15, 15, 32, 15, 10, 48), (15, 15, 103, 15, 10, 16))),
    ((1, 4, 0, 5, 3, 2),
     ((15, 15, 32, 15, 15, 32), (15, 15, 32, 15, 5, 112), (15, 15, 112, 15, 5, 32))),
    ((2, 0, 4, 1, 5, 3),
     ((15, 15, 15, 32, 15, 32), (15, 15, 15, 32, 5, 112), (15, 15, 15, 112, 5, 32))),
    ((1, 5, 4, 0, 3, 2),
     ((15, 15, 32, 15, 15, 32), (15, 15, 32, 15, 5, 112), (15, 15, 112, 15, 5, 32))),
    ((5, 4, 3, 2, 1, 0),
     ((32, 15, 15, 15, 15, 32), (32, 15, 15, 15, 5, 112), (112, 15, 15, 15, 5, 32))),
)  # fmt: skip
# Shape and axes of case 1, 2, ...
CASES = tuple((shape, axes) for axes, shapes in _PERMUTATIONS for shape in shapes)

# Two to six dims, with and without the fastest dim in place.
SUBSET = (1, 4, 7, 10, 13, 16, 25, 28, 31, 43, 46, 55)
_DTYPES = ("uint8", "bfloat16", "float64", "complex128")
_SUBSET_BYTES = 128 * MIB


def case(number: int, group: str = "ttc", dtype: str = "float32") -> Copy:
    """TTC case `number`, 1 to 57."""
    shape, axes = CASES[number - 1]
    return Copy(group, f"ttc-{number:02}/{dtype}", dtype, shape, axes)


def float32() -> tuple[Copy, ...]:
    """All 57 as published."""
    return tuple(case(number) for number in range(1, len(CASES) + 1))


def dtypes() -> tuple[Copy, ...]:
    """About every fifth case in other widths, with equal bytes."""
    cases = [case(number, "ttc-dtypes", dtype) for dtype in _DTYPES for number in SUBSET]
    return tuple(made.scaled(_SUBSET_BYTES / made.source_nbytes) for made in cases)
