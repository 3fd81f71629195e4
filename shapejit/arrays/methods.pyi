from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

from numpy.typing import NDArray

DEFINED: dict[str, str]

class Methods:
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
        self, shape: Sequence[int] | int, *, copy: bool | None = None, out: Self | None = None
    ) -> Self: ...
    def roll(
        self,
        shift: int | Sequence[int],
        axis: int | Sequence[int] | None = None,
        *,
        out: Self | None = None,
    ) -> Self: ...
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
    # What the same names do to a Tensor, or to one that is traced.
    converted: Callable[..., Any]
    materialized: Callable[..., Self]
    reshaped: Callable[..., Self]
