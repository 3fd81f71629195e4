"""The table of operations on arrays, one row each. The methods of Tensor are made from its rows.

The package's functions, and NumPy's functions of Tensors, are found in the same rows. This module
is imported with the package, and imports nothing at run time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..runtime.uninterrupted import module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Self

    from numpy.typing import NDArray


class Operation(NamedTuple):
    """Where an operation is defined.

    `function` and `method` are the modules of `shapejit.operations` with the function and the
    method of Tensor of this name. `numpy` lists the parameters of NumPy's function of the same
    name, in the order of ours, if that function does the same.
    """

    function: str = ""
    method: str = ""
    numpy: str = ""


def _both(where: str, numpy: str = "") -> Operation:
    return Operation(where, where, numpy)


OPERATIONS = {
    "__array_function__": Operation(method="numpy_protocol"),
    "__iter__": Operation(method="aliases"),
    "array_equal": Operation("equality"),
    "ascontiguous": _both("views"),
    "astype": Operation(method="aliases"),
    "broadcast_arrays": Operation("manipulation"),
    "broadcast_shapes": Operation("manipulation"),
    "broadcast_to": _both("views", "array shape"),
    "cast": _both("casts"),
    "concat": Operation("joining"),
    "dequantize": _both("casts"),
    "diagonal": _both("views", "a offset axis1 axis2"),
    "expand_dims": _both("views", "a axis"),
    "flatten": Operation(method="aliases"),
    "flip": _both("views", "m axis"),
    "item": Operation(method="aliases"),
    "matrix_transpose": _both("views", "x"),
    "moveaxis": _both("manipulation", "a source destination"),
    "numpy": Operation(method="codes"),
    "pack": Operation("codes"),
    "permute_dims": _both("views"),
    "quantize": _both("casts"),
    "repeat": _both("manipulation"),
    "reshape": Operation("views", "aliases"),
    "roll": _both("manipulation", "a shift axis"),
    "rot90": _both("views", "m k axes"),
    "split": _both("manipulation", "ary indices_or_sections axis"),
    "squeeze": _both("views"),
    "stack": Operation("joining"),
    "take": Operation("gathering"),
    "take_along_axis": Operation("gathering", numpy="arr indices axis"),
    "tile": _both("manipulation"),
    "tobytes": Operation(method="codes"),
    "tolist": Operation(method="aliases"),
    "transpose": Operation("manipulation", "aliases", "a axes"),
    "unpack": _both("codes"),
    "unstack": _both("manipulation", "x axis"),
}

# Names that NumPy and torch have for public functions, for the error about them.
ALIASES = {
    "array": "asarray",
    "ascontiguousarray": "ascontiguous",
    "astype": "cast",
    "cat": "concat",
    "concatenate": "concat",
    "contiguous": "ascontiguous",
    "equal": "array_equal",
    "gather": "take_along_axis",
    "permute": "permute_dims",
    "swapaxes": "permute_dims",
    "unsqueeze": "expand_dims",
}


class Methods:
    """The methods of Tensor that `OPERATIONS` names, with their types."""

    __slots__ = ()

    if TYPE_CHECKING:

        def ascontiguous(self, *, out: Self | None = None) -> Self: ...
        def astype(self, dtype: object, /, *, copy: bool = True) -> Self: ...
        def broadcast_to(self, shape: Sequence[int] | int) -> Self: ...
        def cast(
            self,
            dtype: object,
            *,
            saturate: bool = True,
            round_mode: str = "nearest",
            out: Self | None = None,
        ) -> Self: ...
        def dequantize(
            self,
            scale: Any,
            *,
            zero_point: Any = None,
            block_shape: Sequence[int] | None = None,
            dtype: object = None,
            out: Self | None = None,
        ) -> Self: ...
        def diagonal(self, /, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Self: ...
        def expand_dims(self, /, axis: int | Sequence[int] = 0) -> Self: ...
        def flatten(self) -> Self: ...
        def flip(self, *, axis: int | Sequence[int] | None = None) -> Self: ...
        def item(self) -> Any: ...
        def matrix_transpose(self) -> Self: ...
        def moveaxis(
            self, source: int | Sequence[int], destination: int | Sequence[int], /
        ) -> Self: ...
        def numpy(self) -> NDArray[Any]: ...
        def permute_dims(self, axes: Sequence[int]) -> Self: ...
        def quantize(
            self,
            scale: Any,
            *,
            dtype: object,
            zero_point: Any = None,
            block_shape: Sequence[int] | None = None,
            saturate: bool = True,
            out: Self | None = None,
        ) -> Self: ...
        def repeat(
            self,
            repeats: int | Sequence[int],
            /,
            axis: int | None = None,
            *,
            copy: bool | None = None,
            out: Self | None = None,
        ) -> Self: ...
        def reshape(
            self,
            *sizes: Sequence[int] | int,
            shape: Sequence[int] | int | None = None,
            copy: bool | None = None,
            out: Self | None = None,
        ) -> Self: ...
        def roll(
            self,
            shift: int | Sequence[int],
            axis: int | Sequence[int] | None = None,
            *,
            out: Self | None = None,
        ) -> Self: ...
        def rot90(self, /, k: int = 1, axes: Sequence[int] = (0, 1)) -> Self: ...
        def split(self, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Self]: ...
        def squeeze(self, axis: int | Sequence[int]) -> Self: ...
        def tile(
            self,
            repetitions: int | Sequence[int],
            /,
            *,
            copy: bool | None = None,
            out: Self | None = None,
        ) -> Self: ...
        def tobytes(self) -> bytes: ...
        def tolist(self) -> Any: ...
        def transpose(self, *axes: Any) -> Self: ...
        def unpack(self, out: NDArray[Any] | None = None) -> NDArray[Any]: ...
        def unstack(self, axis: int = 0) -> tuple[Self, ...]: ...
        def __iter__(self) -> Iterator[Self]: ...

        __array_function__: Callable[..., Any]


class _Method:
    """A method whose module is imported on first access, since that takes time."""

    __slots__ = ("name", "where")

    def __init__(self, name: str, where: str) -> None:
        self.name, self.where = name, where

    def __get__(self, t: Any, kind: Any = None) -> Any:
        function = getattr(module(f"operations.{self.where}"), self.name)
        setattr(Methods, self.name, function)
        return function if t is None else function.__get__(t, kind)


for _name, _row in OPERATIONS.items():
    if _row.method:
        setattr(Methods, _name, _Method(_name, _row.method))
