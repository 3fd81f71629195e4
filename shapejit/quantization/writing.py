"""A Content written as the parts of a scheme; raises if its form cannot hold it exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.tensor import Tensor, asarray
from ..dtypes.table import dtype
from ..errors import FormatError, number_of, shape_text
from ..packings.repacking import store_codes
from . import sizes
from .content import Content
from .forms import Form, Numbers, Part, SchemeRow
from .groups import Group, any_of, axes_of, fault

Array = NDArray[Any]


def stored_as(row: SchemeRow, content: Content, known: Mapping[str, int]) -> Group:
    """The parts of a Content in the first form that can hold it.

    Raises FormatError if none can. Codes that are added later are zeros.
    """
    reasons = dict[str, None]()
    for form in [*filter(is_written, row.forms)] or row.forms:
        try:
            return laid_out(_alike(row.name, form, content, known), content)
        except FormatError as wrong:
            reasons[str(wrong).removeprefix(f"{row.name}: ")] = None
    head = "each of its forms differs from this weight: " if len(reasons) > 1 else ""
    raise fault(row.name, head + "; ".join(reasons))


def is_written(form: Form) -> bool:
    """Whether weights can be stored in a form.

    They cannot if numbers are computed from several parts, or scales have two levels of blocks.
    """
    read = any(each.read is not None for each in form.numbers)
    levels = len(form.scales) > 1 + bool(form.factor) or len(form.offset) > 1
    return not (read or levels) and bool(form.codes.part)


def _alike(scheme: str, form: Form, content: Content, known: Mapping[str, int]) -> Group:
    """A weight of a form, without parts, with the codes and blocks of a Content.

    These define the sizes that the form leaves open.
    """
    if not is_written(form):
        raise fault(scheme, "can only be decoded")
    source, axes = content.group, form.axes
    bits, blocks, shape = source.width(source.form.codes), source.blocks, source.stored_shape
    if len(blocks) != len(axes):
        raise fault(
            scheme, f"stores weights of {number_of(len(axes), 'dim')}, these have {len(blocks)}"
        )
    if (content.offset is None) != (not form.offset):
        if form.offset:
            raise fault(scheme, f"needs offsets ({form.offset[0].part}), this weight has none")
        raise fault(scheme, "stores no offsets, this weight has some")
    inner = shape[len(source.batch) :]
    sized = {**form.usual, **known, **dict(zip(axes, inner, strict=True)), "b": bits}
    for size in form.scales[0].dims.split():
        axis, _, by = size.partition("/")
        if by.isalpha() and by not in (*axes, *known) and axis in axes:
            sized[by] = blocks[axes.index(axis)]
    made = Group(scheme, form, {}, sized, source.batch, source.result)
    width = made.width(form.codes)
    if (made.values, width) != (source.values, bits):
        widths = form.codes.format and made.packing(form.codes).bits
        wanted, given = _words(made.values, widths or (width,)), _words(source.values, (bits,))
        raise fault(scheme, f"a code is {wanted}, not {given}")
    made.check_width()
    if made.blocks != blocks:
        raise fault(scheme, f"has a scale for each {made.blocks} elements, not {blocks}")
    return made


def laid_out(group: Group, content: Content) -> Group:
    """The parts of a Content as a weight with these sizes, with space for numbers added later."""
    form, scale = group.form, group.form.scales[0]
    values = {scale: content.scale, **_factor(group, content)}
    found = _zeros(group, content)
    if found is not None and form.zeros is not None:
        sign = np.uint8(group.sign)
        values[form.zeros] = (found ^ sign).view(np.int8) if sign else found
    if content.offset is not None:
        values[form.offset[0]] = content.offset
    group = replace(group, tensors=_parts(group, values))
    if content.codes is not None:
        put(group, form.codes, content.codes)
    for numbers, x in values.items():
        if x.ndim or numbers is not scale:
            put(group, numbers, x)
    return group


def _words(values: Any, widths: Sequence[int]) -> str:
    """The meaning of codes, for a message."""
    if values == "integer":
        return f"an integer of {any_of(widths)} bits"
    if isinstance(values, str):
        return values
    return f"one of {len(values)} values ({values[0]:.3g}, {values[1]:.3g}, ...)"


def _factor(group: Group, content: Content) -> dict[Numbers, Array]:
    """The stored factor of all scales, with the same products: itself, or its inverse."""
    wanted, own, given = group.form.factor, content.group.form.factor, content.factor
    if wanted is None:
        if given is not None and (given != 1).any():
            raise fault(group.scheme, "has no global scale")
        return {}
    if given is None or own is None:
        return {wanted: np.ones(group.batch, np.float32)}
    if own.step == wanted.step:
        return {wanted: given}
    with np.errstate(all="ignore"):
        made = (np.float32(1) / given).astype(np.float32)
        scale = content.scale.astype(np.float32)
        shape = (-1, *(1,) * len(group.blocks)) if given.size != 1 else ()
        first, other = given.reshape(shape), made.reshape(shape)
        times, over = (first, other) if own.step == "*" else (other, first)
        same = np.array_equal(scale * times, scale / over, equal_nan=True)
    if not same:
        verb = "divides" if wanted.step == "/" else "multiplies"
        raise fault(
            group.scheme, f"{verb} by its global scale: the inverse of {given} gives other scales"
        )
    return {wanted: made}


def _zeros(group: Group, content: Content) -> Array | None:
    """The zero points to store; None if the form needs none."""
    form = group.form
    if not group.integers:
        return None
    half = 1 << (group.width(form.codes) - 1)
    usual = half if form.zero == "half" or group.sign else form.zero or 0
    given = np.asarray(content.zeros if content.zeros is not None else 0)
    if (given == usual).all():
        optional = form.zeros is None or form.part(form.zeros.part).optional
        return None if optional else np.full(content.scale.shape, usual, np.uint8)
    if form.zeros is None:
        raise fault(group.scheme, f"has no zero points, only {usual}")
    given = np.broadcast_to(given, content.scale.shape)
    whole = given.astype(np.float32)
    if (whole != np.rint(whole)).any() or (whole < 0).any() or (whole >= 2 * half).any():
        if "float32" not in form.part(form.zeros.part).dtypes:
            raise fault(
                group.scheme, f"has zero points from 0 to {2 * half - 1}, not {whole.max()}"
            )
        return given
    return whole.astype(np.uint8)


def _parts(group: Group, values: Mapping[Numbers, Array]) -> dict[str, Tensor]:
    """The tensors of the parts: zeros for codes and values, and parts that describe the form."""
    form = group.form
    made = {} if form.writes is None else form.writes(group)
    alone = [key for key in made if form.part(key).dims != "?"]
    if group.batch and alone:
        text = f"stores no stacked experts: {alone[0]} is that of one weight"
        raise fault(group.scheme, text)
    for part in form.parts:
        held = [numbers for numbers in values if numbers.part == part.key]
        if part.key not in made and (held or part.key == form.codes.part):
            made[part.key] = _zeros_of(group, part, held, values)
    return {part.key: asarray(made[part.key]) for part in form.parts if part.key in made}


def _zeros_of(
    group: Group, part: Part, held: list[Numbers], values: Mapping[Numbers, Array]
) -> Array:
    """Zeros of a part, in a dtype that can hold the values exactly."""
    name, kinds = part.kinds[0], part.kinds
    if held and not (held[0].format or held[0].dtype):
        x = values[held[0]]
        name = next(
            (k for k in [x.dtype.name, *kinds] if k in kinds and _exact(x, k) is not None), ""
        )
        if not name:
            raise fault(group.scheme, f"{part.key} is {' or '.join(kinds)}, which does not hold "
                                      f"{x.dtype} exactly")  # fmt: skip
    if any(sizes.value(size, group.known) is None for size in part.dims.split()):
        raise fault(group.scheme, f"only reads {part.key} of {part.dims}")
    return np.zeros(group.sizes(part.dims), dtype(name).codes)


def takes_all(group: Group, key: str, nbytes: int) -> bool:
    """Whether codes, scales or both fill all bytes of a part."""
    form = group.form
    there = [numbers for numbers in (form.codes, form.scales[0]) if numbers.part == key]
    bits = sum(prod(group.sizes(each.dims)) * group.width(each) for each in there)
    return bits == 8 * nbytes


def _exact(x: Array, name: str) -> Array | None:
    """Numbers in a dtype; None if it cannot represent all of them."""
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        made = wide.astype(dtype(name).numpy)
    return made if np.array_equal(made.astype(np.float64), wide, equal_nan=True) else None


def put(group: Group, numbers: Numbers, x: Array) -> None:
    """Write numbers, (out, in) last, to their positions in parts made by `laid_out`.

    Codes are a byte each, and count from 0 on.
    """
    into, wanted = group.tensors[numbers.part].numpy(), group.kind(numbers).codes
    if numbers is group.form.codes:
        x = (x ^ np.uint8(group.sign)).view(wanted)
    if x.dtype != wanted and not (numbers.format and x.dtype == np.uint8):
        made = _exact(x, wanted.name)
        if made is None:
            text = f"{numbers.part} is {wanted}, which does not hold {x.dtype} exactly"
            raise fault(group.scheme, text)
        x = made
    x = np.ascontiguousarray(x.swapaxes(-1, -2) if axes_of(numbers.dims) == "KN" else x)
    if not numbers.format:
        if x.size != into.size:
            raise fault(
                group.scheme, f"has no scale for a weight of {shape_text(group.stored_shape)}"
            )
        into[...] = x.reshape(-1).view(into.dtype).reshape(into.shape)
        return
    place = np.zeros(into.shape[::-1], into.dtype) if numbers.swapped else into
    stored, raw, bits = group.stored(numbers), x.view(f"u{x.itemsize}"), group.bits(numbers)
    if bits <= 8:
        raw = raw + np.uint8(stored.bias) & np.uint8((1 << bits) - 1)
    store_codes(raw, place.reshape(-1).view(np.uint8), stored)
    if place is not into:
        into[...] = place.T
