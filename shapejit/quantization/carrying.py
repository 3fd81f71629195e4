"""A weight as another scheme stores it: the same codes, some rows or experts at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.tensor import Tensor, asarray
from ..errors import FormatError
from .bands import Band, Slice, bands, count, sliced, unit_of
from .content import Content, blocks_of, content_of
from .forms import Form
from .groups import Group, fault
from .parts import Parts
from .settings import group_of
from .writing import written

__all__ = ["UNIT", "carried"]

UNIT = 128  # rows of which blocks of scales, words of codes and swizzled tiles are fractions

Read = Callable[[Mapping[str, Slice]], Mapping[str, Tensor]]


def carried(group: Group, read: Read, to: str, forms: tuple[Form, ...], limit: int) -> Parts:
    """The parts of a weight in the scheme `to`; `read` returns its own ones, or slices of them.

    Beside what is made, bands of about `limit` elements are in memory, their codes a byte each
    and several times; all of the weight where bands would be stored in other ways. Raises
    FormatError as `Scheme.convert` does.
    """
    found = bands(group, limit, axis="N", unit=UNIT)
    if len(found) > 1:
        with suppress(FormatError):  # the whole may fit, or tells why it does not
            return _together(group, found, read, to, forms)
    return written(to, forms, content_of(replace(group, tensors=read({}))), {})


def _together(
    group: Group, found: Sequence[Band], read: Read, to: str, forms: tuple[Form, ...]
) -> Parts:
    """Bands, converted one by one; FormatError unless they are parts of one whole."""
    made: _Whole | None = None
    for band in found:
        content = content_of(replace(band.group, tensors=read(band.slices)))
        parts = written(to, forms, content, {})
        now = group_of(to, forms, parts, {})
        if made is None:
            made = _Whole(group, now, content)
        made.put(band, now)
    assert made is not None
    return made.parts(to, forms)


class _Whole:
    """The parts of a whole weight, of which `first` are those of a band; `group` is the source."""

    def __init__(self, group: Group, first: Group, content: Content) -> None:
        self.first = first
        self.rows = group.batch[0] if group.batch else group.known["N"]
        known = first.known if group.batch else {**first.known, "N": self.rows}
        lead = (self.rows, *group.batch[1:]) if group.batch else ()
        writes, shape = first.form.writes, content.shape
        shape = (*lead, *shape[len(lead) :]) if lead else (self.rows, *shape[1:])
        for form, sizes in ((group.form, group.known), (first.form, known)):
            if blocks_of(form, sizes, shape[len(lead) :]) != content.blocks:
                raise fault(first.scheme, "has blocks of another size in all rows")
        told = {} if writes is None else writes(replace(content, shape=shape), known)
        self.told = {key: asarray(x) for key, x in told.items()}
        self.places = {key: at for key, at in _places(first).items() if key not in told}
        self.arrays = {
            key: np.zeros(self._shape(key, at), first.tensors[key].dtype.numpy)
            for key, at in self.places.items()
        }

    def put(self, band: Band, now: Group) -> None:
        """Add the parts of a band."""
        first = self.first
        alike = now.form is first.form and now.tensors.keys() == first.tensors.keys()
        sizes = [{k: n for k, n in each.known.items() if k != "N"} for each in (now, first)]
        if not alike or sizes[0] != sizes[1]:
            raise fault(first.scheme, "stores some rows in another way")
        for key, t in now.tensors.items():
            if t.dtype is not first.tensors[key].dtype:
                raise fault(first.scheme, f"stores {key} of some rows as {t.dtype}")
            if key in self.places:
                at, token = self.places[key]
                if band.begin % unit_of(token, now.known):
                    raise fault(first.scheme, f"stores rows in {key} together")
                ends = [count(token, now.known, "N", n) for n in (band.begin, band.end)]
                self._slice(key, at, *ends)[...] = t.numpy()
            elif key not in self.told and t.tobytes() != first.tensors[key].tobytes():
                raise fault(first.scheme, f"has one {key} for all rows")

    def parts(self, to: str, forms: tuple[Form, ...]) -> Parts:
        """The whole."""
        made = {
            key: self.told[key] if key in self.told
            else asarray(self.arrays[key]) if key in self.arrays else t
            for key, t in self.first.tensors.items()
        }  # fmt: skip
        return Parts(made, group_of(to, forms, Parts(made, self.first.settings), {}).settings)

    def _shape(self, key: str, place: tuple[int, str]) -> tuple[int, ...]:
        (at, token), shape = place, list(self.first.tensors[key].shape)
        shape[at] = count(token, self.first.known, "N", self.rows)
        return tuple(shape)

    def _slice(self, key: str, at: int, begin: int, end: int) -> NDArray[Any]:
        return self.arrays[key][(*(slice(None),) * at, slice(begin, end))]


def _places(group: Group) -> dict[str, tuple[int, str]]:
    """The dim of each part that follows experts or rows, and its size by the number of these."""
    if group.batch:
        lead = len(group.batch)
        stacked = (k for k, t in group.tensors.items() if t.shape[:lead] == group.batch)
        return dict.fromkeys(stacked, (0, "N"))
    found = sliced(group, "N")
    if found is None:
        raise fault(group.scheme, "stores all rows together")
    return found
