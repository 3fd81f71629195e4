"""Content: a weight independent of its scheme: codes, scales and zero points as plain arrays."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.tensor import Tensor
from .forms import Numbers
from .groups import Axes, Group, fault
from .operands import multiplied, zero_points

Array = NDArray[Any]


@dataclass(frozen=True)
class Content:
    """A weight of `shape`, (out, in) last or flat, with a scale for each block of `blocks`.

    `codes` have `bits` bits, in a byte each; `values` is their meaning: "integer" (unsigned), the
    name of a float dtype, or the values of a table. `scale` is in the dtype of the file; all scales
    are multiplied by `factor`, or divided by it (`step`). `zeros` has one zero point per scale, or
    one number (-0.0 for floats without negative zeros). Codes may follow later (None), and so may
    scales: then `scale` is one number of their dtype.
    """

    shape: tuple[int, ...]
    result: tuple[int, ...] | None
    codes: Array | None
    bits: int
    values: Any
    blocks: tuple[int, ...]
    scale: Array
    factor: Array | None
    step: str
    zeros: Any
    offset: Array | None

    @property
    def batch(self) -> tuple[int, ...]:
        """The dims of stacked experts."""
        return self.shape[: len(self.shape) - len(self.blocks)]


def content_of(group: Group) -> Content:
    """A weight's Content, without its codes. Raises FormatError for act-order and grids."""
    form = group.form
    if form.codes.read is not None:
        raise fault(group.scheme, "is only decoded: its codes stand for points of a grid")
    if group.order is not None:
        raise fault(
            group.scheme, "g_idx has an order of its own (act-order), which is kept nowhere else"
        )
    order, sign, shape = f"*{form.axes}", group.sign, group.stored_shape
    factor = form.factor if group.has(form.factor) else None
    scales = multiplied(group, form.scales[:1] if form.factor else form.scales)
    scale, counts = _ordered(scales, order)
    each = (*group.batch, *counts[len(group.batch) :])  # one of all experts is that of each
    zeros = zero_points(group)
    if isinstance(zeros, Axes):
        zeros = _ordered(zeros, order)[0].unpack().reshape(counts)
        if sign:
            zeros = zeros.view(np.uint8) ^ np.uint8(sign)
    elif sign:
        zeros = (zeros or 0) + sign
    offset = _ordered(multiplied(group, form.offset), order)[0].unpack() if form.offset else None
    return Content(
        shape=shape,
        result=group.result,
        codes=None,
        bits=group.width(form.codes),
        values=group.values,
        blocks=group.blocks,
        scale=np.broadcast_to(scale.unpack().reshape(counts), each),
        factor=None if factor is None else _of_each(group, factor),
        step="*" if factor is None else factor.step,
        zeros=zeros,
        offset=None if offset is None else offset.reshape(counts),
    )


def codes_of(group: Group) -> Array:
    """The codes of a weight as bytes, which count from 0 on."""
    codes, shape = _ordered(group.numbers(group.form.codes), f"*{group.form.axes}")
    raw = np.ascontiguousarray(codes.unpack()).view(np.uint8).reshape(shape)
    return raw ^ np.uint8(group.sign) if group.sign else raw


def _of_each(group: Group, factor: Numbers) -> Array:
    """The factor of all scales, one per expert even if all are equal."""
    given = group.tensors[factor.part].numpy()
    return given if given.size != 1 else np.broadcast_to(given.reshape(()), group.batch)


def _ordered(numbers: Axes, order: str) -> tuple[Tensor, tuple[int, ...]]:
    """Numbers with their axes in this order, and the size of each axis."""
    made = numbers.permuted(order)
    lead = made.sizes("*")
    shape = (*lead, *(prod(made.sizes(axis)) for axis in order[1:]))
    return made.tensor.ascontiguous().reshape(shape), shape
