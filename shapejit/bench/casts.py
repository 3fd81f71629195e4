"""The suite of casts and scales, with the limits that they have, beside ml_dtypes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from ..arrays.tensor import Tensor, asarray
from ..dtypes.table import dtype
from ..operations.casts import cast, dequantize
from .cases import pattern
from .packed import Group, PackedCase, raw_of

SUITE = "casts"


@dataclass(frozen=True)
class CastCase(PackedCase):
    """A cast of `dtype` to `target`, or with `blocks` a dequantization by a scale per block.

    The source is seen in the order of `axes`; scales are those of the source's own order.
    """

    target: str = "float32"
    blocks: tuple[int, ...] = ()

    @property
    def id(self) -> str:
        """What `--case` searches: suite, name and both dtypes."""
        return f"{self.suite}/{self.name}/{self.dtype}-{self.target}"

    @property
    def nbytes(self) -> int:
        """Bytes of the result."""
        return dtype(self.target).nbytes(prod(self.shape))

    @property
    def moved(self) -> int:
        """Half the bytes that are read and written: so many does a memcpy of as many copy."""
        numbers = 2 * prod(self._counts) if self.blocks else 0  # scales and zero points
        return (self.source_nbytes + 4 * numbers + self.nbytes + 1) // 2

    @property
    def _counts(self) -> tuple[int, ...]:
        pairs = zip(self.shape, self.blocks, strict=True) if self.blocks else ()
        return tuple(-(-size // block) for size, block in pairs)

    def source(self) -> Any:
        """A Tensor of numbers that each dtype has or rounds: quarters between -32 and 32."""
        numbers = pattern(prod(self.shape)).view(np.int8).astype(np.float32) / 4
        if dtype(self.dtype).kind == "integer":
            numbers = np.abs(numbers)
        return cast(asarray(numbers.reshape(self.shape)), self.dtype)

    def output(self) -> Any:
        """A Tensor over mapped memory for the result."""
        memory = np.empty(self.nbytes, np.uint8)
        memory.fill(0)
        return Tensor.frombuffer(memory, self.target, self._result_shape)

    def ours(self, base: Any, out: Any) -> Callable[[], object]:
        """The call that is measured."""
        seen = self.view(base)
        if not self.blocks:
            return lambda: cast(seen, self.target, out=out)
        scale, zero = (self._seen(x) for x in self._scales())
        blocks = tuple(self.blocks[axis] for axis in self._axes)
        settings: dict[str, Any] = {"zero_point": zero, "block_shape": blocks, "dtype": self.target}
        return lambda: dequantize(seen, scale, out=out, **settings)

    def rivals(self) -> dict[str, Callable[[], object]]:
        """ml_dtypes and NumPy: converted, scaled, put in order."""
        unpacked = self.source().unpack()
        return {"ml_dtypes": lambda: np.ascontiguousarray(self._seen(self._theirs(unpacked)))}

    def asked(self) -> dict[str, Any]:
        """The cast, and the scales, that a peer is asked for."""
        return {
            "work": "cast",
            "dtype": self.dtype,
            "target": self.target,
            "shape": self.shape,
            "axes": self._axes,
            "blocks": self.blocks,
        }

    def proved(self, base: Any, out: Any) -> bool:
        """Whether our result is, bit for bit, what ml_dtypes and NumPy make."""
        made = np.ascontiguousarray(self._seen(self._theirs(base.unpack())))
        found = out.unpack()
        return bool(np.array_equal(raw_of(found), raw_of(made)))

    @property
    def _axes(self) -> tuple[int, ...]:
        return self.axes or tuple(range(len(self.shape)))

    def _seen(self, x: NDArray[Any]) -> NDArray[Any]:
        return x.transpose(self._axes)

    def _scales(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Scales that are powers of two, and zero points."""
        numbers = pattern(prod(self._counts)).reshape(self._counts)
        return np.ldexp(np.float32(1), numbers.astype(np.int32) % 8 - 4), numbers % np.float32(3)

    def _theirs(self, x: NDArray[Any]) -> NDArray[Any]:
        kind = dtype(self.target).numpy
        assert kind is not None
        if dtype(self.target).kind == "integer":
            ends: Any = ml_dtypes.iinfo(kind)  # type: ignore[no-untyped-call]  # it has no types
            return np.clip(np.trunc(x.astype(np.float32)), ends.min, ends.max).astype(kind)
        if not self.blocks:
            whole = dtype(self.dtype).bits < 16 and dtype(self.target).bits < 32
            return x.astype(np.float32).astype(kind) if whole else x.astype(kind)
        scale, zero = self._scales()
        for axis, (size, block) in enumerate(zip(self.shape, self.blocks, strict=True)):
            at = np.arange(size) // block
            scale, zero = scale.take(at, axis), zero.take(at, axis)
        return ((x.astype(np.float32) - zero) * scale).astype(kind)


_WIDE = Group("float32 to and from bfloat16, float16", 1.3)
_NARROW = Group("float8, float6, float4 to float32, bfloat16", 1.4)
_DOWN = Group("float32, bfloat16 to float8, float6, float4", 1.8)
_WHOLE = Group("int4, int8, uint8 to and from float32, bfloat16", 1.4)
_TURNED = Group("transposed", 1.6)
_BLOCKS = Group("int4, float4 codes by block scales", 1.6)
_SQUARES = Group("float8 by scales of 128 x 128", 1.5)
_IMAGES = Group("images normalised, channels first", 1.5)
_SMALL = ("float8_e4m3fn", "float8_e5m2", "float6_e2m3fn", "float4_e2m1fn")

_PAIRS = (
    (_WIDE, [("float32", "bfloat16"), ("bfloat16", "float32")]),
    (_WIDE, [("float32", "float16"), ("float16", "float32")]),
    (_NARROW, [(kind, to) for kind in _SMALL for to in ("float32", "bfloat16")]),
    (_DOWN, [(kind, to) for kind in ("float32", "bfloat16") for to in _SMALL]),
    (_WHOLE, [(kind, to) for kind in ("int4", "int8", "uint8") for to in ("float32", "bfloat16")]),
    (_WHOLE, [(kind, to) for kind in ("float32", "bfloat16") for to in ("int4", "int8", "uint8")]),
)


def cases() -> tuple[CastCase, ...]:
    """All of the suite, group by group."""
    return tuple(_cases())


def _cases() -> Iterator[CastCase]:
    rows, columns = 8192, 4096
    for group, pairs in _PAIRS:
        for source, target in pairs:
            yield CastCase(
                SUITE, "rows", source, (rows, columns), (0, 1), group=group, target=target
            )
    turned = (("float32", "bfloat16"), ("bfloat16", "float32"), ("float8_e4m3fn", "bfloat16"),
              ("float32", "float8_e4m3fn"), ("int4", "bfloat16"), ("int8", "float32"))  # fmt: skip
    for source, target in turned:
        yield CastCase(
            SUITE, "transposed", source, (rows, columns), (1, 0), group=_TURNED, target=target
        )
    for source in ("int4", "uint4", "float4_e2m1fn"):
        for block in (16, 32, 128):
            name = f"block-{block}"
            yield CastCase(SUITE, name, source, (rows, columns), (0, 1), group=_BLOCKS,
                           target="bfloat16", blocks=(1, block))  # fmt: skip
    yield CastCase(SUITE, "block-128x128", "float8_e4m3fn", (rows, columns), (0, 1),
                   group=_SQUARES, target="bfloat16", blocks=(128, 128))  # fmt: skip
    yield CastCase(SUITE, "images", "uint8", (300, 224, 224, 3), (0, 3, 1, 2), group=_IMAGES,
                   target="float32", blocks=(300, 224, 224, 1))  # fmt: skip
