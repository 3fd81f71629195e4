"""A script as users write it, in every line of which the type checker knows the result.

test_typing runs it, and runs mypy on it; `pyright tests/users_script.py` says the same.
"""

from collections.abc import Callable
from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

import shapejit as sj


class Lender:
    """An array of another library, such as torch's."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array

    def __dlpack__(self, **named: Any) -> Any:
        return sj.asarray(self.array).__dlpack__(**named)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __array_namespace__(self) -> Any:
        return Lender

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    @staticmethod
    def from_dlpack(x: sj.Tensor) -> "Lender":
        return Lender(x.numpy())


Floats = NDArray[np.float32]

x = np.zeros((2, 3), np.float32)
b = np.zeros((2, 3), np.int8)
t = sj.Tensor.frombuffer(bytes(3), "int4", (2, 3))
w = Lender(x)

assert_type(sj.reshape(x, (3, -1)), Floats)
assert_type(sj.reshape(x, 6, copy=True), Floats)
assert_type(sj.reshape(b, (-1,)), NDArray[np.int8])
assert_type(sj.reshape(t, (6,)), sj.Tensor)
assert_type(sj.reshape(w, (6,)), Lender)
assert_type(sj.ascontiguous(x.T, out=np.empty((3, 2), np.float32)), Floats)
assert_type(sj.permute_dims(x, (1, 0)), Floats)
assert_type(sj.expand_dims(t, axis=0), sj.Tensor)
assert_type(sj.flip(w), Lender)
assert_type(sj.concat([x, x], axis=1), Floats)
assert_type(sj.stack([t, t]), sj.Tensor)
assert_type(sj.concat([w, w]), Lender)
assert_type(sj.split(x, 3, axis=1), list[Floats])
assert_type(sj.unstack(w), tuple[Lender, ...])
assert_type(sj.broadcast_arrays(t, t[0]), tuple[sj.Tensor, ...])
assert_type(sj.onnx.split(x, axis=1, num_outputs=3), tuple[Floats, ...])
assert_type(sj.cast(x, "bfloat16"), NDArray[Any])
assert_type(sj.cast(t, "float32"), sj.Tensor)
assert_type(sj.dequantize(t, 0.5), sj.Tensor)
assert_type(sj.quantize(w, 0.5, dtype="int8"), Lender)
assert_type(sj.onnx.reshape(x, [0, -1]), Floats)
assert_type(sj.openvino.reshape(t, [0, -1], special_zero=True), sj.Tensor)
assert_type(sj.onnx.cast(w, to=16), Lender)

turn = sj.plan((2, 3), "float32", lambda t: t.permute_dims((1, 0)).reshape((6,)))
ring: list[Floats] = [np.empty(6, np.float32) for _ in range(2)]
give: Callable[[int], Floats] = ring.__getitem__
assert_type(turn, sj.Program)
assert_type(turn(x), NDArray[Any])
assert_type(turn(w), Lender)
assert_type(turn(x, ring[0]), Floats)
assert_type(turn.map([x, x]), list[NDArray[Any]])
assert_type(turn.map([w]), list[Lender])
assert_type(turn.map(np.stack([x, x])), NDArray[Any])
assert_type(turn.map([x, x], out=give), list[Floats])

assert_type(sj.reshape_batch([x, x], (-1,)), list[Floats])
assert_type(sj.reshape_batch({"a": x}, (-1,)), dict[str, Floats])
assert_type(sj.reshape_batch({"a": t}, {"a": (6,)}), dict[str, sj.Tensor])
assert_type(sj.reshape_batch({"a": w}, (-1,)), dict[str, Lender])


def wrong() -> None:
    sj.reshape("abc", (3,))  # type: ignore[call-overload]
    sj.reshape(x, "abc")  # type: ignore[arg-type]
    sj.reshape(x, (6,), order="F")  # type: ignore[call-overload]
    sj.concat(3)  # type: ignore[call-overload]
    sj.plan((2, 3), "float32", 3)  # type: ignore[arg-type]
