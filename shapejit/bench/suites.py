"""The groups of cases, by name: what `shapejit bench`, the history and comparisons measure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from . import (
    batches,
    calls,
    casts,
    copies,
    files,
    joins,
    packed,
    random_copies,
    repacks,
    schemes,
    tiers,
    ttc,
    workloads,
)
from .cases import MIB, OURS, Case
from .memcpy import memcpy_of


class Suite(NamedTuple):
    """A group of cases: how many `--quick` takes, whether it runs by default.

    The cases of a `seeded` suite are made from a number. The history has the cases whose names are
    `recorded`, as time relative to that of `baseline`; its `version` is raised when they change.
    """

    cases: Callable[..., Sequence[Case]]
    text: str
    quick: int = 4
    default: bool = False
    baseline: str = "memcpy"
    recorded: tuple[str, ...] = ()
    seeded: bool = False
    version: str = "1"


SUITES = {
    "ttc": Suite(
        ttc.float32, "the 57 TTC permutations, float32", 6, True,
        recorded=("ttc-01/float32", "ttc-04/float32", "ttc-16/float32", "ttc-46/float32"),
    ),
    "ttc-dtypes": Suite(
        ttc.dtypes, "twelve of them as uint8, bfloat16, float64, complex128",
        recorded=("ttc-01/uint8", "ttc-01/complex128"),
    ),
    "workloads": Suite(
        workloads.real, "copies of vision and language models", 6, True,
        recorded=("nhwc-to-nchw-32x224x224x3-0312/uint8", "heads-merge-8x32x2048x128-0213/bfloat16",
                  "weight-transposed-4096x14336-10/bfloat16",
                  "patchify-64x3x14x16x14x16-024351/uint8"),
    ),
    "xla": Suite(workloads.xla, "the cases of XLA's transpose benchmark"),
    "views": Suite(
        copies.views, "slices, negative strides, broadcasts", 4, True,
        recorded=("slice-step2/float32", "slice-step5/float32", "flip-inner/bfloat16",
                  "broadcast-transposed/float32", "channels-reversed/uint8"),
    ),
    "odd": Suite(
        copies.odd, "rows off cache lines, in the source and the output", 4, True,
        recorded=("4095x4097-10/float32", "405x407x409-201/uint8"),
    ),
    "tiny-dims": Suite(copies.tiny_dims, "24 dims of size 2", 1, True,
                       recorded=("2-to-the-24/float32",)),
    "small": Suite(
        copies.small, "64 B to 64 KiB: microseconds a call", 4, True, "numpy",
        recorded=("8x8/uint8", "32x32/float32", "8738x15/uint8"),
    ),
    random_copies.GROUP: Suite(
        random_copies.cases, "random copies of 96 MiB, made from --seed", 6, seeded=True
    ),
    random_copies.PERMUTATIONS: Suite(
        random_copies.permutations, "200 random permutations of every width, from --seed", 8,
        seeded=True,
    ),
    "fresh": Suite(
        workloads.fresh, "the workloads without out=", baseline="out=",
        recorded=("weight-transposed-4096x4096-10/float32",),
    ),
    packed.GROUP: Suite(
        packed.cases, "packed tensors: int4, float4, 6, 3, 2 bits and 1", 8,
        recorded=("transposed-16384x8192/int4", "transposed-9461x9463/float6_e2m3fn",
                  "transposed-3x33554432/float6_e2m3fn", "rows-inner/int4", "run-from-1/int4",
                  "unpack/int4"),
    ),
    joins.GROUP: Suite(
        joins.cases, "arrays stacked and concatenated into out=", 6,
        recorded=("stack-3x4096x4096-2/uint8", "stack-7x2097152-1/uint8",
                  "stack-32x4096x128-1/bfloat16",
                  "concat-8x4096x255-1/float32"),
    ),
    casts.GROUP: Suite(
        casts.cases, "casts and scales, beside ml_dtypes", 8,
        recorded=("rows/float32-bfloat16", "transposed/float8_e4m3fn-bfloat16",
                  "block-32/int4-bfloat16", "images/uint8-float32"),
    ),
    schemes.GROUP: Suite(
        schemes.cases, "quantised weights decoded", 8,
        recorded=("fp8:block", "mxfp4:gpt-oss", "awq", "gguf:q4_0"),
    ),
    schemes.ENCODING: Suite(
        schemes.encodings, "weights encoded from bfloat16", 9,
        recorded=("fp8:block", "nvfp4:compressed-tensors"),
    ),
    repacks.GROUP: Suite(
        repacks.cases, "4-bit weights from one format to another", 8,
        recorded=("awq:gemm-to-gptq:qweight", "openvino@2023-to-lsb"),
    ),
    "functions": Suite(
        calls.functions, "array_equal, take, pad, tile, repeat, roll", 6, baseline="numpy",
        recorded=("equal/one-transposed", "take/rows-64B", "pad/images", "stack-packed"),
    ),
    "calls": Suite(
        calls.calls, "views, shapes resolved, dtypes looked up, small programs", 8,
        baseline="numpy",
        recorded=("reshape-sliced/ndarray", "permute_dims/tensor", "resolve/onnx",
                  "program-4KiB/bfloat16"),
    ),
    "batch": Suite(
        batches.batches, "many tensors at once, beside loops; 2 GiB of memory", baseline="numpy",
        recorded=("map-10000x4KiB", "chain-windows", "reshape-mixed"),
    ),
    "files": Suite(
        files.files, "files and folders, beside NumPy; in /dev/shm", baseline="numpy",
        recorded=("load/npz", "save/npy"),
    ),
    "busy": Suite(
        batches.busy, "copies while another program computes on every core", 2, baseline="numpy",
        recorded=("transposed-4MiB",),
    ),
    "first-call": Suite(
        files.processes, "a new process, with kernels cached and without", 1,
        baseline="import numpy",
        recorded=("import", "copy"),
    ),
    "tiers": Suite(
        tiers.cases, "what NumPy does at first and kernels later, once these are ready",
        baseline="numpy",
    ),
}  # fmt: skip

QUICK_BYTES = 64 * MIB  # of a case, at most: several times what caches hold
BUSY = "busy"  # measured while processes are `batches.spinning`


def select(names: Sequence[str] = (), quick: bool = False, seed: int = 0) -> tuple[Case, ...]:
    """The cases of the named suites, or of the default ones; a few small ones if `quick`.

    >>> [len(select((name,))) for name in ("ttc", "tiny-dims")], len(select(("ttc",), quick=True))
    ([57, 1], 6)
    """
    chosen: list[Case] = []
    for name in names or tuple(name for name, suite in SUITES.items() if suite.default):
        suite = SUITES[name]
        cases = suite.cases(seed) if suite.seeded else suite.cases()
        chosen += (
            [_at_most(QUICK_BYTES, case) for case in evenly(cases, suite.quick)] if quick else cases
        )
    return tuple(chosen)


def recorded(name: str, everything: bool = False) -> dict[str, Case]:
    """The cases of a suite that the history has, or all of them, by name."""
    suite = SUITES[name]
    if not suite.recorded:
        return {}
    found = {case.name: case for case in suite.cases()}
    return found if everything else {key: found[key] for key in suite.recorded}


def _at_most(nbytes: int, case: Case) -> Case:
    return case.scaled(nbytes / case.moved) if case.moved > nbytes else case


def evenly(cases: Sequence[Case], count: int) -> Sequence[Case]:
    """`count` of the items, the first and the last included, evenly spaced."""
    if len(cases) <= count:
        return cases
    step = (len(cases) - 1) / max(1, count - 1)
    return tuple(cases[round(k * step)] for k in range(count))


def all_ways(case: Case, sj: Any, least: int = MIB // 16) -> dict[str, Callable[[], Any]]:
    """The ways of a case; those of large cases include a memcpy of equal traffic."""
    ways = case.ways(sj)
    assert next(iter(ways)) == OURS
    return {**ways, "memcpy": memcpy_of(case.moved)} if case.moved >= max(least, 1) else ways
