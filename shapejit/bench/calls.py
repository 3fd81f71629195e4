"""Benchmarks of short calls, compared with NumPy: functions of one or two small arrays."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .cases import (
    MIB,
    OURS,
    CallCase,
    Ints,
    Look,
    Make,
    Read,
    Ways,
    assigned,
    filled,
    permuted,
    rows,
)
from .worker import pattern

# The arguments of an expression, of about so many bytes.
Given = Callable[[int], tuple[Any, ...]]
# An expression of a module, shapejit or NumPy, and of arguments.
Expression = Callable[..., Any]

_CUBE = np.zeros((64, 64, 64), np.float32)
_SQUARE = np.zeros((64, 64), np.float32)

# Reshapes without a copy, and those that need one: the array and the target shape.
RESHAPES: dict[str, tuple[NDArray[Any], Ints]] = {
    "contiguous": (_CUBE, (4096, 64)),
    "inferred": (_CUBE, (64, -1)),
    "sliced": (_CUBE[:, :, :32], (4096, 4, 8)),
    "permuted": (_CUBE.transpose(2, 0, 1), (64, 4096)),
    "flipped": (_CUBE[::-1], (64, 4096)),
    "units": (_CUBE.reshape(1, 64, 1, 4096, 1), (64, 1, 64, 64)),
    "many-dims": (_CUBE.reshape((2,) * 18), (8, 8, 8, 8, 8, 8)),
    "broadcast": (np.broadcast_to(_CUBE[:, :1], (64, 64, 64)), (64, 8, 8, 64)),
}
COPIED_RESHAPES: dict[str, tuple[NDArray[Any], Ints]] = {
    "sliced-rows": (_SQUARE[:, :32], (2048,)),
    "transposed": (_SQUARE.T, (4096,)),
    "flipped-rows": (_SQUARE[:, ::-1], (4096,)),
}

VIEW_CALLS: dict[str, Expression] = {
    "permute_dims": lambda m, x: m.permute_dims(x, (2, 0, 1)),
    "flip": lambda m, x: m.flip(x, axis=1),
    "rot90": lambda m, x: m.rot90(x),
    "diagonal": lambda m, x: m.diagonal(x),
    "broadcast_to": lambda m, x: m.broadcast_to(x, (8, 16, 32, 64)),
    "expand_dims": lambda m, x: m.expand_dims(x, axis=1),
    "squeeze": lambda m, x: m.squeeze(x[:1], axis=0),
    "matrix_transpose": lambda m, x: m.matrix_transpose(x),
    "moveaxis": lambda m, x: m.moveaxis(x, 0, -1),
    "transpose": lambda m, x: m.transpose(x, (2, 0, 1)),
    "unstack": lambda m, x: m.unstack(x, axis=1),
    "split": lambda m, x: m.split(x, 4, axis=2),
    "broadcast_arrays": lambda m, x: m.broadcast_arrays(x, x[:1]),
    "broadcast_shapes": lambda m, x: m.broadcast_shapes(x.shape, (8, 1, 1, 1)),
}

_TOKENS, _SHAPE = [0, 0, -1, 64], (8, 2048, 2048)
_REQUESTS: dict[str, Look] = {
    "onnx": lambda sj: sj.onnx.request(_TOKENS),
    "openvino": lambda sj: sj.openvino.request(_TOKENS, special_zero=True),
    "onednn": lambda sj: sj.onednn.request(_TOKENS, special_zero=True),
}

_PROGRAMS: dict[str, tuple[Ints, str, Look]] = {
    "64B/float32": ((4, 4), "float32", lambda t: permuted(t, (1, 0))),
    "4KiB/bfloat16": ((4, 64, 8), "bfloat16", lambda t: permuted(t, (1, 0, 2))),
    "1KiB-chain/uint8": (
        (64, 16), "uint8", lambda t: permuted(t.reshape((8, 8, 16)), (1, 0, 2))
    ),
}  # fmt: skip


def _reshape(x: NDArray[Any], target: Ints, tensor: bool, sj: Any, nbytes: int) -> Ways:
    ours = sj.asarray(x) if tensor else x
    return {OURS: lambda: sj.reshape(ours, target), "numpy": lambda: x.reshape(target)}


def _look(look: Expression, tensor: bool, sj: Any, nbytes: int) -> Ways:
    x = np.zeros((16, 32, 64), np.float32)
    return {OURS: partial(look, sj, sj.asarray(x) if tensor else x), "numpy": partial(look, np, x)}


def _resolve(dialect: str, call: str, sj: Any, nbytes: int) -> Ways:
    make = _REQUESTS[dialect]
    request, sizes = make(sj), count(1)
    calls = {
        "request": lambda: make(sj),
        "resolve": lambda: sj.resolve(_SHAPE, request),
        "resolve-unseen": lambda: sj.resolve((8, next(sizes), 2048), request),
    }
    # No byte is behind it: NumPy, too, has only a shape to find, and remembers none.
    nothing = np.broadcast_to(np.uint8(0), _SHAPE)
    return {OURS: calls[call], "numpy": lambda: nothing.reshape(8, 2048, -1, 64)}


def _shape(sj: Any, made: Any) -> Any:
    """A shape that was found, of an array or by a request, without the dims that never repeat."""
    shape = sj.resolve(_SHAPE, made) if hasattr(made, "dims") else getattr(made, "shape", made)
    return shape[2:]


def _dtypes(sj: Any, nbytes: int) -> Ways:
    known = [kind for kind in sj.dtypes.all() if kind.numpy is not None and kind.bits]
    names, scalars = [kind.name for kind in known], [kind.numpy.type for kind in known]
    return {
        OURS: lambda: [sj.dtype(name) for name in names],
        "numpy": lambda: [np.dtype(scalar) for scalar in scalars],
    }


def _program(name: str, sj: Any, nbytes: int) -> Ways:
    """One call of a small program with out=."""
    shape, dtype, look = _PROGRAMS[name]
    x = filled(shape, dtype)
    seen = look(x)
    program = sj.plan(shape, dtype, look)
    out = np.ones(seen.shape, x.dtype)
    return {OURS: lambda: program(x, out=out), "numpy": partial(assigned, out, seen)}


def calls() -> tuple[CallCase, ...]:
    """Calls that take microseconds: views, resolved shapes, dtype lookups, small programs."""
    table: dict[str, Make] = {}
    reads: dict[str, Read] = {"dtypes": lambda sj, made: [kind.name for kind in made]}
    for kind, tensor in (("ndarray", False), ("tensor", True)):
        for name, row in RESHAPES.items():
            table[f"reshape-{name}/{kind}"] = partial(_reshape, *row, tensor)
        for name, look in VIEW_CALLS.items():
            table[f"{name}/{kind}"] = partial(_look, look, tensor)
    for dialect in _REQUESTS:
        for call in ("request", "resolve", "resolve-unseen"):
            table[f"{call}/{dialect}"] = partial(_resolve, dialect, call)
            reads[f"{call}/{dialect}"] = _shape
    table["dtypes"] = _dtypes
    table |= {f"program-{name}": partial(_program, name) for name in _PROGRAMS}
    return tuple(rows("calls", table, reads=reads))


def _both(given: Given, call: Expression, sj: Any, nbytes: int) -> Ways:
    """The same expression with both packages."""
    arguments = given(nbytes)
    return {OURS: partial(call, sj, *arguments), "numpy": partial(call, np, *arguments)}


def _ints(nbytes: int) -> NDArray[Any]:
    return filled((max(1, nbytes // 4096), 1024), np.int32)


def _ones(shape: Ints, nbytes: int) -> NDArray[Any]:
    """Ones of this shape, of fewer rows if those are more bytes."""
    count = min(shape[0], max(1, nbytes // (4 * prod(shape[1:]))))
    return np.ones((count, *shape[1:]), np.float32)


def _taken(shape: tuple[int, int], axis: int, indices: int, nbytes: int) -> tuple[Any, ...]:
    x = _ones(shape, nbytes)
    return x, np.random.default_rng(1).integers(0, x.shape[axis], indices), axis


def _taken_along(nbytes: int) -> tuple[Any, ...]:
    x = _ones((nbytes, 1024), nbytes)
    return x, np.random.default_rng(1).integers(0, 1024, (len(x), 64))


def _matrix(nbytes: int) -> tuple[Any, ...]:
    return (filled((max(2, nbytes // 8192), 2048), np.uint16),)


def _pad(shape: Ints, sj: Any, nbytes: int) -> Ways:
    x = _ones(shape, nbytes)
    ours = partial(sj.onnx.pad, x, (0, 0, 1, 1) * 2)
    return {OURS: ours, "numpy": partial(np.pad, x, [(0, 0), (0, 0), (1, 1), (1, 1)])}


def _unpack(sj: Any, nbytes: int) -> Ways:
    stream = pattern(nbytes // 4)
    t = sj.Tensor.frombuffer(stream, "uint4", (2 * stream.size,))

    def by_numpy() -> Any:
        codes = np.empty((stream.size, 2), np.uint8)
        np.bitwise_and(stream, 15, out=codes[:, 0])
        np.right_shift(stream, 4, out=codes[:, 1])
        return codes

    return {OURS: lambda: sj.unpack(t), "numpy": by_numpy}


def _stack_packed(sj: Any, nbytes: int) -> Ways:
    """Three planes of 4-bit colours, stacked; NumPy has a byte per element."""
    planes = [filled((max(1, nbytes // 6144), 1024), np.uint8) & np.uint8(15) for _ in range(3)]
    packed = [sj.pack(x, "uint4") for x in planes]
    return {
        OURS: lambda: sj.stack(packed, axis=-1).unpack().view(np.uint8),
        "numpy": partial(np.stack, planes, axis=-1),
    }


def _quantize(sj: Any, nbytes: int) -> Ways:
    x = np.resize(np.arange(-100, 100, dtype=np.float32), (max(1, nbytes // 5120), 1024))
    scale = np.full((len(x), 1), 0.5, np.float32)
    words = {"dtype": "int8", "block_shape": (1, 1024)}
    out = sj.quantize(x, scale, **words)
    by_numpy = lambda: np.rint(x / scale).clip(-128, 127).astype(np.int8)  # noqa: E731
    return {OURS: partial(sj.quantize, x, scale, **words, out=out), "numpy": by_numpy}


_EQUAL: Expression = lambda m, x, y: m.array_equal(x, y)  # noqa: E731
_TAKE: Expression = lambda m, x, at, axis: m.take(x, at, axis=axis)  # noqa: E731
_FUNCTIONS: dict[str, Make] = {
    "equal/alike": partial(_both, lambda n: (_ints(n), _ints(n)), _EQUAL),
    "equal/both-transposed": partial(_both, lambda n: (_ints(n).T, _ints(n).T), _EQUAL),
    "equal/one-transposed": partial(
        _both, lambda n: (_ints(n).T, np.ascontiguousarray(_ints(n).T)), _EQUAL
    ),
    "take/rows-3KiB": partial(_both, partial(_taken, (4096, 768), 0, 8192), _TAKE),
    "take/rows-64B": partial(_both, partial(_taken, (65536, 16), 0, 65536), _TAKE),
    "take/columns": partial(_both, partial(_taken, (1024, 1024), 1, 2048), _TAKE),
    "take/few": partial(_both, partial(_taken, (64, 64), 0, 8), _TAKE),
    "take-along/columns": partial(
        _both, _taken_along, lambda m, x, at: m.take_along_axis(x, at, axis=1)
    ),
    "pad/images": partial(_pad, (32, 64, 56, 56)),
    "pad/small": partial(_pad, (1, 8, 8, 8)),
    "tile": partial(_both, _matrix, lambda m, x: m.tile(x, (2, 1))),
    "repeat": partial(_both, _matrix, lambda m, x: m.repeat(x, 2, axis=0)),
    "roll": partial(_both, _matrix, lambda m, x: m.roll(x, 7, axis=1)),
    "unpack/uint4": _unpack,
    "stack-packed": _stack_packed,
    "quantize/int8-rows": _quantize,
    **{f"reshape/{name}": partial(_reshape, *row, False) for name, row in COPIED_RESHAPES.items()},
}


def functions() -> tuple[CallCase, ...]:
    """Functions that make or compare arrays, compared with NumPy's of that name."""
    return tuple(rows("functions", _FUNCTIONS, 32 * MIB))
