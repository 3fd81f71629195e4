"""Casts and scaled casts: every number of an array converted into another array.

A Conversion defines what is done to a number, Operands hold scales and zero points, and the planner
decides how the copy runs. NumPy converts until kernels are ready, see `patience`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.tensor import Tensor
from ..dtypes.table import DType, fixed_width
from ..errors import DTypeError
from ..kernels.numbers import Conversion, Number
from ..planning.cast_plans import Scales
from ..planning.thresholds import SCALARS_BELOW
from ..runtime.launches import address_of
from ..shapes.layout import Layout
from .addresses import byte_of, layout_of
from .numpy_fallback import convert_codes, mover
from .patience import patience
from .routes import Done, casts, run, unplanned

AnyArray = NDArray[Any] | Tensor


def number_of(kind: DType) -> Number:
    """The Number of a dtype, that is its bits; of a complex dtype, the Number of its parts."""
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
        integers = src.kind in whole and dst.kind == "float"
        once = integers and (dst.bits == 32 or (src.bits == 32 and dst.bits < 32))
        arithmetic = 32 if exact or once else 64
    if dst.bits != 8 or dst.kind != "float":
        saturate = True
    return Conversion(src, dst, arithmetic, saturate=saturate, round_mode=round_mode)


@dataclass(frozen=True, eq=False)
class Operands:
    """Scales and zero points as contiguous floats, and how they are applied.

    `blocks` is the shape of a block; it is empty for a scalar scale. `given` are the arrays that
    the floats were converted from, or these themselves.
    """

    conversion: Conversion
    scale: NDArray[Any]
    zero: NDArray[Any] | None
    blocks: tuple[int, ...]
    given: tuple[Any, ...] = ()

    @property
    def floats(self) -> tuple[NDArray[Any], ...]:
        """The scale, and the zero point if there is one."""
        return (self.scale,) if self.zero is None else (self.scale, self.zero)

    def parts(self, *layouts: Layout) -> Sequence[Sequence[Layout]]:
        """Layouts of one shape, cut into parts in which all blocks are whole, and those of scales.

        Each dim is split in two: blocks, and the elements of a block. If the last block along a dim
        is shorter, it is a part of its own. Layouts of scales and zero points are by element, and
        count from the first one.
        """
        return cut_by_blocks(
            layouts, self._blocks(layouts[0].shape), tuple(map(layout_of, self.floats))
        )

    def layouts(self, shape: Sequence[int]) -> list[Layout] | None:
        """The Layouts of the scales and zero points by element; None if there are several parts."""
        (_, *scales), *others = self.parts(Layout.row_major(shape, 8))
        return None if others else scales

    def _blocks(self, shape: Sequence[int]) -> tuple[int, ...]:
        return tuple(max(1, size) for size in shape) if self.scale.ndim == 0 else self.blocks

    def repeated(self, array: NDArray[Any], shape: Sequence[int]) -> NDArray[Any]:
        """One scale or zero point per element."""
        for axis, (size, block) in enumerate(zip(shape, self._blocks(shape), strict=True)):
            if array.ndim:
                at = np.arange(size) // block
                array = array.take(at, axis=axis)
        return np.array(np.broadcast_to(array, shape), order="C")


@lru_cache(maxsize=256)  # a seventh of the time of decoding a small weight
def cut_by_blocks(
    layouts: tuple[Layout, ...], blocks: tuple[int, ...], numbers: tuple[Layout, ...]
) -> tuple[tuple[Layout, ...], ...]:
    """See `Operands.parts`; `numbers` are the Layouts of the arrays of scales and zero points."""
    cuts = []
    for size, block in zip(layouts[0].shape, blocks, strict=True):
        whole = size // block * block
        short = [(whole, size - whole)] if whole and whole < size else []
        cuts.append([(0, whole or size), *short])
    made = []
    for part in product(*cuts):
        pairs = [
            (size // block, block) if size > block else (1, size)
            for (_, size), block in zip(part, blocks, strict=True)
        ]
        sizes = [size for pair in pairs for size in pair]
        found = [_narrowed(x, part).reshape(sizes) for x in layouts]
        for own in numbers:
            if own.ndim:
                begins = (begin // block for (begin, _), block in zip(part, blocks, strict=True))
                own = _narrowed(own, list(zip(begins, sizes[::2], strict=True)))
                own = own.expand_dims(range(1, len(sizes), 2))
            found.append(own.broadcast_to(sizes))
        made.append(tuple(found))
    return tuple(made)


def convert(
    source: AnyArray,
    target: AnyArray,
    conversion: Conversion,
    operands: Operands | None,
    fresh: bool,
) -> Done | None:
    """Convert the elements of `source` into the row-major `target` of the same shape.

    Returns what did it, for later calls; None if there are several parts.
    """
    if source.size == 0:
        return None
    plain = isinstance(source, np.ndarray) and isinstance(target, np.ndarray)
    given = () if operands is None else operands.floats
    is_complex = fixed_width(source.dtype).kind == "complex"
    small = source.size < SCALARS_BELOW
    move = mover(conversion, source.shape, given) if plain else None
    if move is None and plain and small and not given and not is_complex:
        move = partial(convert_codes, conversion)
    instead = move and partial(move, source, target)
    if instead and small and patience():
        first = unplanned(conversion, source.shape)
        if not first.ready:
            return Done(run(first, (0,), (0,), instead=instead), move)
    begin, layout = byte_of(source)
    to, whole = byte_of(target)
    if is_complex:
        layout, whole = parts_of(layout), parts_of(whole)
    parts = [(layout, whole)] if operands is None else operands.parts(layout, whole)
    for seen, into, *others in parts:
        scales, at = None, [0, 0]
        if given:
            scales = Scales(conversion.arithmetic, *(x.at(0) for x in others))
            for k, (array, own) in enumerate(zip(given, others, strict=True)):
                at[k] = address_of(array) + own.offset // 8
        route = casts(seen, into.bits, into, scales, 1, conversion, fresh)
        begins = at[0], at[1]
        if route.by_kernels:
            move = instead = None
        way = run(route, [begin], [to], fresh, begins, instead)
    return Done(way, move, begins) if len(parts) == 1 else None


def _narrowed(layout: Layout, part: Sequence[tuple[int, int]]) -> Any:
    """Some indices of each dim: the first, and how many."""
    for axis, (begin, size) in enumerate(part):
        if size != layout.shape[axis]:
            layout = layout.narrow(axis, begin, size, 1)
    return layout


def parts_of(layout: Layout) -> Layout:
    """Layouts of complex numbers as pairs of floats."""
    half = layout.bits // 2
    return Layout.of((*layout.shape, 2), (*layout.strides, half), layout.offset, half)
