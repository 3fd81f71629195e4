"""A weight converted to another scheme with the same codes, some rows or experts at a time."""

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
from .matching import group_of
from .parts import Parts
from .writing import written

__all__ = ["UNIT", "transcode"]

UNIT = 128  # rows: a multiple of those of blocks of scales, words of codes and swizzled tiles

Read = Callable[[Mapping[str, Slice]], Mapping[str, Tensor]]


def transcode(group: Group, read: Read, to: str, forms: tuple[Form, ...], limit: int) -> Parts:
    """The parts of a weight in the scheme `to`; `read` returns its stored parts, or slices of them.

    Besides the result, bands of about `limit` elements are in memory, with several copies of their
    codes, a byte each; the whole weight if bands would be stored differently. Raises FormatError as
    `Scheme.convert` does.
    """
    found = bands(group, limit, axis="N", unit=UNIT)
    if len(found) > 1:
        with suppress(FormatError):  # the whole may fit, or tells why it does not
            return _together(group, found, read, to, forms)
    return written(to, forms, content_of(replace(group, tensors=read({}))), {})


def _together(
    group: Group, found: Sequence[Band], read: Read, to: str, forms: tuple[Form, ...]
) -> Parts:
    """Convert bands one by one. Raises FormatError unless they fit together."""
    first: Group | None = None
    lead = group.batch[:1]
    for band in found:
        content = content_of(replace(band.group, tensors=read(band.slices)))
        now = group_of(to, forms, written(to, forms, content, {}), {})
        if first is None:
            first, rest = now, content.shape[1:]
            rows = lead[0] if lead else group.known["N"]
            known = first.known if lead else {**first.known, "N": rows}
            told = _told(group, first, replace(content, shape=(rows, *rest)), known)
            places = {key: at for key, at in _places(first).items() if key not in told}
            for key, (at, token) in places.items():
                shape = list(first.tensors[key].shape)
                shape[at] = count(token, known, "N", rows)
                told[key] = np.zeros(shape, first.tensors[key].dtype.numpy)
        if _kind(now) != _kind(first):
            raise fault(to, "stores some rows in another way")
        for key, t in now.tensors.items():
            if key in places:
                at, token = places[key]
                if band.begin % unit_of(token, now.known):
                    raise fault(to, f"stores rows in {key} together")
                ends = (count(token, now.known, "N", n) for n in (band.begin, band.end))
                told[key][(*(slice(None),) * at, slice(*ends))] = t.numpy()
            elif key not in told and t.tobytes() != first.tensors[key].tobytes():
                raise fault(to, f"has one {key} for all rows")
    assert first is not None
    made = {key: asarray(told.get(key, t)) for key, t in first.tensors.items()}
    return Parts(made, group_of(to, forms, Parts(made, first.settings), {}).settings)


def _told(
    group: Group, first: Group, whole: Content, known: Mapping[str, int]
) -> dict[str, NDArray[Any]]:
    """The whole weight in a form. Raises FormatError if its blocks differ from those of bands."""
    shape = whole.shape[len(whole.batch) :]
    for form, sizes in ((group.form, group.known), (first.form, known)):
        if blocks_of(form, sizes, shape) != whole.blocks:
            raise fault(first.scheme, "has blocks of another size in all rows")
    return {} if first.form.writes is None else first.form.writes(whole, known)


def _kind(group: Group) -> tuple[object, ...]:
    """The facts that all bands share."""
    sizes = {name: n for name, n in group.known.items() if name != "N"}
    return id(group.form), sizes, {key: t.dtype for key, t in group.tensors.items()}


def _places(group: Group) -> dict[str, tuple[int, str]]:
    """The dim of each part along experts or rows, and its size per expert or row."""
    if group.batch:
        lead = len(group.batch)
        stacked = (k for k, t in group.tensors.items() if t.shape[:lead] == group.batch)
        return dict.fromkeys(stacked, (0, "N"))
    found = sliced(group, "N")
    if found is None:
        raise fault(group.scheme, "stores all rows together")
    return found
