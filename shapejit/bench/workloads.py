"""Copies that real programs make, from vision and language models, and XLA's own benchmark.

The shapes are those of the models and libraries that are named; smaller ones
are repeated along a batch dim until a result has at least 64 MiB, larger ones
are scaled down to 256 MiB.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from .cases import MIB, Copy, named

LARGE = 64 * MIB  # smaller results stay in some machine's cache, and say little of its memory
_LIMIT = 256 * MIB  # source, output, proof and a peer's own two fit in 2 GiB


class Workload(NamedTuple):
    """A permutation as it occurs, and the dtypes in which it does."""

    name: str
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    dtypes: tuple[str, ...]


_IMAGES = ("float32", "float16", "uint8")
_HEADS = ("bfloat16", "float32")
_WEIGHTS = ("float32", "bfloat16", "float8_e4m3fn")
_WIDTHS = ("uint8", "bfloat16", "float32", "float64", "complex128")
_XLA = ("uint8", "float32")

WORKLOADS = (
    Workload("nchw-to-nhwc", (32, 3, 224, 224), (0, 2, 3, 1), _IMAGES),
    Workload("nchw-to-nhwc", (8, 64, 112, 112), (0, 2, 3, 1), _IMAGES),
    Workload("nchw-to-nhwc", (16, 256, 56, 56), (0, 2, 3, 1), _IMAGES),
    Workload("nhwc-to-nchw", (32, 224, 224, 3), (0, 3, 1, 2), _IMAGES),
    Workload("nhwc-to-nchw", (8, 112, 112, 64), (0, 3, 1, 2), _IMAGES),
    Workload("nhwc-to-nchw", (16, 56, 56, 256), (0, 3, 1, 2), _IMAGES),
    Workload("heads-split", (8, 2048, 32, 128), (0, 2, 1, 3), _HEADS),
    Workload("heads-merge", (8, 32, 2048, 128), (0, 2, 1, 3), _HEADS),
    Workload("keys-transposed", (8, 32, 2048, 128), (0, 1, 3, 2), _HEADS),
    Workload("heads-split", (1, 8192, 40, 128), (0, 2, 1, 3), _HEADS),
    Workload("heads-merge", (1, 40, 8192, 128), (0, 2, 1, 3), _HEADS),
    Workload("keys-transposed", (1, 40, 8192, 128), (0, 1, 3, 2), _HEADS),
    Workload("heads-split", (32, 128, 12, 64), (0, 2, 1, 3), _HEADS),
    Workload("heads-merge", (32, 12, 128, 64), (0, 2, 1, 3), _HEADS),
    Workload("keys-transposed", (32, 12, 128, 64), (0, 1, 3, 2), _HEADS),
    Workload("patchify", (64, 3, 14, 16, 14, 16), (0, 2, 4, 3, 5, 1), ("float32", "uint8")),
    Workload("unpatchify", (64, 14, 14, 16, 16, 3), (0, 5, 1, 3, 2, 4), ("float32", "uint8")),
    Workload("pixel-shuffle", (16, 64, 2, 2, 64, 64), (0, 1, 4, 2, 5, 3), ("float32",)),
    Workload("kv-cache", (32, 4, 1024, 8, 128), (1, 3, 0, 2, 4), ("bfloat16",)),
    Workload("weight-transposed", (4096, 4096), (1, 0), _WEIGHTS),
    Workload("weight-transposed", (4096, 14336), (1, 0), _WEIGHTS),
    Workload("weight-transposed", (151936, 3584), (1, 0), _WEIGHTS),
)

# Power-of-two strides alias in the cache, one element more or less does not.
SQUARES = tuple(
    Workload("square-transposed", (side, side), (1, 0), _WIDTHS)
    for side in (256, 512, 1024, 4096, 4095, 4097)
)

# https://github.com/openxla/xla, xla/pjrt/transpose_test.cc
XLA = (
    Workload("xla", (256, 256, 256), (0, 2, 1), _XLA),
    Workload("xla", (256, 256, 256), (1, 0, 2), _XLA),
    Workload("xla", (256, 256, 256), (1, 2, 0), _XLA),
    Workload("xla", (256, 256, 256), (2, 0, 1), _XLA),
    Workload("xla", (256, 256, 256), (2, 1, 0), _XLA),
    Workload("xla", (512, 512, 512), (0, 2, 1), _XLA),
    Workload("xla", (512, 512, 512), (1, 0, 2), _XLA),
    Workload("xla", (512, 512, 512), (1, 2, 0), _XLA),
    Workload("xla", (512, 512, 512), (2, 0, 1), _XLA),
    Workload("xla", (512, 512, 512), (2, 1, 0), _XLA),
    Workload("xla", (64, 224, 224, 3), (1, 2, 3, 0), _XLA),
    Workload("xla", (256, 64, 64, 3), (1, 3, 2, 0), _XLA),
)


def real() -> tuple[Copy, ...]:
    """The workloads and the squares, each in all its dtypes."""
    return tuple(c for workload in (*WORKLOADS, *SQUARES) for c in _cases("workloads", workload))


def fresh() -> tuple[Copy, ...]:
    """The workloads without out=: every call allocates its result."""
    cases = (c for workload in WORKLOADS for c in _cases("fresh", workload))
    return tuple(replace(c, fresh=True) for c in cases)


def xla() -> tuple[Copy, ...]:
    """XLA's cases: permutations of cubes, and two of images."""
    return tuple(c for workload in XLA for c in _cases("xla", workload))


def _cases(group: str, workload: Workload) -> list[Copy]:
    _, shape, axes, dtypes = workload
    cases = []
    for dtype in dtypes:
        name = named(workload.name, shape, axes, dtype)
        case = Copy(group, name, dtype, shape, axes).batched(LARGE)
        cases.append(case.scaled(min(1.0, _LIMIT / case.source_nbytes)))
    return cases
