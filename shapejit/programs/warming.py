"""Kernels compiled ahead of time: one row per kind of work, with a small example of it.

The kernels that the example needs are compiled, and kept on disk for other processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.tensor import Tensor
from ..dtypes.table import dtype
from ..engine import array_structs, fast_joins, patience
from ..engine.addresses import layout_of
from ..engine.routes import copies
from ..errors import FormatError
from ..kernels.small_plans import PLANE_MOVER
from ..operations.casts import cast, dequantize, quantize
from ..operations.codes import pack
from ..operations.equality import array_equal
from ..operations.joining import concat, stack
from ..operations.views import ascontiguous
from ..quantization.scheme import schemes
from ..runtime import building, kernels, workers
from ..runtime.kernel_names import Call, Name
from ..runtime.system import usable_cores
from ..shapes.request import request
from . import batch, mapped, target_shapes
from .batch import reshape_batch
from .program import plan
from .target_shapes import resolve_batch

SIDE = 1024  # of the matrices that are copied: large enough for kernels and several threads
UNITS = ("uint8", "uint16", "float32", "float64", "complex128")
PACKED = "uint1", "uint2", "int4"  # of the others few checkpoints have any
FLOATS = ("float32", "bfloat16", "float16")
NARROW = ("float8_e4m3fn", "float8_e5m2", "int8", "uint8", "int4", "uint4", "float4_e2m1fn")

Views = tuple[Callable[[NDArray[Any]], NDArray[Any]], ...]
TRANSPOSITIONS: Views = (
    lambda x: x.T,
    lambda x: x[:, 3:-2],
    lambda x: x.reshape(4, -1, 64, 4).transpose(0, 2, 1, 3),
    lambda x: x[:, ::-1],
    lambda x: x[:, ::2],
    lambda x: x.reshape(-1, 4, 256).transpose(0, 2, 1),
    lambda x: x.reshape(-1, 256, 4).transpose(0, 2, 1),
    lambda x: x.reshape(-1)[: SIDE * 768].reshape(-1, 256, 3).transpose(0, 2, 1),
    lambda x: x.reshape(-1)[: SIDE * 768].reshape(-1, 3, 256).transpose(0, 2, 1),
)


def _matrix(name: str) -> NDArray[Any]:
    return np.zeros((SIDE, SIDE), dtype(name).numpy)


def _copies() -> Iterator[object]:
    for name in UNITS:
        x = _matrix(name)
        for view in TRANSPOSITIONS[:3] if name == "complex128" else TRANSPOSITIONS:
            seen = view(x)
            yield ascontiguous(seen, out=np.empty(seen.shape, seen.dtype))
        yield ascontiguous(x[:33, :31].T)
    for name in UNITS[:3]:  # what copies while a network is compiled
        for view in TRANSPOSITIONS[-2:]:
            yield copies(layout_of(view(_matrix(name))), networks=False).ready


def _joins() -> Iterator[object]:
    for name in UNITS[:4]:
        x = _matrix(name)
        yield concat([x.T, x.T], axis=1)
        yield from (stack([x] * count, axis=-1) for count in (2, 3, 4))
        yield stack([x[:, :3].copy()] * 9, axis=1)
        yield stack([x[:8, :8].copy()] * 3)
        yield array_equal(x, x.T)


def _packed() -> Iterator[object]:
    for name in PACKED:
        made = pack(np.zeros((512, 512), np.uint8), name)
        small = pack(np.zeros((5, 7), np.uint8), name)
        for t in (made, small):
            for view in (t.T, t[:, 1:], t[:, ::-1], t[:, ::2]):
                yield view.ascontiguous()
            yield t.T.unpack()
            yield concat([t, t], axis=1)


def _casts() -> Iterator[object]:
    for wide in FLOATS:
        for name in (*FLOATS, *NARROW):
            for source, target in ((wide, name), (name, wide)):
                given = _given(source)
                for x in (given, given.T):
                    yield cast(x, target)


def _given(name: str) -> Any:
    kind = dtype(name)
    if not kind.packed:
        return _matrix(name)
    return Tensor.frombuffer(np.zeros(SIDE * SIDE // 2, np.uint8), kind, (SIDE, SIDE))


def _scales() -> Iterator[object]:
    scale = np.ones((SIDE, SIDE // 32), np.float32)
    for name in NARROW:
        for kind in FLOATS:
            yield dequantize(_given(name), scale, block_shape=(1, 32), dtype=kind)
        yield quantize(_matrix("float32"), scale, dtype=name, block_shape=(1, 32))


def _programs() -> Iterator[object]:
    for name in UNITS[:4]:
        x = np.zeros((4, 64, 8), name)
        program = plan(x.shape, name, lambda t: t.permute_dims((1, 0, 2)))
        yield program.map([x] * 100)
        out = np.empty(program.shape, name)
        for _ in range(4):
            yield program(x, out=out)


def _batches() -> Iterator[object]:
    tensors = [np.zeros((k % 7 + 2, 5), name).T for name in UNITS for k in range(40)]
    made = reshape_batch(tensors, -1)
    yield made
    yield reshape_batch(tensors, -1, out=made)
    asked = request((-1,), asked_by="warmup")
    yield resolve_batch([x.shape for x in tensors], asked)
    yield resolve_batch(np.ones((3, 2), np.int64), asked)


def _schemes() -> Iterator[object]:
    ones = [np.ones((512, 512), dtype(name).numpy) for name in ("bfloat16", "float32")]
    for scheme in schemes.values():
        try:
            parts, _ = [scheme.encode(x) for x in ones]
        except (FormatError, TypeError):  # it cannot encode, or has settings without defaults
            continue
        for kind in ("bfloat16", "float32"):
            yield scheme.decode(parts, dtype=kind)


WORK: dict[str, Callable[[], Iterator[object]]] = {
    "copies": _copies,
    "joins": _joins,
    "packed": _packed,
    "casts": _casts,
    "scales": _scales,
    "programs": _programs,
    "batches": _batches,
    "schemes": _schemes,
}
"""What is warmed, by name."""


def warmup(only: Sequence[str] | None = None, *, processes: int | None = None) -> dict[str, float]:
    """Compile kernels, or those for some kinds of work only, and keep them on disk.

    `only` names rows of "copies", "joins", "packed" (narrower than a byte), "casts", "scales",
    "programs" (`plan`), "batches" (`reshape_batch`) and "schemes". `processes` processes compile
    (default: one per core). Returns the seconds that each row took, concurrently with the others;
    kernels that exist take almost none. Other processes find the kernels if they have the same
    `NUMBA_CACHE_DIR`, processor and versions. Raises FormatError
    for an unknown name.

    >>> warmup([])
    {}
    """
    names = list(dict.fromkeys(WORK if only is None else only))
    for name in names:
        if name not in WORK:
            raise FormatError(f"unknown work {name!r}: warmup takes {', '.join(WORK)}")
    count = max(1, processes or len(usable_cores()))
    # A thread per row, since each waits for one kernel at a time: this keeps all builders busy.
    with patience.force_kernels(), building.at_most(count), ThreadPoolExecutor(len(WORK)) as pool:
        return dict(zip(names, pool.map(_warm, names), strict=True))


def names() -> tuple[Name, ...]:
    """All kernels that `warmup` looks for, and those that it needs first."""
    with patience.force_kernels(), kernels.recorded() as found:
        for work in WORK.values():
            for _ in work():
                pass
    calls = (
        value
        for module in (batch, fast_joins, array_structs, kernels, mapped, target_shapes, workers)
        for value in vars(module).values()
        if isinstance(value, Call)
    )
    return tuple(dict.fromkeys((*calls, PLANE_MOVER, *found)))


def _warm(name: str) -> float:
    """Do the work of a row; return the seconds that it took."""
    start = perf_counter()
    for _ in WORK[name]():
        pass
    return perf_counter() - start
