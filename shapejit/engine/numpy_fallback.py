"""Copies and conversions by NumPy of elements of any Layout, packed or not.

Sources and targets are bit addresses, from which the offsets of Layouts count. The caller has
checked the memory, and keeps it alive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import Context
from functools import lru_cache
from math import gcd
from typing import Any

import numpy as np

from ..arrays.elements import Codes, Read, Write, assign, read, reader, whole, write, writer
from ..kernels.numbers import Conversion, Number
from ..kernels.plain_conversions import converted
from ..runtime.launches import Addresses
from ..shapes.dims import merged
from ..shapes.layout import Layout

# A context without NumPy's warnings; to run in a copy of it takes a fifth of `np.errstate`.
SILENT = Context()
SILENT.run(np.seterr, all="ignore")

MOST = 1 << 18  # elements that are unpacked at a time: few enough to stay in a cache

Where = Sequence[int] | Addresses
Layouts = Sequence[Layout]


def copy(sources: Where, seen: Layout, targets: Where, into: Layout, bias: int = 0) -> None:
    """Copy the elements at each source to the target of the same index, zero-extending codes.

    `bias` is added to each code, modulo the range of the source's codes.
    """
    for source, target in _pairs(sources, targets):
        for reads, writes, shape in _moves(seen, into, source & 7, target & 7, not bias):
            codes = reads(source)
            if bias:
                codes = (codes + bias) & ((1 << seen.bits) - 1)
            writes(codes if codes.shape == shape else codes.reshape(shape), target)


@lru_cache(maxsize=256)
def _one_move(
    seen: Layout, into: Layout, source: int, target: int, widened: bool
) -> tuple[tuple[Read, Write, tuple[int, ...]], ...]:
    """What reads the elements of a copy, what writes them, and their shape.

    An empty tuple if they are to be copied in several parts.
    """
    (src, dst), most = _ordered((seen, into), (source, target), widened)
    if src.size > most:
        return ()
    return ((reader(source, src), writer(target, dst), dst.shape),)


def _moves(
    seen: Layout, into: Layout, source: int, target: int, widened: bool
) -> Iterable[tuple[Read, Write, tuple[int, ...]]]:
    """`_one_move` for each part of a copy."""
    given = seen, into, source, target, widened
    return _one_move(*given) or (
        (reader(source, src), writer(target, dst), dst.shape)
        for src, dst in _parts(*_ordered((seen, into), (source, target), widened))
    )


def convert(
    sources: Where,
    seen: Layout,
    targets: Where,
    into: Layout,
    conversion: Conversion,
    operands: tuple[tuple[int, Layout | None], ...],
) -> None:
    """Convert the elements; `operands` are the addresses and Layouts of scales and zero points."""
    numbers = [(at, layout) for at, layout in operands if layout is not None]
    floats = f"f{conversion.arithmetic // 8}"
    pair, move = _by_assignment(conversion), assignment(conversion)
    scaled = scaled_in_place(conversion)
    layouts = seen, into, *(layout for _, layout in numbers)
    for source, target in _pairs(sources, targets):
        found, most = _ordered(layouts, (source & 7, target & 7), False)
        for src, dst, *others in _parts(found, into.size if scaled else most):
            in_order = pair and all(map(_is_in_order, (source, target), (src, dst)))
            if pair and move and in_order:
                made = read(target, dst).view(pair[1])
                move(read(source, src).view(pair[0]).reshape(made.shape), made)
                continue
            scales: list[Any] = [
                read(at, layout).view(floats).reshape(dst.shape)
                for (at, _), layout in zip(numbers, others, strict=True)
            ]
            scale, zero = (*scales, None, None)[:2]
            if scaled and whole(source, src) and whole(target, dst):
                # In place: a third of the time of a pass for each step.
                made = read(target, dst).view(floats)
                assign(made, read(source, src).view(scaled).reshape(dst.shape))
                with np.errstate(all="ignore"):
                    if zero is not None:
                        made -= zero
                    made *= scale
                continue
            codes = np.ascontiguousarray(read(source, src)).reshape(dst.shape)
            write(converted(codes, conversion, scale, zero), target, dst)


def _pairs(sources: Where, targets: Where) -> Iterator[tuple[int, int]]:
    """Each source with its target, as Python's ints."""
    return zip(map(int, sources), map(int, targets), strict=True)


@lru_cache(maxsize=256)
def _ordered(
    layouts: tuple[Layout, ...], bits: tuple[int, int], widened: bool
) -> tuple[Layouts, int]:
    """Layouts with dims in the target's order, and how many elements are done at a time.

    `bits` are the lowest three of both addresses. Elements may be `widened`.
    """
    found = _in_target_order(layouts)
    if widened:
        found = _widened(bits, found)
    plain = widened and all(map(whole, bits, found))
    return found, found[0].size if plain else MOST


@lru_cache(maxsize=64)
def assignment(made: Conversion) -> Callable[[Codes, Codes], None] | None:
    """A function that converts elements by assigning arrays; None if there is none."""
    pair = _by_assignment(made)
    if pair is None:
        return None
    silent = pair[0][0] in "iu" or pair == ("bfloat16", "f4")  # never warns

    def move(x: Codes, target: Codes) -> None:
        if silent:
            assign(target, x)
            return
        SILENT.copy().run(assign, target, x)
        if "f2" in pair:  # whose NaNs NumPy gives a payload
            wrong = np.isnan(x if pair[1] == "f2" else target)
            if wrong.any():
                codes = x[wrong].view(f"u{x.itemsize}")
                fixed = converted(codes, made).astype(f"u{target.itemsize}")
                target[wrong] = fixed.view(target.dtype)

    return move


@lru_cache(maxsize=64)
def _by_assignment(made: Conversion) -> tuple[str, str] | None:
    """The dtypes whose assignment does this conversion, except NaNs of float16; else None."""
    source, target = (_dtype_of(number) for number in (made.source, made.target))
    if made.step != "cast" or made.bias or not source or not target:
        return None
    whole_numbers = made.source.kind != "float"
    if "f2" in (source, target):
        return (source, target) if {source, target} <= {"f2", "f4", "f8"} else None
    if target[0] == "b":
        return (source, target) if source == "f4" else None
    return (source, target) if target[0] == "f" or whole_numbers else None


@lru_cache(maxsize=64)
def scaled_in_place(made: Conversion) -> str:
    """The dtype of integers that are scaled in the memory of their results; else ""."""
    floats = f"f{made.arithmetic // 8}"
    plain = made.step == "dequantize" and made.source.kind != "float" and made.zeros != "offset"
    return _dtype_of(made.source) if plain and _dtype_of(made.target) == floats else ""


def _dtype_of(number: Number) -> str:
    """The name of the dtype to which numbers are rounded once; else ""."""
    if number.kind in ("int", "uint"):
        return f"{number.kind[0]}{number.nbytes}" if number.bits >= 8 else ""
    if number.kind == "float" and (number.bits >= 32 or number.exponent == 5 < number.mantissa):
        return f"f{number.nbytes}"
    return "bfloat16" if (number.bits, number.exponent) == (16, 8) else ""


def _is_in_order(address: int, layout: Layout) -> bool:
    """Whether elements are whole bytes, and those of a row are contiguous."""
    steps = [abs(stride) for stride in layout.strides]
    return whole(address, layout) and (not steps or steps[-1] == min(steps))


def _in_target_order(layouts: Layouts) -> Layouts:
    """Both Layouts with dims in the order of the second one's strides, and merged."""
    if len({x.shape for x in layouts}) > 1:
        return layouts
    order = sorted(range(layouts[1].ndim), key=lambda axis: -abs(layouts[1].strides[axis]))
    rows = layouts[0].shape, *(x.strides for x in layouts)
    dims = merged(*([row[axis] for axis in order] for row in rows))
    sizes, *sides = zip(*dims, strict=True) if dims else ((),) * len(rows)
    return [
        Layout.of(sizes, side, x.offset, x.bits) for x, side in zip(layouts, sides, strict=True)
    ]


def _widened(addresses: Sequence[int], layouts: Layouts) -> Layouts:
    """Merge elements that are adjacent on both sides into wider ones, if these are whole bytes."""
    seen, into = layouts
    if not seen.shape or seen.shape != into.shape or not seen.bits == into.bits < 64:
        return layouts
    run = seen.shape[-1] * seen.bits
    bits = gcd(run, 64)
    others = [
        n
        for at, x in zip(addresses, layouts, strict=True)
        for n in (at + x.offset, *x.strides[:-1])
    ]
    dense = seen.strides[-1] == into.strides[-1] == seen.bits
    if not dense or bits <= seen.bits or any(n % 8 for n in (bits, *others)):
        return layouts
    return [
        Layout.of((*x.shape[:-1], run // bits), (*x.strides[:-1], bits), x.offset, bits)
        for x in layouts
    ]


def _parts(layouts: Layouts, most: int) -> Iterator[Layouts]:
    """Cut Layouts of one shape along their first dims into parts of at most `MOST` elements."""
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
