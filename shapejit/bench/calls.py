"""Short calls compared with NumPy's: functions of one or two arrays that take microseconds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from math import prod
from typing import Any

from .cases import MIB, OURS, Call, Make, Read, Ways, assigned, filled, permuted, rows
from .reshapes import RESHAPES, Reshape
from .worker import pattern

Look = Callable[[Any, Any], Any]


def _reshape(row: Reshape, tensor: bool, sj: Any, np: Any, nbytes: int) -> Ways:
    x, target = row.view(), row.target
    ours = sj.asarray(x) if tensor else x
    return {OURS: lambda: sj.reshape(ours, target), "numpy": lambda: x.reshape(target)}


def _look(look: Look, tensor: bool, sj: Any, np: Any, nbytes: int) -> Ways:
    x = np.zeros((16, 32, 64), np.float32)
    return {OURS: partial(look, sj, sj.asarray(x) if tensor else x), "numpy": partial(look, np, x)}


LOOKS: dict[str, Look] = {
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
_REQUESTS: dict[str, Callable[[Any], Any]] = {
    "onnx": lambda sj: sj.onnx.request(_TOKENS),
    "openvino": lambda sj: sj.openvino.request(_TOKENS, special_zero=True),
    "onednn": lambda sj: sj.onednn.request(_TOKENS, special_zero=True),
}


def _resolve(dialect: str, call: str, sj: Any, np: Any, nbytes: int) -> Ways:
    make = _REQUESTS[dialect]
    request, sizes = make(sj), count(1)
    calls = {
        "request": lambda: make(sj),
        "resolve": lambda: sj.resolve(_SHAPE, request),
        "resolve-unseen": lambda: sj.resolve((8, next(sizes), 2048), request),
    }
    # No byte is behind it: NumPy, too, has only a shape to find.
    nothing = np.broadcast_to(np.empty((), np.uint8), _SHAPE)
    if call != "resolve-unseen":
        return {OURS: calls[call], "numpy": lambda: nothing.reshape(8, 2048, -1, 64)}
    large, numbers = np.broadcast_to(nothing[:, :1], (8, 1 << 31, 2048)), count(1)

    def by_numpy() -> Any:
        size = next(numbers)
        return large[:, :size].reshape(8, size, -1, 64)

    return {OURS: calls[call], "numpy": by_numpy}


def _shape(sj: Any, made: Any) -> Any:
    """A shape that is found, the one of an array, or what a request finds."""
    if isinstance(made, tuple):
        return made
    return made.shape if hasattr(made, "shape") else sj.resolve(_SHAPE, made)


def _dtypes(sj: Any, np: Any, nbytes: int) -> Ways:
    known = [kind for kind in sj.dtypes.all() if kind.numpy is not None and kind.bits]
    names, scalars = [kind.name for kind in known], [kind.numpy.type for kind in known]
    return {
        OURS: lambda: [sj.dtype(name) for name in names],
        "numpy": lambda: [np.dtype(scalar) for scalar in scalars],
    }


_PROGRAMS: dict[str, tuple[tuple[int, ...], str, Callable[[Any], Any]]] = {
    "64B/float32": ((4, 4), "float32", lambda t: permuted(t, (1, 0))),
    "4KiB/bfloat16": ((4, 64, 8), "bfloat16", lambda t: permuted(t, (1, 0, 2))),
    "1KiB-chain/uint8": (
        (64, 16), "uint8", lambda t: permuted(t.reshape((8, 8, 16)), (1, 0, 2))
    ),
}  # fmt: skip


def _program(name: str, sj: Any, np: Any, nbytes: int) -> Ways:
    """One small program call, out= given."""
    shape, dtype, look = _PROGRAMS[name]
    x = filled(shape, dtype)
    seen = look(x)
    program = sj.plan(shape, dtype, look)
    out = np.ones(seen.shape, x.dtype)
    return {OURS: lambda: program(x, out=out), "numpy": partial(assigned, out, seen)}


def calls() -> tuple[Call, ...]:
    """What takes microseconds: views, shapes resolved, dtypes looked up, small programs."""
    table: dict[str, Make] = {}
    reads: dict[str, Read] = {"dtypes": lambda sj, made: [kind.name for kind in made]}
    for kind in ("ndarray", "tensor"):
        for row in RESHAPES:
            if not row.copied:
                table[f"reshape-{row.name}/{kind}"] = partial(_reshape, row, kind == "tensor")
        for name, look in LOOKS.items():
            table[f"{name}/{kind}"] = partial(_look, look, kind == "tensor")
    for dialect in _REQUESTS:
        for call in ("request", "resolve", "resolve-unseen"):
            table[f"{call}/{dialect}"] = partial(_resolve, dialect, call)
            reads[f"{call}/{dialect}"] = _shape
    table["dtypes"] = _dtypes
    table |= {f"program-{name}": partial(_program, name) for name in _PROGRAMS}
    return tuple(rows("calls", table, reads=reads))


def _equal(first: bool, second: bool, sj: Any, np: Any, nbytes: int) -> Ways:
    one = filled((max(1, nbytes // 4096), 1024), np.int32)
    other = one.copy()
    one, other = (one.T if first else one), (other.T if second else other)
    if first != second:
        other = np.ascontiguousarray(one)
    equal = partial(sj.array_equal, one, other)
    return {OURS: equal, "numpy": partial(np.array_equal, one, other)}


def _take(shape: tuple[int, int], axis: int, indices: int, sj: Any, np: Any, nbytes: int) -> Ways:
    x = np.ones((min(shape[0], max(1, nbytes // (4 * shape[1]))), shape[1]), np.float32)
    at = np.random.default_rng(1).integers(0, x.shape[axis], indices)
    return {OURS: partial(sj.take, x, at, axis=axis), "numpy": partial(np.take, x, at, axis)}


def _along(indices: int, sj: Any, np: Any, nbytes: int) -> Ways:
    x = np.ones((max(1, nbytes // 4096), 1024), np.float32)
    at = np.random.default_rng(1).integers(0, 1024, (len(x), indices))
    return {
        OURS: partial(sj.take_along_axis, x, at, axis=1),
        "numpy": partial(np.take_along_axis, x, at, axis=1),
    }


def _pad(shape: tuple[int, ...], sj: Any, np: Any, nbytes: int) -> Ways:
    count = min(shape[0], max(1, nbytes // (4 * prod(shape[1:]))))
    x = np.ones((count, *shape[1:]), np.float32)
    ours = partial(sj.onnx.pad, x, (0, 0, 1, 1) * 2)
    return {OURS: ours, "numpy": partial(np.pad, x, [(0, 0), (0, 0), (1, 1), (1, 1)])}


def _moved(look: Look, sj: Any, np: Any, nbytes: int) -> Ways:
    x = filled((max(2, nbytes // 8192), 2048), np.uint16)
    return {OURS: partial(look, sj, x), "numpy": partial(look, np, x)}


def _copied(row: Reshape, sj: Any, np: Any, nbytes: int) -> Ways:
    return _reshape(row, False, sj, np, nbytes)


def _unpack(sj: Any, np: Any, nbytes: int) -> Ways:
    stream = pattern(nbytes // 4)
    t = sj.Tensor.frombuffer(stream, "uint4", (2 * stream.size,))

    def by_numpy() -> Any:
        codes = np.empty((stream.size, 2), np.uint8)
        np.bitwise_and(stream, 15, out=codes[:, 0])
        np.right_shift(stream, 4, out=codes[:, 1])
        return codes

    return {OURS: lambda: sj.unpack(t), "numpy": by_numpy}


def _stack_packed(sj: Any, np: Any, nbytes: int) -> Ways:
    """Three planes of 4-bit colours beside each other; NumPy has a byte for each."""
    planes = [filled((max(1, nbytes // 6144), 1024), np.uint8) & np.uint8(15) for _ in range(3)]
    packed = [sj.pack(x, "uint4") for x in planes]
    return {
        OURS: lambda: sj.stack(packed, axis=-1).unpack().view(np.uint8),
        "numpy": partial(np.stack, planes, axis=-1),
    }


def _quantize(sj: Any, np: Any, nbytes: int) -> Ways:
    x = np.resize(np.arange(-100, 100, dtype=np.float32), (max(1, nbytes // 5120), 1024))
    scale = np.full((len(x), 1), 0.5, np.float32)
    words = {"dtype": "int8", "block_shape": (1, 1024)}
    out = sj.quantize(x, scale, **words)
    by_numpy = lambda: np.rint(x / scale).clip(-128, 127).astype(np.int8)  # noqa: E731
    return {OURS: partial(sj.quantize, x, scale, **words, out=out), "numpy": by_numpy}


def functions() -> tuple[Call, ...]:
    """What makes arrays, or compares them, beside NumPy's function of that name."""
    table: dict[str, Make] = {
        "equal/alike": partial(_equal, False, False),
        "equal/both-transposed": partial(_equal, True, True),
        "equal/one-transposed": partial(_equal, True, False),
        "take/rows-3KiB": partial(_take, (4096, 768), 0, 8192),
        "take/rows-64B": partial(_take, (65536, 16), 0, 65536),
        "take/columns": partial(_take, (1024, 1024), 1, 2048),
        "take/few": partial(_take, (64, 64), 0, 8),
        "take-along/columns": partial(_along, 64),
        "pad/images": partial(_pad, (32, 64, 56, 56)),
        "pad/small": partial(_pad, (1, 8, 8, 8)),
        "tile": partial(_moved, lambda m, x: m.tile(x, (2, 1))),
        "repeat": partial(_moved, lambda m, x: m.repeat(x, 2, axis=0)),
        "roll": partial(_moved, lambda m, x: m.roll(x, 7, axis=1)),
        "unpack/uint4": _unpack,
        "stack-packed": _stack_packed,
        "quantize/int8-rows": _quantize,
        **{f"reshape/{r.name}": partial(_copied, r) for r in RESHAPES if r.copied},
    }
    return tuple(rows("functions", table, 32 * MIB))
