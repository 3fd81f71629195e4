"""A weight stored in another scheme with the same codes, some rows or experts at a time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Set as AbstractSet
from dataclasses import replace
from math import lcm, prod

import numpy as np

from ..arrays.tensor import Tensor, asarray
from ..packings.repacking import copy_codes
from .bands import Slice, bands, cut, sliced, unit_of
from .content import codes_of, content_of
from .forms import SchemeRow
from .groups import Group
from .parts import Parts
from .writing import put, stored_as

BAND_ROWS = 128  # rows: a multiple of those of words of codes and of tiles
UNPACKED = 1 << 16  # codes that are unpacked at a time, where they cannot be copied in place

# Parts of a weight by the keys of its form: all of each, or slices.
Read = Callable[[AbstractSet[str], Mapping[str, Slice]], Mapping[str, Tensor]]


def transcode(
    group: Group, to: SchemeRow, known: Mapping[str, int], read: Read, limit: int
) -> Parts:
    """The parts of a weight in the scheme `to` with the sizes `known`; `read` reads the old parts.

    About `limit` codes are in memory at a time, besides the result; all of them if they are among
    other numbers. Raises FormatError as `Scheme.convert` does.
    """
    codes, *others = group.form.numbers
    apart = {codes.part} - {numbers.part for numbers in others}
    whole = group.tensors.keys() - apart
    group = replace(group, tensors={**group.tensors, **read(whole, {})})
    target = stored_as(to, content_of(group), known)
    along = sliced(target, "N") or {}
    rows = lcm(*(unit_of(token, target.known) for _, token in along.values()))
    both = target.batch or along
    for band in bands(group, limit if both else sys.maxsize, axis="N", unit=BAND_ROWS):
        tensors = {**cut(group, whole, band.slices), **read(apart, band.slices)}
        some = replace(band.group, tensors=tensors)
        if not _moved(some, target, band.begin):
            _unpacked(some, target, band.begin, UNPACKED if both else sys.maxsize, rows)
    return Parts(target.tensors, target.settings)


def _unpacked(source: Group, target: Group, begin: int, limit: int, rows: int) -> None:
    """Store the codes of rows or experts from `begin` on, by way of a byte each.

    About `limit` at a time, in multiples of `rows`. This is for codes in several planes, of 5 and 7
    bits, and for those whose dims have no common factors.
    """
    key = target.form.codes.part
    for band in bands(source, limit, axis="N", unit=rows):
        first, last = begin + band.begin, begin + band.end
        (place,) = bands(target, sys.maxsize, first, last, axis="N")
        (into,) = cut(target, {key}, place.slices).values()
        new = asarray(np.array(into.numpy()))  # contiguous, and with what lies beside the codes
        tensors = cut(source, source.tensors.keys(), band.slices)
        codes = codes_of(replace(band.group, tensors=tensors))
        put(replace(place.group, tensors={key: new}), target.form.codes, codes)
        into.numpy()[...] = new.numpy()


def _moved(source: Group, target: Group, begin: int) -> bool:
    """Copy the codes of rows or experts from `begin` on to their positions, if that is possible."""
    sides = list[Tensor]()
    for group in (source, target):
        planes = group.planes(group.form.codes) or []
        if len(planes) != 1:
            return False
        seen = planes[0][0].permuted(f"*{source.form.axes}")
        sides.append(seen.tensor)
    count, *inner = seen.sizes(seen.axes[0])
    step = 1 if source.batch else prod(inner)
    rows = source.batch[0] if source.batch else source.known.get("N", count * step)
    if begin % step or rows % step:
        return False
    into = sides[1].layout.narrow(0, begin // step, rows // step, 1)
    bias = target.code_bias - source.code_bias
    return copy_codes(sides[0].buffer, sides[1].buffer, sides[0].layout, into, bias)
