"""Copies and conversions by NumPy of elements of any Layout, packed or not.

Sources and targets are bit addresses, from which the offsets of Layouts count. The caller has
checked the memory, and keeps it alive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import Context
from functools import lru_cache, partial
from math import gcd, prod
from typing import Any, NamedTuple

import numpy as np

from ..arrays.elements import Codes, Read, Write, assign, read, reader, whole, write, writer
from ..kernels.numbers import Conversion, Number
from ..kernels.plain_conversions import converted
from ..planning import thresholds
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
    floats, own = f"f{conversion.arithmetic // 8}", arithmetic(conversion)
    layouts = seen, into, *(layout for _, layout in numbers)
    for source, target in _pairs(sources, targets):
        found, most = _ordered(layouts, (source & 7, target & 7), False)
        in_place = own is not None and own.in_place and bool(numbers)
        for src, dst, *others in _parts(found, into.size if in_place else most):
            scales: list[Any] = [
                read(at, layout).view(floats).reshape(dst.shape)
                for (at, _), layout in zip(numbers, others, strict=True)
            ]
            bytewise = whole(source, src) and whole(target, dst)
            if own and bytewise and (scales or (_in_order(src) and _in_order(dst))):
                made = read(target, dst).view(own.target)
                own.do(read(source, src).view(own.source).reshape(made.shape), made, *scales)
                continue
            order: Any = None if dst.bits < src.bits else "C"  # narrower results are reordered last
            codes = np.asarray(read(source, src), order=order).reshape(dst.shape)
            write(converted(codes, conversion, *scales), target, dst)


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


class Arithmetic(NamedTuple):
    """How NumPy's own arithmetic converts an array of `source` into one of `target`, both dtypes.

    `do` takes both arrays, and a scale and a zero point that it broadcasts, if there are any. What
    is not done `in_place`, in the memory of the result, makes several arrays as large as that.
    """

    source: str
    target: str
    do: Callable[..., None]
    in_place: bool = True


@lru_cache(maxsize=64)
def arithmetic(made: Conversion) -> Arithmetic | None:
    """The Arithmetic of a conversion, with the bits of `converted`; None if there is none."""
    source, target = pair = _dtype_of(made.source), _dtype_of(made.target)
    floats, codes = f"f{made.arithmetic // 8}", source[:1] in ("i", "u")
    if not source or not target or made.bias:
        return None
    if made.step == "dequantize" and codes and made.zeros != "offset" and target == floats:
        return Arithmetic(source, target, _silent(_scale))
    whole = target[0] in "iu" and made.target.bits < made.arithmetic - 8  # floats have both ends
    if made.step == "quantize" and source == floats and whole:
        return Arithmetic(source, target, _silent(partial(_quantize, made)), in_place=False)
    if made.step != "cast":
        return None
    if "f2" in pair:
        exact = {*pair} <= {"f2", "f4", "f8"}
        return Arithmetic(source, target, _silent(partial(_cast_halves, made))) if exact else None
    if (source == "f4") if target[0] == "b" else (codes or target[0] == "f"):
        quiet = codes or pair == ("bfloat16", "f4")  # never warns
        return Arithmetic(source, target, _cast if quiet else _silent(_cast))
    return None


def _silent(do: Callable[..., None]) -> Callable[..., None]:
    """The same without NumPy's warnings."""
    return lambda *given: SILENT.copy().run(do, *given)


def _cast(x: Codes, made: Codes) -> None:
    assign(made, x)


def _cast_halves(conversion: Conversion, x: Codes, made: Codes) -> None:
    """`_cast`, but NumPy gives NaNs of halves a payload; complex numbers are two floats each."""
    read, written = conversion.source.nbytes, conversion.target.nbytes
    assign(made, x)
    wrong = np.isnan(x if written == 2 else made)
    if wrong.any():
        codes = x[wrong].view(f"u{read}")
        made[wrong] = converted(codes, conversion).astype(f"u{written}").view(made.dtype)


def _scale(x: Codes, made: Codes, scale: Any, zero: Any = None) -> None:
    """Integers scaled in the memory of the result: a third of the time of a pass for each step."""
    if zero is None:
        np.multiply(x, scale, made, dtype=made.dtype, casting="unsafe")
    else:
        np.subtract(x, zero, made, dtype=made.dtype, casting="unsafe")
        made *= scale


def _quantize(conversion: Conversion, x: Codes, made: Codes, scale: Any, zero: Any = None) -> None:
    """Floats as integers: see `numerics.scaled`, and `numerics.clamped`."""
    values = np.asarray(x / scale)  # a scalar, if that has no dims
    if conversion.zeros == "float":
        values += zero
    np.rint(values, values)
    if conversion.zeros == "integer":
        values += zero
    if (nans := np.isnan(values)).any():
        values[nans] = 0
    made[...] = np.clip(values, *conversion.target.range, out=values)


def mover(
    conversion: Conversion, shape: tuple[int, ...], operands: tuple[Any, ...]
) -> Callable[[Any, Any], object] | None:
    """What converts ndarrays of a shape by NumPy's arithmetic; None if nothing does.

    `operands` are the scale and the zero point, if there are any: one for all elements, or one for
    each index of some dims.
    """
    own = arithmetic(conversion)
    if own is None or not (own.in_place or prod(shape) < thresholds.SCALARS_BELOW):
        return None
    if not operands:
        return own.do
    if not all(n in (1, size) for n, size in zip(operands[0].shape, shape, strict=False)):
        return None
    return lambda x, made: own.do(x, made, *operands)


def convert_codes(conversion: Conversion, x: Codes, made: Codes) -> None:
    """Convert an ndarray by `converted`: few elements in half of the time of `convert`."""
    codes = converted(x.view(f"u{x.itemsize}"), conversion)
    made.view(f"u{made.itemsize}")[...] = codes


def caster(conversion: Conversion, dtype: np.dtype[Any]) -> Callable[[Any], Any] | None:
    """What casts ndarrays to new ones of the dtype by one call of NumPy's; None if nothing does."""
    own = arithmetic(conversion)
    if own is None or "f2" in own[:2]:
        return None
    return lambda x: SILENT.copy().run(x.astype, dtype, "C")


def _dtype_of(number: Number) -> str:
    """The name of the dtype to which numbers are rounded once; else ""."""
    if number.kind in ("int", "uint"):
        return f"{number.kind[0]}{number.nbytes}" if number.bits >= 8 else ""
    if number.kind == "float" and (number.bits >= 32 or number.exponent == 5 < number.mantissa):
        return f"f{number.nbytes}"
    return "bfloat16" if (number.bits, number.exponent) == (16, 8) else ""


def _in_order(layout: Layout) -> bool:
    """Whether those of a row are next to one another, or nearer than any other ones."""
    steps = [abs(stride) for stride in layout.strides]
    return not steps or steps[-1] == min(steps)


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
