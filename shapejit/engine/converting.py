"""Casts and scaled casts: every number of an array converted into another array.

A Conversion defines what is done to a number, Operands hold scales and zero points, and the planner
decides how the copy runs. NumPy converts until kernels are ready, see `patience`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.tensor import Tensor
from ..dtypes.table import DType, fixed_width
from ..errors import DTypeError
from ..kernels.numbers import Conversion, Number
from ..planning.cast_plans import Scales
from ..runtime.launches import address_of
from ..shapes.layout import Layout
from . import numpy_fallback
from .addresses import layout_of, place_of
from .execution import Where, Work
from .routes import StandIn, casts, rounded, run
from .small_calls import Routes

Array = NDArray[Any] | Tensor


def number_of(kind: DType) -> Number:
    """The Number of a dtype: how its numbers are written in bits; of complex ones, their parts."""
    if kind.kind == "bool":
        return Number("bool", 8)
    if kind.kind == "integer":
        return Number("int" if kind.signed else "uint", kind.bits)
    if kind.format is None:
        raise DTypeError(f"{kind} elements are not numbers")
    bits = kind.bits // 2 if kind.kind == "complex" else kind.bits
    return Number("table" if kind.format.table else "float", bits, *kind.format)


@lru_cache(maxsize=1024)
def cast_conversion(
    source: DType, target: DType, saturate: bool = True, round_mode: str = "nearest"
) -> Conversion:
    """The Conversion of a cast between two dtypes. Raises DTypeError if there is no such cast."""
    if (source.kind == "complex") != (target.kind == "complex"):
        raise DTypeError(
            f"there is no cast from {source} to {target}: complex numbers stay complex"
        )
    src, dst = number_of(source), number_of(target)
    if dst.kind == "table":
        raise DTypeError(f"there is no cast to {target}: its values follow no rule")
    whole = ("int", "uint", "bool")
    if src.kind in whole and dst.kind in whole:
        arithmetic = 0
    else:
        exact = src.bits <= 16 or (src.bits == 32 and src.kind == "float")
        direct = dst.kind == "float" and dst.bits == 32 and src.bits == 64 and src.kind in whole
        arithmetic = 32 if exact or direct else 64
    if dst.bits != 8 or dst.kind != "float":
        saturate = True
    return Conversion(src, dst, arithmetic, saturate=saturate, round_mode=round_mode)


class Operands:
    """Scales and zero points as contiguous floats, and how they are applied.

    `blocks` is the shape of a block; it is empty for a scalar scale. `given` are the arrays that
    the floats were converted from, or these themselves.
    """

    def __init__(
        self,
        conversion: Conversion,
        scale: NDArray[Any],
        zero: NDArray[Any] | None,
        blocks: tuple[int, ...],
        given: tuple[Any, ...] = (),
    ) -> None:
        self.conversion = conversion
        self.scale = scale
        self.zero = zero
        self.blocks = blocks
        self.given = given

    def parts(self, shape: Sequence[int]) -> Iterator[tuple[tuple[tuple[int, int], ...], Scales]]:
        """The parts of an array (begin and size per dim) within which all blocks are whole.

        If the last block along a dim is shorter, it is a part of its own.
        """
        cuts = []
        for size, block in zip(shape, self._blocks(shape), strict=True):
            whole = size // block * block
            short = [(whole, size - whole)] if whole and whole < size else []
            cuts.append([(0, whole or size), *short])
        for part in product(*cuts):
            yield part, self.scales(shape, part)

    def layouts(self, shape: Sequence[int]) -> list[Layout] | None:
        """The Layouts of the scales and zero points by element; None if there are several parts."""
        parts = list(self.parts(shape))
        if len(parts) > 1:
            return None
        scales = parts[0][1]
        return [scales.scale] if scales.zero is None else [scales.scale, scales.zero]

    def _blocks(self, shape: Sequence[int]) -> tuple[int, ...]:
        return tuple(max(1, size) for size in shape) if self.scale.ndim == 0 else self.blocks

    def scales(self, shape: Sequence[int], part: Sequence[tuple[int, int]]) -> Scales:
        """The Layout of scales for a part that is split into whole blocks: see `split`."""
        bits = self.conversion.arithmetic
        layouts = []
        for array in (self.scale, self.zero):
            if array is None:
                continue
            offset, sizes, strides = 0, list[int](), list[int]()
            apart = array.strides if array.ndim else (0,) * len(shape)
            for (begin, size), block, stride in zip(part, self._blocks(shape), apart, strict=True):
                offset += begin // block * stride
                sizes += [size // block, block] if size > block else [1, size]
                strides += [8 * stride, 0]
            layouts.append(Layout.of(sizes, strides, 8 * offset, bits))
        return Scales(bits, *layouts)

    def split(self, layout: Layout, part: Sequence[tuple[int, int]]) -> Layout:
        """A part of a Layout, with each dim split in two: blocks, and the elements of a block."""
        sizes, strides, offset = list[int](), list[int](), layout.offset
        blocks = self._blocks(layout.shape)
        for (begin, size), block, stride in zip(part, blocks, layout.strides, strict=True):
            offset += begin * stride
            sizes += [size // block, block] if size > block else [1, size]
            strides += [block * stride, stride]
        return Layout.of(sizes, strides, offset, layout.bits)

    def repeated(self, array: NDArray[Any], shape: Sequence[int]) -> NDArray[Any]:
        """One scale or zero point per element."""
        for axis, (size, block) in enumerate(zip(shape, self._blocks(shape), strict=True)):
            if array.ndim:
                at = np.arange(size) // block
                array = array.take(at, axis=axis)
        return np.array(np.broadcast_to(array, shape), order="C")


def convert(
    source: Array, target: Array, conversion: Conversion, operands: Operands | None, fresh: bool
) -> Work | StandIn | None:
    """Convert the elements of `source` into the row-major `target` of the same shape.

    Returns the Work, or what stands in for it, if that did all of it.
    """
    if source.size == 0:
        return None
    place, layout = place_of(source)
    to, whole = place_of(target)
    if fixed_width(source.dtype).kind == "complex":
        layout, whole = parts_of(layout), parts_of(whole)
    source_at, target_at = [place & ~7], [to & ~7]
    if operands is None:
        seen, into = layout.within_byte(place), whole.within_byte(to)
        given = seen, source_at, into, target_at, into.bits, conversion, None
        done = launch(*given, (0, 0), fresh)
        move = numpy_fallback.assignment(conversion)
        plain = isinstance(source, np.ndarray) and isinstance(target, np.ndarray)
        return done._replace(move=move) if move and plain and isinstance(done, StandIn) else done
    at = [0 if a is None else address_of(a) for a in (operands.scale, operands.zero)]
    parts = list(operands.parts(source.shape))
    for part, scales in parts:
        seen, into = operands.split(layout, part), operands.split(whole, part)
        seen, into = seen.at(seen.offset + (place & 7)), into.at(into.offset + (to & 7))
        lie = scales.scale, scales.zero or scales.scale
        begins = [a + s.offset // 8 for a, s in zip(at, lie, strict=True)]
        scales = Scales(scales.bits, lie[0].at(0), scales.zero and lie[1].at(0))
        of_part = seen, source_at, into, target_at, into.bits, conversion, scales
        done = launch(*of_part, (begins[0], begins[1]), fresh)
    return done if len(parts) == 1 else None


def remember(routes: Routes, x: NDArray[Any], target: NDArray[Any], conversion: Conversion) -> None:
    """Make a Route, so that compiled code casts later arrays like `x` as it became `target`."""

    def find() -> Work | None:
        layout, into = layout_of(x), layout_of(target)
        if fixed_width(x.dtype).kind == "complex":
            layout, into = parts_of(layout), parts_of(into)
        route = casts(layout, into.bits, into, None, 1, conversion, True)
        return route.work if route.ready else None

    if x.size and routes.met(x):
        routes.learn(x, target, find, target.dtype)


def launch(
    layout: Layout,
    sources: Where,
    into: Layout | None,
    targets: Where,
    unit: int,
    conversion: Conversion,
    scales: Scales | None,
    operands: tuple[int, int],
    fresh: bool,
) -> Work | StandIn:
    """Convert the elements at each source, with this Layout, into results of `unit` bits.

    Sources and targets are bit addresses. Targets have the Layout `into`, or are row-major.
    `operands` are the addresses of scales and zero points. Returns the Work, or what stood in.
    """
    route = casts(layout, unit, into, scales, rounded(len(sources)), conversion, fresh)
    done = run(route, sources, targets, fresh, operands)
    return done or StandIn.of(route, operands)


def parts_of(layout: Layout) -> Layout:
    """Layouts of complex numbers as pairs of floats."""
    half = layout.bits // 2
    return Layout.of((*layout.shape, 2), (*layout.strides, half), layout.offset, half)
