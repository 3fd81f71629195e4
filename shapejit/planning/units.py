"""Finds the units (see `kernels.planes`) of codes that are decoded in registers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import NamedTuple

from ..kernels.planes import Plane, Unit
from ..runtime.cpu_caches import LINE
from ..shapes.dims import common, merged
from ..shapes.layout import Layout
from .tables import offsets_of

MOST_UNIT = 512  # elements of a unit
WORTH = 8  # bytes of a unit from which a vector pays


class Units(NamedTuple):
    """A unit, the byte at which the first one begins, and the bytes from one to the next."""

    unit: Unit
    first: int
    step: int


@lru_cache(maxsize=64)  # of up to 512 elements; a fifth of the time of decoding a small weight
def units_of(planes: tuple[tuple[Layout, int], ...]) -> Units | None:
    """The units of elements in row-major order, given the Layout of each plane and its lowest bit.

    None if the elements are not made of such units.
    """
    shape: Sequence[int] | None = planes[0][0].shape
    for layout, _ in planes[1:]:
        shape = shape and common(shape, layout.shape)
    views = [shape and layout.reshape(shape) for layout, _ in planes]
    if not all(views) or not shape or prod(shape) < 1:
        return None
    dims = merged(shape, *(view.strides for view in views if view)) or [(1, *(8,) * len(planes))]
    (count, *steps), inner = dims[0], dims[1:]
    size = prod(dim[0] for dim in inner)
    taken = 1
    widths = [size * layout.bits for layout, _ in planes]
    few = steps[0] % 8 or steps[0] in widths or max(widths) >= 8 * WORTH
    while count % (2 * taken) == 0 and 2 * taken * size <= LINE and few:
        taken *= 2
    step = steps[0] * taken
    if (
        step % 8
        or step < 0
        or any(other != steps[0] for other in steps)
        or size * taken > MOST_UNIT
    ):
        return None
    inner = [(taken, *steps), *inner]
    places = [
        offsets_of([(dim[0], dim[k]) for dim in inner]) + layout.offset
        for k, (layout, _) in enumerate(planes, 1)
    ]
    first = min(int(offsets.min()) for offsets in places) // 8
    made = (
        Plane(layout.bits, low, tuple((offsets - 8 * first).tolist()))
        for (layout, low), offsets in zip(planes, places, strict=True)
    )
    return Units(Unit(tuple(made)), first, step // 8)
