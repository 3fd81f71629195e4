"""Copies and conversions by NumPy, wherever elements lie, packed or not.

Places are bit addresses, from which the offsets of Layouts count; the caller keeps the memory
alive, and has checked it. Evenly spaced tensors are handled as one with a dim more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from math import gcd

import numpy as np

from ..arrays.elements import Codes, assign, read, whole, write
from ..kernels.numbers import Conversion, Number
from ..kernels.plain_conversions import converted
from ..runtime.launches import Addresses
from ..shapes.dims import merged
from ..shapes.layout import Layout

MOST = 1 << 18  # elements at a time, if they are taken apart: they stay in a cache meanwhile
_NEAR = 16  # times its own elements that a tensor may lie away from the next to be one with it
ROW = 16  # elements: shorter rows take longer one by one than to be put in order first

Where = Sequence[int] | Addresses
Layouts = Sequence[Layout]


def copy(sources: Where, seen: Layout, targets: Where, into: Layout, bias: int = 0) -> None:
    """Copy the elements at each source to the target of the same index.

    Wider ones get zeros above. `bias` is added to each code, modulo the range of the source's.
    """
    for (source, target), layouts in _together((sources, targets), (seen, into)):
        if not bias:
            layouts = _widened((source, target), layouts)
        plain = not bias and all(map(whole, (source, target), layouts))
        for src, dst in _parts(layouts, layouts[0].size if plain else MOST):
            codes = read(source, src)
            if bias:
                codes = (codes + bias) & ((1 << src.bits) - 1)
            write(codes.reshape(dst.shape), target, dst)


def convert(
    sources: Where,
    seen: Layout,
    targets: Where,
    into: Layout,
    conversion: Conversion,
    operands: tuple[tuple[int, Layout | None], ...],
) -> None:
    """Convert the elements; `operands` are where scales and zero points lie, one per element."""
    given = [(np.full(len(sources), at), lie) for at, lie in operands if lie is not None]
    numbers = [at for at, _ in given], [lie for _, lie in given]
    floats = f"f{conversion.arithmetic // 8}"
    direct, move = _by_assignment(conversion), assignment(conversion)
    for places, layouts in _together((sources, targets, *numbers[0]), (seen, into, *numbers[1])):
        if direct and move and _in_one_order(layouts) and all(map(whole, places, layouts)):
            kinds = zip(direct, places, layouts, strict=True)
            codes, made = (read(place, layout).view(kind) for kind, place, layout in kinds)
            move(codes.reshape(made.shape), made, 0)
            continue
        for src, dst, *lies in _parts(layouts, MOST):
            codes = _in_long_rows(read(places[0], src))
            scales = [
                read(at, lie).view(floats).reshape(codes.shape)
                for at, lie in zip(places[2:], lies, strict=True)
            ]
            scale, zero, *_ = *scales, None, None
            write(converted(codes, conversion, scale, zero).reshape(dst.shape), places[1], dst)


@lru_cache(maxsize=64)
def assignment(made: Conversion) -> Callable[[Codes, Codes, int], None] | None:
    """What converts the elements of one array into another by assigning them; None if none does."""
    pair = _by_assignment(made)
    if pair is None:
        return None

    def move(x: Codes, target: Codes, _: int = 0) -> None:
        if pair[0][0] in "iu":
            assign(target, x)
            return
        with np.errstate(all="ignore"):
            assign(target, x)
            if "f2" in pair:  # whose NaNs NumPy gives a payload
                wrong = np.isnan(x if pair[1] == "f2" else target)
                if wrong.any():
                    codes = x[wrong].view(f"u{x.itemsize}")
                    fixed = converted(codes, made).astype(f"u{target.itemsize}")
                    target[wrong] = fixed.view(target.dtype)

    return move


@lru_cache(maxsize=64)
def _by_assignment(made: Conversion) -> tuple[str, str] | None:
    """The dtypes between which NumPy, or ml_dtypes, converts so, but for NaNs; None if none do."""
    source, target = (_dtype_of(number) for number in (made.source, made.target))
    if made.step != "cast" or made.bias or not source or not target:
        return None
    whole_numbers = made.source.kind != "float"
    if "f2" in (source, target):
        return (source, target) if {source, target} <= {"f2", "f4", "f8"} else None
    if target[0] == "b":
        return (source, target) if source == "f4" else None
    return (source, target) if target[0] == "f" or whole_numbers else None


def _dtype_of(number: Number) -> str:
    """The dtype of numbers that are rounded once; "" if there is none."""
    if number.kind in ("int", "uint"):
        return f"{number.kind[0]}{number.nbytes}" if number.bits >= 8 else ""
    if number.kind == "float" and (number.bits >= 32 or number.exponent == 5 < number.mantissa):
        return f"f{number.nbytes}"
    return "bfloat16" if (number.bits, number.exponent) == (16, 8) else ""


def _in_one_order(layouts: Layouts) -> bool:
    """Whether rows are dense in all memory."""
    return all(abs(x.strides[-1]) == min(map(abs, x.strides)) for x in layouts if x.strides)


def _in_long_rows(codes: Codes) -> Codes:
    """Row-major codes, where rows as they lie in memory are short: each costs NumPy a call."""
    steps = [abs(stride) for stride in codes.strides]
    short = codes.ndim > 1 and codes.shape[steps.index(min(steps))] < ROW
    return np.ascontiguousarray(codes) if short else codes


def _together(
    places: Sequence[Where], layouts: Layouts
) -> Iterator[tuple[tuple[int, ...], Layouts]]:
    """Where tensors lie, as many at a time as are evenly spaced; dims are in the target's order."""
    table = np.array(places, np.int64)
    alone = table.shape[1] == 1
    for begin, end in [(0, 1)] if alone else _evenly_spaced(table, layouts):
        some = layouts
        if end - begin > 1:
            steps = (table[:, begin + 1] - table[:, begin]).tolist()
            some = [
                Layout.of((end - begin, *x.shape), (step, *x.strides), x.offset, x.bits)
                for x, step in zip(layouts, steps, strict=True)
            ]
        yield (*table[:, begin].tolist(),), _in_target_order(some)


def _evenly_spaced(table: Addresses, layouts: Layouts) -> Iterator[tuple[int, int]]:
    """The first of tensors that are evenly spaced, a column of places each, and the end of them."""
    count, steps = table.shape[1], np.diff(table)
    changes = np.flatnonzero((steps[:, 1:] != steps[:, :-1]).any(0)) + 1
    begin = 0
    while begin < count:
        at = int(np.searchsorted(changes, begin, "right"))
        end = int(changes[at]) + 1 if at < len(changes) else count
        own = steps[:, begin : begin + 1].ravel().tolist()
        if any(_far_apart(x, step) for x, step in zip(layouts, own, strict=False)):
            end = begin + 1
        yield begin, end
        begin = end


def _far_apart(layout: Layout, step: int) -> bool:
    """Whether tensors so many bits apart are not to be one.

    Those with gaps between them are read with the gaps, unless they lie in whole bytes. Where what
    is between may be anybody's memory, NumPy's copies for arrays that overlap may lie there, too,
    and overlap again: it makes one after the other until there is no stack left.
    """
    apart = abs(step) >= layout.span[1] - layout.span[0]
    return apart and (step % 8 != 0 or abs(step) > _NEAR * layout.size * layout.bits)


def _in_target_order(layouts: Layouts) -> Layouts:
    """The same with dims ordered like those of the second, and merged."""
    if len({x.shape for x in layouts}) > 1:
        return layouts
    order = sorted(range(layouts[1].ndim), key=lambda axis: -abs(layouts[1].strides[axis]))
    rows = layouts[0].shape, *(x.strides for x in layouts)
    dims = merged(*([row[axis] for axis in order] for row in rows))
    sizes, *sides = zip(*dims, strict=True) if dims else ((),) * len(rows)
    return [
        Layout.of(sizes, side, x.offset, x.bits) for x, side in zip(layouts, sides, strict=True)
    ]


def _widened(places: Sequence[int], layouts: Layouts) -> Layouts:
    """Elements side by side on both sides as wider ones, if these are whole bytes."""
    seen, into = layouts
    if not seen.shape or seen.shape != into.shape or not seen.bits == into.bits < 64:
        return layouts
    run = seen.shape[-1] * seen.bits
    bits = gcd(run, 64)
    others = [
        n for at, x in zip(places, layouts, strict=True) for n in (at + x.offset, *x.strides[:-1])
    ]
    dense = seen.strides[-1] == into.strides[-1] == seen.bits
    if not dense or bits <= seen.bits or any(n % 8 for n in (bits, *others)):
        return layouts
    return [
        Layout.of((*x.shape[:-1], run // bits), (*x.strides[:-1], bits), x.offset, bits)
        for x in layouts
    ]


def _parts(layouts: Layouts, most: int) -> Iterator[Layouts]:
    """Layouts of one shape, cut along their first dims into parts of so many elements."""
    shape, size = layouts[0].shape, layouts[0].size
    if size <= most or any(x.shape != shape for x in layouts):
        yield layouts
        return
    axis = next(k for k, count in enumerate(shape) if count > 1)
    step = max(1, most * shape[axis] // size)
    step = step // 8 * 8 or step  # packed elements begin on bytes
    for begin in range(0, shape[axis], step):
        count = min(step, shape[axis] - begin)
        yield from _parts([x.narrow(axis, begin, count, 1) for x in layouts], most)
