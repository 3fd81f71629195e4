"""Where elements come from: whether numbers of a weight still belong together after rules.

A few elements of a weight in the destination are traced back through all moves, codes and scales
each for itself: both have to end at the same element of one weight of the source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import zip_longest
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays.tensor import Tensor
from ..files.stored import Stored
from ..quantization import sizes
from ..quantization.forms import Numbers
from ..quantization.groups import Axes, Group
from ..quantization.parts import Found
from ..shapes.layout import Layout
from .actions import Joined
from .changes import Change

Indices = NDArray[np.int64]

_SAMPLE = 1024  # elements of a weight that are traced


class _Place(NamedTuple):
    """Where numbers lie in tensors: the index of an element, and the first bit in it."""

    element: Indices
    bit: Indices


def astray(group: Group, named: Mapping[str, Change], sources: Mapping[str, Found]) -> str | None:
    """A part of a weight in the destination with numbers that are not those of its codes.

    None if there is none. `named` are the parts by the keys of the form, `sources` the weights
    by the names of their codes. What is computed is not traced.
    """
    codes, at = _planes(group, group.form.codes), _some(group)
    if not codes:
        return None
    place = _place(group, group.form.codes, codes[0], at)
    for name, own, element in _origins(named[group.form.codes.part], place.element):
        weight = sources.get(name)
        if weight is None:
            return group.form.codes.part
        source, some = weight.group, {axis: each[own] for axis, each in at.items()}
        first = _planes(source, source.form.codes)
        if not first:
            continue
        back = _index(source, first[0], _Place(element, place.bit[own]))
        if source.order is not None and not _in_same_order(named, weight, back, some):
            return group.form.codes.part
        pairs = zip_longest(group.form.numbers, source.form.numbers)
        for numbers, before in pairs:
            here, there = (
                (_planes(g, n) or []) if n is not None and g.has(n) else []
                for g, n in ((group, numbers), (source, before))
            )
            for plane, other in zip_longest(here, there):
                if plane is None or other is None:
                    return (numbers or group.form.codes).part
                wanted = _place(source, before, other, back)
                found = _place(group, numbers, plane, some)
                for part, those, at_ in _origins(named[numbers.part], found.element):
                    same = part == weight.named.get(before.part)
                    same = same and np.array_equal(at_, wanted.element[those])
                    if not same or not np.array_equal(found.bit, wanted.bit):
                        return numbers.part
    return None


def _in_same_order(
    named: Mapping[str, Change], weight: Found, back: Mapping[str, Indices],
    some: Mapping[str, Indices],
) -> bool:  # fmt: skip
    """Whether a weight has all inputs of its source, in their order, and its `g_idx`.

    That has the group of each input, wherever it is, by its number.
    """
    order = named["g_idx"].stored if "g_idx" in named else None
    same = order is not None and order.name == weight.named["g_idx"]
    return same and np.array_equal(back["K"], some["K"])


def _some(group: Group) -> dict[str, Indices]:
    """Elements of a decoded weight, by their indices along each axis: evenly spread along each."""
    axes = {axis: prod(group.batch) if axis == "*" else group.known[axis]
            for axis in ("*", *group.form.axes)}  # fmt: skip
    chance = np.random.default_rng(0)
    return {axis: chance.permutation(np.linspace(0, n - 1, _SAMPLE).astype(np.int64))
            for axis, n in axes.items()}  # fmt: skip


def _planes(group: Group, numbers: Numbers) -> list[Axes] | None:
    """Where the bits of numbers lie in their part, as if it were row-major in memory."""
    t = group.tensors[numbers.part]
    raw = np.empty(t.nbytes, np.uint8)  # which is never touched
    tensors = {**group.tensors, numbers.part: Tensor.frombuffer(raw, t.dtype, t.shape)}
    found = replace(group, tensors=tensors).planes(numbers)
    lie = found is not None and all(np.may_share_memory(p.tensor.buffer, raw) for p, _ in found)
    return [plane for plane, _ in found] if found is not None and lie else None


def _steps(group: Group, numbers: Numbers) -> dict[str, int]:
    return {"*": 1, **dict.fromkeys(group.form.axes, 1), **sizes.steps(numbers.dims, group.known)}


def _place(group: Group, numbers: Numbers, plane: Axes, at: Mapping[str, Indices]) -> _Place:
    """Where the numbers of these elements lie."""
    layout, bits = plane.tensor.layout, group.tensors[numbers.part].dtype.bits
    steps, place = _steps(group, numbers), np.int64(layout.offset) + np.zeros_like(at["*"])
    for axis in dict.fromkeys(plane.axes):
        dims = [k for k, name in enumerate(plane.axes) if name == axis]
        shape = [layout.shape[k] for k in dims]
        index = np.minimum(at[axis] // steps[axis], prod(shape) - 1)
        for k, each in zip(dims, np.unravel_index(index, shape), strict=True):
            place += each * layout.strides[k]
    return _Place(*np.divmod(place, bits))


def _index(group: Group, plane: Axes, place: _Place) -> dict[str, Indices]:
    """The elements whose codes lie in a place, the inverse of `_place`."""
    layout, codes = plane.tensor.layout, group.tensors[group.form.codes.part]
    left = place.element * codes.dtype.bits + place.bit - layout.offset
    found = dict[int, Indices]()
    for k in sorted(range(layout.ndim), key=lambda k: -layout.strides[k]):
        step = max(1, layout.strides[k])
        found[k] = np.minimum(left // step, layout.shape[k] - 1)
        left = left - found[k] * step
    made = dict.fromkeys(("*", *group.form.axes), np.zeros_like(left))
    for k, axis in enumerate(plane.axes):
        made[axis] = made[axis] * layout.shape[k] + found[k]
    return made


def _origins(change: Change, at: Indices) -> Iterator[tuple[str, Any, Indices]]:
    """The stored tensors from which elements come: the name, which elements, and where there."""
    source = change.source
    first, *others = change.stages
    for layout in reversed(others):
        at = _seen(layout, at)
    if isinstance(source, Stored):
        yield source.name, slice(None), _seen(first, at)
    elif isinstance(source, Joined):
        index = [*np.unravel_index(_seen(first, at), source.shape)]
        ends = np.cumsum([part.shape[source.axis] for part in source.parts])
        which = np.searchsorted(ends, index[source.axis], side="right")
        for k in np.unique(which):
            own, part = np.flatnonzero(which == k), source.parts[k]
            inner = [each[own] for each in index]
            inner[source.axis] -= ends[k] - part.shape[source.axis]
            for name, those, there in _origins(part, np.ravel_multi_index(inner, part.shape)):
                yield name, own[those], there
    else:
        yield "", slice(None), at


def _seen(layout: Layout, at: Indices) -> Indices:
    """The elements of a row-major array that a view of it has at these row-major indices."""
    place = np.int64(layout.offset) + np.zeros_like(at)
    if layout.shape:
        for each, stride in zip(np.unravel_index(at, layout.shape), layout.strides, strict=True):
            place += each * stride
    return place // layout.bits
