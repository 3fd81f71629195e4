"""Benchmarks of many tensors per call, compared with NumPy in a loop; copies on busy machines."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .cases import (
    MIB,
    OURS,
    CallCase,
    Case,
    Ints,
    Look,
    Make,
    Ways,
    filled,
    packed_nbytes,
    permuted,
    rows,
    ways_of,
)
from .copies import SmallCopy
from .joins import Join
from .memcpy import cores

KIB = 1024


def _loop(outs: Any, arrays: Any, fill: Callable[[Any, Any], object] = np.copyto) -> Any:
    """NumPy's results for arrays, one after the other."""
    for out, x in zip(outs, arrays, strict=True):
        fill(out, x)
    return outs


def _program(
    shape: Ints, kind: str, look: Look, sj: Any, nbytes: int
) -> tuple[list[NDArray[Any]], NDArray[Any], Callable[[], Any]]:
    """Tensors, the slab for the results of a program, and the call."""
    tensors = [filled(shape, kind) for _ in range(max(2, nbytes // packed_nbytes(shape, kind)))]
    program = sj.plan(shape, kind, look)
    slab = np.zeros((len(tensors), *program.shape), kind)
    return tensors, slab, partial(program.map, tensors, out=slab)


def mapped(shape: Ints, axes: Ints, kind: str, sj: Any, nbytes: int) -> Ways:
    """Tensors of one shape, permuted into a slab."""
    tensors, slab, ours = _program(shape, kind, lambda t: permuted(t, axes), sj, nbytes)
    return {OURS: ours, "numpy": partial(_loop, slab, [permuted(x, axes) for x in tensors])}


def _map_packed(sj: Any, nbytes: int) -> Ways:
    """Packed tensors of 4 KiB; NumPy has a byte per element."""
    codes = filled((64, 128), np.uint8) & 15
    tensors = [sj.pack(codes, "uint4") for _ in range(max(2, nbytes // 4096))]
    program = sj.plan((64, 128), "uint4", lambda t: t.permute_dims((1, 0)))
    slab = sj.concat([program.map(sj.stack(tensors))], axis=0)  # of its own
    outs = np.zeros((len(tensors), 128, 64), np.uint8)
    loop = partial(_loop, outs, [codes.T] * len(tensors))
    return {OURS: partial(program.map, tensors, out=slab), "numpy": loop}


def _unpacked(sj: Any, made: Any) -> Any:
    return made if isinstance(made, np.ndarray) else made.unpack().view(np.uint8)


def unlike(step: int, given: bool, sj: Any, nbytes: int) -> Ways:
    """Tensors of 64 B to 16 KiB, log-uniform, reshaped to 1-D; every `step`-th is transposed."""
    rng, tensors = np.random.default_rng(0), []
    for i in range(max(2, nbytes // 4096)):
        elements = 2.0 ** rng.uniform(4, 12)
        rows = 2.0 ** rng.uniform(1, np.log2(elements) - 1)
        x = filled((round(rows), round(elements / rows)), np.float32)
        tensors.append(x.T if step and i % step == 0 else x)
    if not given:
        ours = partial(sj.reshape_batch, tensors, (-1,))
        return {OURS: ours, "numpy": lambda: [x.reshape(-1) for x in tensors]}
    outs = [np.ones(x.size, x.dtype) for x in tensors]
    targets = [out.reshape(x.shape) for out, x in zip(outs, tensors, strict=True)]
    ours = partial(sj.reshape_batch, tensors, (-1,), out=outs)
    return {OURS: ours, "numpy": partial(_loop, targets, tensors)}


def _shapes(ragged: bool, sj: Any, nbytes: int) -> Ways:
    """Shapes resolved by ONNX's rules, compared with a loop of `resolve`."""
    number, rng = max(2, nbytes // 4096), np.random.default_rng(0)
    ranks = rng.integers(2, 5, number) if ragged else np.full(number, 3)
    shapes = [tuple(rng.integers(1, 200, rank).tolist()) for rank in ranks]
    request, given = sj.onnx.request([0, -1, 1]), shapes if ragged else np.array(shapes)
    ours, loop = partial(sj.resolve_batch, given, request), partial(sj.resolve, request=request)
    return {OURS: ours, "loop": lambda: np.array([loop(shape) for shape in shapes])}


def _warm(sj: Any, nbytes: int) -> Ways:
    """A warmup whose kernels are compiled already, compared with running their work."""
    program = sj.plan((4, 64, 8), "float32", lambda t: t.permute_dims((1, 0, 2)))
    tensors = [np.zeros((4, 64, 8), np.float32)] * 100
    return {OURS: lambda: sj.warmup(["programs"]), "plan": lambda: program.map(tensors)}


_CHAINS: dict[str, tuple[Ints, Look]] = {
    "windows": (
        (56, 56, 96),
        lambda t: permuted(t.reshape((8, 7, 8, 7, 96)), (0, 2, 1, 3, 4)).reshape((64, 49, 96)),
    ),
    "channel-shuffle": (
        (116, 28, 28),
        lambda t: permuted(t.reshape((2, 58, 28, 28)), (1, 0, 2, 3)).reshape((116, 28, 28)),
    ),
    "heads": ((512, 1024), lambda t: permuted(t.reshape((512, 16, 64)), (1, 2, 0))),
}


def _chain(name: str, sj: Any, nbytes: int) -> Ways:
    """Operators of models in sequence, each writing into its part of a slab."""
    shape, look = _CHAINS[name]
    tensors, slab, ours = _program(shape, "float32", look, sj, nbytes)
    fill = lambda out, x: np.copyto(out, look(x))  # noqa: E731
    return {OURS: ours, "numpy": partial(_loop, slab, tensors, fill)}


def _images(sj: Any, nbytes: int) -> Ways:
    """Images normalised and put channels first by one program."""
    images = filled((max(2, nbytes // (5 * 150528)), 224, 224, 3), np.uint8)
    scale, mean = (np.full((3, 1, 1), value, np.float32) for value in (0.25, 128))
    normalised = lambda t: t.permute_dims((2, 0, 1)).dequantize(scale, zero_point=mean)  # noqa: E731
    program = sj.plan((224, 224, 3), "uint8", normalised)
    slab = np.zeros((len(images), 3, 224, 224), np.float32)

    def fill(out: Any, x: Any) -> None:
        np.multiply(np.subtract(x.transpose(2, 0, 1), mean, out=out), scale, out=out)

    ours = partial(program.map, images, out=slab)
    return {OURS: ours, "numpy": partial(_loop, slab, images, fill)}


def batches() -> tuple[CallCase, ...]:
    """Cases of many tensors, compared with loops of NumPy."""
    moved: dict[str, tuple[Make, int]] = {
        "map-10000x4KiB": (partial(mapped, (4, 64, 8), (1, 0, 2), "bfloat16"), 10_000 * 4 * KIB),
        "map-64x16MiB": (partial(mapped, (2048, 32, 128), (1, 0, 2), "bfloat16"), 64 * 16 * MIB),
        "map-64B": (partial(mapped, (4, 4), (1, 0), "float32"), 512 * KIB),
    }
    moved |= {f"chain-{name}": (partial(_chain, name), 32 * MIB) for name in _CHAINS}
    others: dict[str, Make] = {
        "images-normalised": _images,
        "reshape-transposed": partial(unlike, 1, False),
        "reshape-views": partial(unlike, 0, False),
        "reshape-mixed": partial(unlike, 2, False),
        "reshape-out": partial(unlike, 1, True),
        "resolve-ragged": partial(_shapes, True),
        "resolve-array": partial(_shapes, False),
        "warmup": _warm,
    }
    made = [CallCase("batch", name, make, nbytes, True) for name, (make, nbytes) in moved.items()]
    made.append(CallCase("batch", "map-4KiB-packed", _map_packed, 32 * MIB, True, _unpacked))
    return (*made, *rows("batch", others, 32 * MIB))


def busy() -> tuple[Case, ...]:
    """Copies, joins and batches while one process per core spins."""
    sizes = {"64KiB": 64 * KIB, "1MiB": MIB, "4MiB": 4 * MIB, "64MiB": 64 * MIB}
    cases: list[Case] = []
    for text, nbytes in sizes.items():
        side, count = isqrt(nbytes // 4), nbytes // 4
        views: dict[str, tuple[Ints, Look]] = {
            "transposed": ((side, side), lambda x: x.T),
            "sliced": ((count // 1024, 1024), lambda x: x[:, 12:-12]),
            "channels": ((count // 192, 64, 3), lambda x: x.transpose(2, 0, 1)),
        }
        for name, (shape, look) in views.items():
            cases.append(SmallCopy("busy", f"{name}-{text}", "float32", shape, look=look))
    join = Join("busy", "", "float32", (4096, 256), work="concat", count=16)
    return (
        *cases,
        CallCase("busy", "concat-16x4MiB", partial(ways_of, join), 64 * MIB),
        CallCase("busy", "reshape-out", partial(unlike, 1, True), 16 * MIB),
        CallCase("busy", "map-64x256KiB", partial(mapped, (256, 256), (1, 0), "float32"), 16 * MIB),
    )


SPIN = """
import os, sys, threading
def wait():
    sys.stdin.read()
    os._exit(0)
threading.Thread(target=wait).start()
while True:
    pass
"""


@contextmanager
def spinning() -> Iterator[None]:
    """A context with one spinning process per core that this process may use."""
    command = [sys.executable, "-S", "-c", SPIN]  # it ends with its standard input
    running = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(cores())]
    try:
        yield
    finally:
        for process in running:
            process.communicate()
