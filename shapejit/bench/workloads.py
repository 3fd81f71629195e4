"""Copies that real programs make, from vision and language models, and XLA's own benchmark.

The shapes are those of the models and libraries that are named; smaller ones
are repeated along a batch dim until a result has at least 64 MiB, larger ones
are scaled down to 256 MiB.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import NamedTuple

from .cases import MIB, Copy, Ints, named

OUT_OF_CACHE_BYTES = (
    64 * MIB
)  # smaller results stay in some machine's cache, and say little of its memory
_MAX_SOURCE_BYTES = 256 * MIB  # source, output, proof and a peer's own two fit in 2 GiB


class Workload(NamedTuple):
    """A permutation from practice, with its shapes and dtypes."""

    name: str
    axes: Ints
    dtypes: tuple[str, ...]
    shapes: tuple[Ints, ...]


_IMAGE_DTYPES = ("float32", "float16", "uint8")
_HEAD_DTYPES = ("bfloat16", "float32")
_WEIGHT_DTYPES = ("float32", "bfloat16", "float8_e4m3fn")
_WIDTH_DTYPES = ("uint8", "bfloat16", "float32", "float64", "complex128")
_XLA_DTYPES = ("uint8", "float32")

WORKLOADS = (
    Workload("nchw-to-nhwc", (0, 2, 3, 1), _IMAGE_DTYPES,
             ((32, 3, 224, 224), (8, 64, 112, 112), (16, 256, 56, 56))),
    Workload("nhwc-to-nchw", (0, 3, 1, 2), _IMAGE_DTYPES,
             ((32, 224, 224, 3), (8, 112, 112, 64), (16, 56, 56, 256))),
    Workload("heads-split", (0, 2, 1, 3), _HEAD_DTYPES,
             ((8, 2048, 32, 128), (1, 8192, 40, 128), (32, 128, 12, 64))),
    Workload("heads-merge", (0, 2, 1, 3), _HEAD_DTYPES,
             ((8, 32, 2048, 128), (1, 40, 8192, 128), (32, 12, 128, 64))),
    Workload("keys-transposed", (0, 1, 3, 2), _HEAD_DTYPES,
             ((8, 32, 2048, 128), (1, 40, 8192, 128), (32, 12, 128, 64))),
    Workload("patchify", (0, 2, 4, 3, 5, 1), ("float32", "uint8"), ((64, 3, 14, 16, 14, 16),)),
    Workload("unpatchify", (0, 5, 1, 3, 2, 4), ("float32", "uint8"), ((64, 14, 14, 16, 16, 3),)),
    Workload("pixel-shuffle", (0, 1, 4, 2, 5, 3), ("float32",), ((16, 64, 2, 2, 64, 64),)),
    Workload("kv-cache", (1, 3, 0, 2, 4), ("bfloat16",), ((32, 4, 1024, 8, 128),)),
    Workload("weight-transposed", (1, 0), _WEIGHT_DTYPES,
             ((4096, 4096), (4096, 14336), (151936, 3584))),
)  # fmt: skip

# Power-of-two strides alias in the cache, one element more or less does not.
SQUARE_SIDES = (256, 512, 1024, 4096, 4095, 4097)
SQUARES = Workload(
    "square-transposed", (1, 0), _WIDTH_DTYPES, tuple((side, side) for side in SQUARE_SIDES)
)

# https://github.com/openxla/xla, xla/pjrt/transpose_test.cc
_CUBES = ((256, 256, 256), (512, 512, 512))
XLA = (
    Workload("xla", (0, 2, 1), _XLA_DTYPES, _CUBES),
    Workload("xla", (1, 0, 2), _XLA_DTYPES, _CUBES),
    Workload("xla", (1, 2, 0), _XLA_DTYPES, _CUBES),
    Workload("xla", (2, 0, 1), _XLA_DTYPES, _CUBES),
    Workload("xla", (2, 1, 0), _XLA_DTYPES, _CUBES),
    Workload("xla", (1, 2, 3, 0), _XLA_DTYPES, ((64, 224, 224, 3),)),
    Workload("xla", (1, 3, 2, 0), _XLA_DTYPES, ((256, 64, 64, 3),)),
)


def real() -> tuple[Copy, ...]:
    """The workloads and the squares, each in all its dtypes."""
    return tuple(c for workload in (*WORKLOADS, SQUARES) for c in _cases("workloads", workload))


def fresh() -> tuple[Copy, ...]:
    """The workloads without out=: every call allocates its result."""
    cases = (c for workload in WORKLOADS for c in _cases("fresh", workload))
    return tuple(replace(c, fresh=True) for c in cases)


def xla() -> tuple[Copy, ...]:
    """XLA's cases: permutations of cubes, and two of images."""
    return tuple(c for workload in XLA for c in _cases("xla", workload))


def _cases(group: str, workload: Workload) -> list[Copy]:
    cases = []
    for shape, dtype in product(workload.shapes, workload.dtypes):
        name = named(workload.name, shape, workload.axes, dtype)
        case = Copy(group, name, dtype, shape, workload.axes).batched(OUT_OF_CACHE_BYTES)
        cases.append(case.scaled(min(1.0, _MAX_SOURCE_BYTES / case.source_nbytes)))
    return cases
