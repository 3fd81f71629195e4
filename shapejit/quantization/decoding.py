"""Weights decoded from stored parts: codes are read in place, scaled, and written once.

How weights of one kind are decoded is decided once, and looked up by later ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays.tensor import Tensor, asarray
from ..dtypes.table import UINT8, DType
from ..engine import outputs, routes
from ..engine.converting import cut_by_blocks, number_of
from ..engine.patience import by_numpy, unready
from ..engine.routes import ENTRY, FOUND, Route
from ..kernels.numbers import Conversion, Number
from ..operations.codes import memory as bytes_of
from ..planning.cast_plans import Scales
from ..shapes.layout import Layout
from ..shapes.request import Ints
from .groups import Axes, Group
from .memories import Floats, Memory, begin_of, located, made_by, place_of, products, stored_zeros
from .operands import aligned, meaning, multiplied, zero_points
from .runs import Decoding, decoding

_UNKNOWN = object()


def decode(group: Group, kind: DType, out: Any, between: DType | None = None) -> Tensor:
    """The weight as `kind`: in float32 until the last step, or rounded to `between` before sums."""
    target: Tensor = outputs.target(out, kind, group.shape, list(group.tensors.values()))[0]
    if not target.size:
        return target
    between = between if group.form.rounds else None
    key, place = (group.outline, group.order is None, kind.name), begin_of(target)
    work: Decoding | None = None
    if between is None:
        work = _known(("runs", key), lambda: decoding(group, kind, target.size))
    if work is not None and not work.fits(group):
        work = None
    kinds = () if work is None else unready(work.kind, lambda: work.names)
    if work is not None and not kinds:
        work.run(group, place)
    else:
        with by_numpy(*kinds):
            _known(("casts", key, between), lambda: _casts(group, kind, between)).run(group, place)
    return target


def _known(key: object, make: Callable[[], Any]) -> Any:
    """What was made once for a key."""
    found = FOUND.get(key, _UNKNOWN)
    if found is _UNKNOWN:
        found = make()
        FOUND.put(key, found)
    return found


@dataclass(frozen=True, eq=False)
class Casts:
    """A decoder of weights of one kind by Routes, each of which converts some of the codes.

    `memories` are those of codes, scales, and zero points or offsets; with each Route are the
    offsets (bytes) at which these begin.
    """

    memories: tuple[Memory, ...]
    parts: tuple[tuple[Route, NDArray[np.int64]], ...]

    @property
    def weight(self) -> int:
        """A bound on the bytes of its Routes and their key."""
        return ENTRY * (1 + len(self.memories)) + sum(route.weight for route, _ in self.parts)

    def run(self, group: Group, place: int) -> None:
        """Decode a weight, row-major, to the address `place`."""
        kept, begins = located(self.memories, group)
        for route, offsets in self.parts:
            codes, scale, *zero = (begins + offsets).tolist()
            routes.run(route, [8 * codes], [8 * place], False, (scale, zero[0] if zero else 0))
        del kept


class _Codes(NamedTuple):
    """The codes of any weight of one kind, with the axes of their dims, and what they mean."""

    memory: Memory
    offset: int
    axes: Axes
    number: Number
    bias: int = 0
    zeros: str = ""


def _casts(group: Group, kind: DType, between: DType | None) -> Casts:
    """The decoder of weights like this one."""
    form, order, codes = group.form, group.form.order, _codes(group)
    dims, rounds = form.scales[0].dims, form.rounds if between else ""
    zero = None
    if group.order is None:
        scale = products(group, form.scales, order, between if rounds == "scales" else None)
        if group.has(form.zeros):
            zero = stored_zeros(group, order)
    else:
        dims, scale = "K N", made_by(group, partial(_by_input, multiplied, form.scales))
        if group.has(form.zeros):
            zero = made_by(group, partial(_by_input, zero_points))
    operands, zeros = [scale], codes.zeros
    if zero is not None:
        operands, zeros = [scale, zero], "float"
    if between is not None and rounds == "product":
        casts, shape = _by_blocks(group, codes, dims, operands, zeros, between), group.shape
        axes = _later(codes.axes.tensor.shape, codes.axes.axes, between)
        codes = _Codes(partial(_product, casts, between, shape), 0, axes, number_of(between))
        operands, zeros = [Floats(partial(_ones, scale.shape), 0, scale.shape)], ""
    if form.offset:
        operands, zeros = [operands[0], products(group, form.offset, order)], "offset"
    return _by_blocks(group, codes, dims, operands, zeros, kind)


def _by_blocks(
    group: Group, codes: _Codes, dims: str, operands: Sequence[Floats], zeros: str, kind: DType
) -> Casts:
    """The decoder of codes with operands of these dims, in parts whose blocks are whole."""
    layout, offset = codes.axes.tensor.layout, codes.offset
    layout, offset = layout.at(layout.offset % 8), offset + layout.offset // 8
    made = Conversion(
        codes.number, number_of(kind), 32, "dequantize", "blocks", zeros, bias=codes.bias
    )
    fit = [aligned(group, codes.axes, each.shape, dims) for each in operands]
    both = layout, Layout.row_major(layout.shape, kind.bits)
    numbers, parts = tuple(Layout.row_major(shape, 32) for shape, _ in fit), []
    for seen, into, *others in cut_by_blocks(both, fit[0][1], numbers):
        scales = Scales(32, *(own.at(0) for own in others))
        route = routes.casts(seen, into.bits, into, scales, 1, made, False)
        begins = (each.offset + own.offset // 8 for each, own in zip(operands, others, strict=True))
        parts.append((route, np.array([offset, *begins])))
    return Casts((codes.memory, *(each.memory for each in operands)), tuple(parts))


def _codes(group: Group) -> _Codes:
    """The codes of any weight like this one, in place if they are in one plane."""
    numbers, order = group.form.codes, group.form.order
    planes, kind = group.planes(numbers) or (), group.kind(numbers)
    if len(planes) == 1:
        axes = planes[0][0].permuted(order)
        memory, offset = place_of(group, numbers, axes.tensor)
    else:
        kind = kind if kind.bits >= 8 else UINT8
        memory, offset = (lambda group: bytes_of(group.numbers(numbers).tensor)), 0
        axes = _later(group.sizes(numbers.dims), group.names(numbers), kind).permuted(order)
    return _Codes(memory, offset, axes, *meaning(group, number_of(kind)))


def _later(shape: Ints, axes: str, kind: DType) -> Axes:
    """Row-major elements that have no memory yet."""
    layout = Layout.row_major(shape, kind.bits)
    return Axes(Tensor.unchecked(np.empty(0, np.uint8), kind, layout), axes)


def _product(casts: Casts, kind: DType, shape: Ints, group: Group) -> NDArray[Any]:
    """The codes of a weight, decoded to a new array."""
    made, _ = outputs.new_array(kind, shape)
    casts.run(group, begin_of(made))
    found: NDArray[Any] = made.buffer
    return found


def _ones(shape: Ints, group: Group) -> NDArray[Any]:
    """Scales of 1, made for each weight: a decoder that is kept holds none."""
    return np.ones(shape, np.float32)


def _by_input(find: Callable[..., Any], *given: Any) -> Tensor:
    """Numbers of the groups of a weight, expanded to one per input in the order of g_idx."""
    *asked, group = given
    return asarray(find(group, *asked, "*KN").numpy()[group.order]).mT
