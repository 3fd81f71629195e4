"""Benchmarks of copies: views, rows off cache lines, many small dims, a few bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from .cases import Copy, Ints, Look
from .workloads import OUT_OF_CACHE_BYTES


def views() -> tuple[Copy, ...]:
    """Slices, negative strides and broadcasts, alone and under a transposition."""
    inner, outer = (64, 1024, 1024), (256, 1024, 1024)
    table: tuple[tuple[str, Ints, str, Look], ...] = (
        ("slice-columns", (8192, 8192), "float32",
         lambda a: a[:, a.shape[1] // 128 :][:, : a.shape[1] // 2]),
        ("slice-columns-odd", (8192, 8192), "float32", lambda a: a[:, 3:-2]),
        ("slice-rows", (8192, 8192), "float32", lambda a: a[::2]),
        ("slice-step2", (8192, 8192), "float32", lambda a: a[:, ::2]),
        ("slice-step2", (16384, 8192), "uint8", lambda a: a[:, ::2]),
        ("slice-step3", (8192, 8192), "float32", lambda a: a[:, ::3]),
        ("slice-step5", (8192, 8192), "float32", lambda a: a[:, ::5]),
        ("slice-transposed", (8192, 8192), "float32",
         lambda a: a[: a.shape[0] // 2, 1:].T),
        ("slice-inner", inner, "float32", lambda a: a[:, 1:-1, 1:-1]),
        ("flip-inner", (4096, 4096), "float32", lambda a: a[:, ::-1]),
        ("flip-inner", (8192, 8192), "uint8", lambda a: a[:, ::-1]),
        ("flip-inner", (4096, 8192), "bfloat16", lambda a: a[:, ::-1]),
        ("flip-outer", (4096, 4096), "float32", lambda a: a[::-1]),
        ("flip-both", (4096, 4096), "float32", lambda a: a[::-1, ::-1]),
        ("flip-transposed", (4096, 4096), "float32",
         lambda a: a[::-1, ::-1].T),
        ("rotate-quarter", (4096, 4096), "float32", lambda a: a.T[::-1]),
        ("broadcast-outer", (1024, 4096), "float32",
         lambda a: np.broadcast_to(a, (16, *a.shape))),
        ("broadcast-inner", (4096, 1), "float32",
         lambda a: np.broadcast_to(a, (a.shape[0], 4096))),
        ("broadcast-middle", (64, 1, 4096), "float32",
         lambda a: np.broadcast_to(a, (a.shape[0], 64, a.shape[2]))),
        ("broadcast-transposed", (1024, 1024), "float32",
         lambda a: np.broadcast_to(a.T, (16, *a.T.shape))),
        ("channels-reversed", (*outer[:2], 256, 3), "uint8",
         lambda a: a[..., ::-1]),
    )  # fmt: skip
    return tuple(
        Copy("views", f"{name}/{dtype}", dtype, shape, look=look)
        for name, shape, dtype, look in table
    )


def odd() -> tuple[Copy, ...]:
    """Rows that start at any byte of a cache line, in the source, the output or both."""
    swap, reverse, turn = (1, 0), (2, 1, 0), (2, 0, 1)
    table: tuple[tuple[Ints, Ints, str, int], ...] = (
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
        name += f"+{shift}/{dtype}" if shift else f"/{dtype}"
        cases.append(Copy("odd", name, dtype, shape, axes, shift=shift).batched(OUT_OF_CACHE_BYTES))
    return tuple(cases)


def tiny_dims() -> tuple[Copy, ...]:
    """24 dims of size 2, even ones first, as in a quantum circuit simulator."""
    axes = (*range(0, 24, 2), *range(1, 24, 2))
    return (Copy("tiny-dims", "2-to-the-24/float32", "float32", (2,) * 24, axes),)


def small() -> tuple[Copy, ...]:
    """One transposed copy of few bytes, which shows the overhead of a call."""
    sizes = [1, 2, 4, 8, 16, 32]
    shapes = [("uint8", 8 * n, 8 * n) for n in sizes] + [("float32", 4 * n, 4 * n) for n in sizes]
    return tuple(
        SmallCopy("small", f"{rows}x{columns}/{dtype}", dtype, (rows, columns), (1, 0))
        for dtype, rows, columns in (*shapes, ("uint8", 8738, 15))
    )


class SmallCopy(Copy):
    """A copy of fixed size, not compared with memcpy: it measures the overhead of a call."""

    moved = 0

    def scaled(self, factor: float) -> Any:
        """The case itself."""
        return self
