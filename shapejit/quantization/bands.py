"""Bands: the slices of a weight's parts that are needed to decode some of its rows."""

from __future__ import annotations

from collections.abc import Mapping, Set as AbstractSet
from dataclasses import dataclass, replace
from math import lcm, prod
from typing import NamedTuple

from ..arrays.tensor import Tensor
from ..dtypes.table import DType
from . import decoding, sizes
from .groups import Group

# Bands that are not contiguous in a part are so many times as large.
APART = 16
EXPERTS = "E"  # the axis of stacked experts


class Slice(NamedTuple):
    """`size` elements of dim `axis` from `begin` on."""

    axis: int
    begin: int
    size: int


@dataclass(frozen=True)
class Band:
    """Rows `begin` to `end` (dim 0) of a decoded weight, and the slices of parts that they need.

    Parts without a slice are needed whole; `group` has the sizes of this band.
    """

    begin: int
    end: int
    group: Group
    slices: Mapping[str, Slice]

    def decode(self, tensors: Mapping[str, Tensor], kind: DType, out: Tensor | None) -> Tensor:
        """The rows, decoded (to `out`); `tensors` are the parts by their keys, cut to `slices`."""
        return decoding.decode(replace(self.group, tensors=tensors), kind, out)


def bands(
    group: Group, limit: int, begin: int = 0, end: int | None = None,
    axis: str | None = None, unit: int = 1,
) -> list[Band]:  # fmt: skip
    """Rows `begin` to `end` of a weight in bands of about `limit` elements.

    Rows are indices of the decoded weight's dim 0, or of `axis` ("N"); bands are multiples of
    `unit` rows. Stacked experts come first. If the form allows no bands, one band has all rows.
    """
    axis = EXPERTS if group.batch else axis or group.form.result[0]
    slices = sliced(group, axis)
    rows = group.batch[0] if group.batch else group.known.get(axis, prod(group.shape[:1]))
    row = prod(group.shape) // max(1, rows)
    if not slices or not rows or not row:
        return [Band(0, rows, group, {})]
    if any(at for at, _ in slices.values()):
        limit *= APART
    unit = lcm(1 if group.batch else unit, *(unit_of(t, group.known) for _, t in slices.values()))
    step = max(1, limit // row // unit) * unit
    last = rows if end is None else min(rows, -(-end // unit) * unit)
    made = list[Band]()
    for first in range(begin // unit * unit, last, step):
        size = min(step, last - first)
        parts = {
            key: Slice(at, _count(token, group, axis, first), _count(token, group, axis, size))
            for key, (at, token) in slices.items()
        }
        known, batch = {**group.known, axis: size}, (size, *group.batch[1:]) if group.batch else ()
        made.append(Band(first, first + size, replace(group, known=known, batch=batch), parts))
    return made


def cut(group: Group, keys: AbstractSet[str], slices: Mapping[str, Slice]) -> dict[str, Tensor]:
    """Some parts of a weight, or slices of them, as views."""
    made = {key: group.tensors[key] for key in keys}
    for key in keys & slices.keys():
        axis, begin, size = slices[key]
        made[key] = made[key][(*(slice(None),) * axis, slice(begin, begin + size))]
    return made


def sliced(group: Group, axis: str) -> dict[str, tuple[int, str]] | None:
    """The dim of each part along `axis`, and its size; None if bands are impossible."""
    if axis == EXPERTS:
        rank = len(group.batch)
        stacked = (key for key, t in group.tensors.items() if t.shape[:rank] == group.batch)
        return dict.fromkeys(stacked, (0, axis))
    if axis == "n" or group.order is not None:
        return None
    used, found = {each.part for each in group.form.numbers}, dict[str, tuple[int, str]]()
    for key, t in group.tensors.items():
        tokens = group.form.part(key).dims.split()
        if tokens != ["?"] and t.ndim == len(tokens):
            along = ((k, size) for k, size in enumerate(tokens) if size.count(axis) == 1)
            found.update((key, each) for each in along)
        elif key in used and t.size > 1:
            return None
    return found


def unit_of(token: str, known: Mapping[str, int]) -> int:
    """The number of rows whose slice of a part has a whole size."""
    return prod(sizes.value(by, known) or 1 for by in sizes.divisors(token))


def _count(token: str, group: Group, axis: str, rows: int) -> int:
    """The size of a part's dim for `rows` rows."""
    found = sizes.value(token, {**group.known, axis: rows})
    assert found is not None, f"{token} is unknown"
    return found
