"""Kernels compiled beforehand: one row per kind of work, which does a little of it.

What a row does is compiled, and kept in numba's disk cache for every process to come.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import patience
from .arrays.tensor import Tensor
from .dtypes.table import dtype
from .errors import FormatError
from .operations.casts import cast, dequantize, quantize
from .operations.codes import pack
from .operations.equality import array_equal
from .operations.joining import concat, stack
from .operations.views import ascontiguous
from .programs.batch import reshape_batch
from .programs.planned import plan
from .programs.target_shapes import resolve_batch
from .quantization.table import schemes
from .runtime import kernels
from .shapes.request import request

SIDE = 1024  # of the matrices that are copied: too large for NumPy, and for one thread
UNITS = ("uint8", "uint16", "float32", "float64", "complex128")
PACKED = ("uint1", "uint2", "uint3", "int4", "float6_e2m3fn")
FLOATS = ("float32", "bfloat16", "float16")
NARROW = ("float8_e4m3fn", "float8_e5m2", "int8", "uint8", "int4", "uint4", "float4_e2m1fn")

Views = tuple[Callable[[NDArray[Any]], NDArray[Any]], ...]
VIEWS: Views = (
    lambda x: x.T,
    lambda x: x[:, ::-1],
    lambda x: x[:, 3:-2],
    lambda x: x[:, ::2],
    lambda x: x.reshape(4, -1, 64, 4).transpose(0, 2, 1, 3),
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
        for view in VIEWS[:5] if name == "complex128" else VIEWS:
            seen = view(x)
            yield ascontiguous(seen, out=np.empty(seen.shape, seen.dtype))
        yield ascontiguous(x[:33, :31].T)


def _joins() -> Iterator[object]:
    for name in UNITS[:4]:
        x = _matrix(name)
        yield concat([x.T, x.T], axis=1)
        yield from (stack([x] * count, axis=-1) for count in (2, 3, 4, 7, 16))
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
    x = np.ones((512, 512), np.float32)
    for scheme in schemes.values():
        try:
            parts = scheme.encode(x)
        except (FormatError, TypeError):  # it only decodes, or has settings without defaults
            continue
        for kind in ("bfloat16", "float32"):
            yield scheme.decode(parts, dtype=kind)


ROWS: dict[str, Callable[[], Iterator[object]]] = {
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


def warmup(only: Sequence[str] | None = None, *, processes: int = 1) -> dict[str, float]:
    """Compile kernels, or those for some kinds of work only, into numba's disk cache.

    `only` names rows of "copies", "joins", "packed" (narrower than a byte), "casts", "scales",
    "programs" (`plan`), "batches" (`reshape_batch`) and "schemes"; all take some minutes, less
    where several `processes` divide them. Returns the seconds that each took; what is there
    already takes next to none. Other processes find the kernels where `NUMBA_CACHE_DIR` is the
    same, on the same processor, for the same version. Raises FormatError for an unknown name.

    >>> warmup([])
    {}
    """
    names = list(dict.fromkeys(ROWS if only is None else only))
    for name in names:
        if name not in ROWS:
            raise FormatError(f"unknown work {name!r}: warmup takes {', '.join(ROWS)}")
    taken = divided(warm, _WARM, names, min(processes, len(names)))
    return dict(zip(names, taken, strict=True))


_WARM = "import sys; from shapejit import warming; warming.warm(*sys.argv[1:])"


def warm(folder: str, *names: str) -> None:
    """Do the work of those rows that no other process has claimed in `folder`."""
    with patience.none():
        for name in claimed(folder, names):
            for _ in ROWS[name]():
                pass


def divided(
    own: Callable[..., None], code: str, names: Sequence[str], processes: int
) -> list[float]:
    """Do work in several processes, for the kernels that it compiles; the seconds of each name.

    numba compiles one kernel at a time per process; all find in the disk cache what one has
    compiled. This one calls `own` with a folder, where names are claimed, and the names;
    `processes` - 1 more run `code` with these in `sys.argv`, unless all of this was done
    before. What one of them leaves undone, being killed, is done here.
    """
    mark = repr(("divided", *names))
    marks = kernels.marks() if kernels.compiled() else None
    if marks is None or marks.load(mark):
        processes = 1
    none = subprocess.DEVNULL
    with tempfile.TemporaryDirectory(prefix="shapejit-") as folder:
        command = [sys.executable, "-c", code, folder, *names]
        with ExitStack() as stack:
            others = [
                stack.enter_context(subprocess.Popen(command, stdin=none, stdout=none, stderr=none))
                for _ in range(processes - 1)
            ]
            for other in others:  # which run on no longer than this one, if that fails
                stack.callback(other.kill)
            own(folder, *names)
            for other in others:
                other.wait()
        found = {name: Path(folder, str(k)) for k, name in enumerate(names)}
        for path in found.values():
            if not path.stat().st_size:
                path.unlink()
        own(folder, *names)
        if marks is not None:
            marks.save(mark, True)
        return [float(path.read_text()) for path in found.values()]


def claimed(folder: str, names: Sequence[str]) -> Iterator[str]:
    """The names that no other process works on; `folder` gets the seconds that each takes."""
    for k, name in enumerate(names):
        with suppress(FileExistsError), open(os.path.join(folder, str(k)), "x") as file:
            start = perf_counter()
            yield name
            file.write(str(perf_counter() - start))
