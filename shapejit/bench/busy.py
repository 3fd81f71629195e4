"""Copies beside other programs: to be measured while processes are `spinning`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..operations.joining import concat, stack
from ..operations.views import ascontiguous
from ..programs.batch import reshape_batch
from ..programs.planned import plan
from .cases import pattern
from .throughput import SERIAL, Goal, Way, Work

_GOALS = Goal(SERIAL, "at most", 1.15), Goal("numpy", "at most", 1.1)
_KIB, _MIB = 2**10, 2**20


def _filled(shape: tuple[int, ...], kind: str) -> NDArray[Any]:
    """An array whose pages are there."""
    nbytes = int(np.prod(shape)) * np.dtype(kind).itemsize
    return pattern(nbytes).view(kind).reshape(shape)


def _work(
    ours: Way, numpys: Way, results: list[NDArray[Any]], expected: list[NDArray[Any]]
) -> Work:
    """Ours and NumPy's, proved to do the same."""
    ours()
    numpys()
    same = all(a.tobytes() == b.tobytes() for a, b in zip(results, expected, strict=True))
    return Work({"shapejit": ours, "numpy": numpys}, same, _GOALS, serial=True)


def _copy(view: NDArray[Any]) -> Work:
    ours, theirs = np.ones(view.shape, view.dtype), np.ones(view.shape, view.dtype)
    ways = partial(ascontiguous, view, out=ours), partial(np.copyto, theirs, view)
    return _work(*ways, [ours], [theirs])


def _transposed(nbytes: int, size: float) -> Work:
    side = max(4, int((size * nbytes / 4) ** 0.5))
    return _copy(_filled((side, side), "float32").T)


def _sliced(nbytes: int, size: float) -> Work:
    return _copy(_filled((max(1, int(size * nbytes) // 2000), 1024), "uint16")[:, 12:-12])


def _channels(nbytes: int, size: float) -> Work:
    return _copy(_filled((max(1, int(size * nbytes) // 192), 64, 3), "uint8").transpose(2, 0, 1))


def _arrays(count: int, nbytes: int, size: float) -> list[NDArray[Any]]:
    shape = max(1, int(size * nbytes) // 1024), 256
    return [_filled(shape, "float32") for _ in range(count)]


def _joined(ours: Callable[..., Any], numpys: Callable[..., Any], size: float) -> Work:
    arrays = _arrays(16, 4 * _MIB, size)
    made = numpys(arrays)
    out = np.ones_like(made)
    return _work(partial(ours, arrays, out=out), partial(numpys, arrays, out=made), [out], [made])


def _many(size: float) -> tuple[list[NDArray[Any]], list[NDArray[Any]], Way]:
    """64 arrays of 256 KiB, what NumPy makes of them transposed, and how."""
    arrays = _arrays(64, 256 * _KIB, size)
    made = [np.ones(x.T.shape, x.dtype) for x in arrays]

    def loop() -> None:
        for to, x in zip(made, arrays, strict=True):
            np.copyto(to, x.T)

    return arrays, made, loop


def _reshaped(size: float) -> Work:
    arrays, made, loop = _many(size)
    outs = [np.ones(x.size, x.dtype) for x in arrays]
    views = [x.T for x in arrays]
    return _work(lambda: reshape_batch(views, (-1,), out=outs), loop, outs, made)


def _mapped(size: float) -> Work:
    arrays, made, loop = _many(size)
    program = plan(arrays[0].shape, "float32", lambda t: t.T)
    slab = np.ones((len(arrays), *program.shape), np.float32)
    return _work(lambda: program.map(arrays, out=slab), loop, list(slab), made)


_SIZES = {
    "64KiB": 64 * _KIB,
    "512KiB": 512 * _KIB,
    "1MiB": _MIB,
    "4MiB": 4 * _MIB,
    "64MiB": 64 * _MIB,
}
_VIEWS = {"transposed": _transposed, "sliced": _sliced, "channels": _channels}

CASES: dict[str, Callable[[float], Work]] = {
    **{
        f"{name}-{text}": partial(make, nbytes)
        for name, make in _VIEWS.items()
        for text, nbytes in _SIZES.items()
    },
    "concat-16x4MiB": partial(_joined, concat, np.concatenate),
    "stack-16x4MiB": partial(_joined, stack, np.stack),
    "reshape_batch-64x256KiB": _reshaped,
    "map-64x256KiB": _mapped,
}
"""What `--suite busy` measures, by name; each makes its Work for `size` times the bytes."""

QUICK = ("transposed-1MiB", "map-64x256KiB")  # what --quick takes
