"""The suites of `shapejit bench`: every list of cases by its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import casts, cliffs, joins, packed, repacks, schemes, ttc, workloads
from .cases import Case

Look = Callable[[NDArray[Any]], NDArray[Any]]


def _views() -> tuple[Case, ...]:
    """Slices, negative strides and broadcasts, alone and under a transposition."""
    inner, outer = (64, 1024, 1024), (256, 1024, 1024)
    table: tuple[tuple[str, tuple[int, ...], tuple[str, ...], str, Look], ...] = (
        ("slice-columns", (8192, 8192), ("float32",), "a[:, n/128 : n/128 + n/2]",
         lambda a: a[:, a.shape[1] // 128 :][:, : a.shape[1] // 2]),
        ("slice-columns-odd", (8192, 8192), ("float32",), "a[:, 3:-2]", lambda a: a[:, 3:-2]),
        ("slice-rows", (8192, 8192), ("float32",), "a[::2]", lambda a: a[::2]),
        ("slice-step2", (8192, 8192), ("float32",), "a[:, ::2]", lambda a: a[:, ::2]),
        ("slice-step2", (16384, 8192), ("uint8",), "a[:, ::2]", lambda a: a[:, ::2]),
        ("slice-step3", (8192, 8192), ("float32",), "a[:, ::3]", lambda a: a[:, ::3]),
        ("slice-transposed", (8192, 8192), ("float32",), "a[: n/2, 1:].T",
         lambda a: a[: a.shape[0] // 2, 1:].T),
        ("slice-inner", inner, ("float32",), "a[:, 1:-1, 1:-1]", lambda a: a[:, 1:-1, 1:-1]),
        ("flip-inner", (4096, 4096), ("float32",), "a[:, ::-1]", lambda a: a[:, ::-1]),
        ("flip-inner", (8192, 8192), ("uint8",), "a[:, ::-1]", lambda a: a[:, ::-1]),
        ("flip-inner", (4096, 8192), ("bfloat16",), "a[:, ::-1]", lambda a: a[:, ::-1]),
        ("flip-outer", (4096, 4096), ("float32",), "a[::-1]", lambda a: a[::-1]),
        ("flip-both", (4096, 4096), ("float32",), "a[::-1, ::-1]", lambda a: a[::-1, ::-1]),
        ("flip-transposed", (4096, 4096), ("float32",), "a[::-1, ::-1].T",
         lambda a: a[::-1, ::-1].T),
        ("rotate-quarter", (4096, 4096), ("float32",), "a.T[::-1]", lambda a: a.T[::-1]),
        ("broadcast-outer", (1024, 4096), ("float32",), "a[None] to (16, m, n)",
         lambda a: np.broadcast_to(a, (16, *a.shape))),
        ("broadcast-inner", (4096, 1), ("float32",), "a to (m, 4096)",
         lambda a: np.broadcast_to(a, (a.shape[0], 4096))),
        ("broadcast-middle", (64, 1, 4096), ("float32",), "a to (m, 64, n)",
         lambda a: np.broadcast_to(a, (a.shape[0], 64, a.shape[2]))),
        ("broadcast-transposed", (1024, 1024), ("float32",), "a.T[None] to (16, n, m)",
         lambda a: np.broadcast_to(a.T, (16, *a.T.shape))),
        ("channels-reversed", (*outer[:2], 256, 3), ("uint8",), "a[..., ::-1]",
         lambda a: a[..., ::-1]),
    )  # fmt: skip
    return tuple(
        Case("views", name, dtype, shape, look=look, note=note)
        for name, shape, dtypes, note, look in table
        for dtype in dtypes
    )


def _odd() -> tuple[Case, ...]:
    """Rows that start anywhere in a cache line, in the source, the output or both."""
    swap, reverse, turn = (1, 0), (2, 1, 0), (2, 0, 1)
    table: tuple[tuple[tuple[int, ...], tuple[int, ...], str, int], ...] = (
        ((4095, 4097), swap, "float32", 0),
        ((7263, 7265), swap, "float32", 0),
        ((7263, 7265), swap, "bfloat16", 0),
        ((8191, 8193), swap, "uint8", 0),
        ((2897, 2895), swap, "float64", 0),
        ((2047, 2049), swap, "complex128", 0),
        ((4096, 4096), swap, "float32", 4),
        ((4096, 4096), swap, "float32", 1),
        ((8192, 4096), swap, "bfloat16", 1),
        ((8192, 8192), swap, "uint8", 1),
        ((257, 257, 257), reverse, "float32", 0),
        ((255, 257, 259), turn, "float32", 0),
        ((321, 323, 325), reverse, "bfloat16", 0),
        ((405, 407, 409), turn, "uint8", 0),
        ((203, 205, 207), reverse, "float64", 0),
        ((255, 257, 259), (1, 0, 2), "float32", 0),
        ((255, 257, 259), (1, 0, 2), "float32", 1),
        ((1021, 129, 129), (0, 2, 1), "float32", 0),
    )
    cases = []
    for shape, axes, dtype, shift in table:
        name = "x".join(map(str, shape)) + "-" + "".join(map(str, axes))
        note = f"output {shift} B off" if shift else ""
        name += f"+{shift}" if shift else ""
        case = Case("odd", name, dtype, shape, axes, note=note, shift=shift)
        cases.append(case.batched())
    return tuple(cases)


def _tiny_dims() -> tuple[Case, ...]:
    """24 dims of size 2, even ones first, as a quantum circuit simulator makes them."""
    axes = (*range(0, 24, 2), *range(1, 24, 2))
    return (Case("tiny-dims", "2-to-the-24", "float32", (2,) * 24, axes),)


def _small() -> tuple[Case, ...]:
    """One transposed copy of few bytes: what a call costs."""
    sides = {"uint8": (8, 8), "float32": (4, 4)}
    cases = []
    for dtype, (rows, columns) in sides.items():
        for times in (1, 2, 4, 8, 16, 32):
            shape = (rows * times, columns * times)
            name = "x".join(map(str, shape))
            cases.append(Case("small", name, dtype, shape, (1, 0)))
    return tuple(cases)


class Suite(NamedTuple):
    """A list of cases, how many of them `--quick` takes, and whether it runs unasked.

    The cases of a `seeded` one are made from a number.
    """

    cases: Callable[..., tuple[Case, ...]]
    text: str
    quick: int = 0
    default: bool = False
    seeded: bool = False


# The suites that are no lists of copies: see `firstcall`, `throughput`,
# `conversions` and `busy`.
FIRST_CALL, BATCH, FILES, BUSY = "first-call", "batch", "files", "busy"

SUITES = {
    "ttc": Suite(ttc.float32, "the 57 TTC permutations, float32", 6, True),
    "ttc-dtypes": Suite(ttc.dtypes, "twelve of them as uint8, bfloat16, float64, complex128"),
    "workloads": Suite(workloads.real, "copies of vision and language models", 6, True),
    "xla": Suite(workloads.xla, "the cases of XLA's transpose benchmark"),
    "views": Suite(_views, "slices, negative strides, broadcasts", 4, True),
    "odd": Suite(_odd, "rows off cache lines, in the source and the output", 4, True),
    "tiny-dims": Suite(_tiny_dims, "24 dims of size 2", 1, True),
    "small": Suite(
        _small, "64 B to 64 KiB: microseconds a call, at most 0.4 beyond NumPy to 16 KiB", 4, True
    ),
    cliffs.SUITE: Suite(cliffs.cases, "random copies of 96 MiB, made from --seed", 6, seeded=True),
    "fresh": Suite(workloads.fresh, "the workloads without out=, at most 1.2 x the time with it"),
    packed.SUITE: Suite(packed.cases, "packed tensors, with limits: int4, float4, 6, 3, 2 bits", 8),
    joins.SUITE: Suite(joins.cases, "arrays stacked and concatenated into out=", 6),
    casts.SUITE: Suite(casts.cases, "casts and scales, with limits, beside ml_dtypes", 8),
    schemes.SUITE: Suite(schemes.cases, "quantised weights decoded, with limits", 8),
    repacks.SUITE: Suite(repacks.cases, "4-bit weights from one format to another, with limits", 8),
    FIRST_CALL: Suite(tuple, "the first call of a new process, with limits"),
    BATCH: Suite(tuple, "many tensors at once, beside loops and memcpy; 2 GiB of memory"),
    FILES: Suite(tuple, "checkpoints converted, beside cp; 2 GiB of /dev/shm"),
    BUSY: Suite(tuple, "copies while another program computes on every core"),
}
_QUICK_ASKED = 4  # of a suite that --quick alone leaves out


def select(names: tuple[str, ...] = (), quick: bool = False, seed: int = 0) -> tuple[Case, ...]:
    """The cases of the named suites, of the default ones for none; few of each if `quick`.

    >>> [len(select((name,))) for name in ("ttc", "tiny-dims")], len(select(("ttc",), quick=True))
    ([57, 1], 6)
    """
    names = names or tuple(name for name, suite in SUITES.items() if suite.default)
    chosen: list[Case] = []
    for name in names:
        suite = SUITES[name]
        cases = suite.cases(seed) if suite.seeded else suite.cases()
        chosen += _evenly(cases, suite.quick or _QUICK_ASKED) if quick else cases
    return tuple(chosen)


def _evenly(cases: tuple[Case, ...], count: int) -> tuple[Case, ...]:
    """So many of them, the first, the last, and as far apart as that goes."""
    if len(cases) <= count:
        return cases
    step = (len(cases) - 1) / max(1, count - 1)
    return tuple(cases[round(k * step)] for k in range(count))
