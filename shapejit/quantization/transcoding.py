"""A weight stored in another scheme with the same codes, some rows or experts at a time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Set as AbstractSet
from dataclasses import replace
from math import prod

from ..arrays.tensor import Tensor
from ..packings.repacking import copy_codes
from .bands import Slice, bands
from .content import codes_of, content_of
from .forms import Form
from .groups import Group
from .parts import Parts
from .writing import put_codes, written

UNIT = 128  # rows: a multiple of those of words of codes and of tiles

# Parts of a weight by the keys of its form: all of each, or slices.
Read = Callable[[AbstractSet[str], Mapping[str, Slice]], Mapping[str, Tensor]]


def transcode(
    group: Group, to: str, forms: tuple[Form, ...], known: Mapping[str, int], read: Read, limit: int
) -> Parts:
    """The parts of a weight in the scheme `to` with the sizes `known`; `read` reads the old parts.

    About `limit` codes are in memory at a time, beside the result; all if they lie beside other
    numbers, or in several planes. Raises FormatError as `Scheme.convert` does.
    """
    codes, *others = group.form.numbers
    apart = {codes.part} - {numbers.part for numbers in others}
    group = replace(group, tensors={**group.tensors, **read(group.tensors.keys() - apart, {})})
    target = written(to, forms, content_of(group), known)

    def with_codes(some: Group, slices: Mapping[str, Slice]) -> Group:
        return replace(some, tensors={**group.tensors, **read(apart, slices)})

    for band in bands(group, limit if apart else sys.maxsize, axis="N", unit=UNIT):
        if not _moved(with_codes(band.group, band.slices), target, band.begin):
            put_codes(target, codes_of(with_codes(group, {})))
            break
    return Parts(target.tensors, target.settings)


def _moved(source: Group, target: Group, begin: int) -> bool:
    """Copy the codes of rows or experts from `begin` on to their places, if that is possible."""
    sides = list[Tensor]()
    for group in (source, target):
        planes = group.planes(group.form.codes) or []
        if len(planes) != 1 or group.bits(group.form.codes) != group.kind(group.form.codes).bits:
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
