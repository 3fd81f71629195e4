"""Content: a weight independent of its scheme: codes, scales and zero points as plain arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.tensor import Tensor
from .forms import Numbers
from .groups import Group, fault
from .operands import multiplied, zero_points

Array = NDArray[Any]


@dataclass(frozen=True)
class Content:
    """A weight, (out, in) last or flat, with its numbers as plain arrays.

    `group` has its shape, its blocks, and the meaning of its codes. `codes` are a byte each, and
    count from 0 on; they may be added later (None), and so may scales: then `scale` is one number
    of their dtype. `scale` is in the dtype of the file, `factor` is that of all scales. `zeros` has
    one zero point per scale, or one number (-0.0 for floats without negative zeros).
    """

    group: Group
    codes: Array | None
    scale: Array
    factor: Array | None
    zeros: Any
    offset: Array | None = None


def content_of(group: Group) -> Content:
    """A weight's Content, without its codes. Raises FormatError for act-order and grids."""
    form = group.form
    if form.codes.read is not None:
        raise fault(group.scheme, "can only be decoded: its codes are indices of a grid")
    if group.order is not None:
        raise fault(
            group.scheme, "g_idx is not in order (act-order), which no other scheme can store"
        )
    order, sign, factor = f"*{form.axes}", group.sign, form.factor
    scale = multiplied(group, form.scales[: 1 if factor else None], order).numpy()
    zeros = zero_points(group, order)
    if isinstance(zeros, Tensor):
        zeros = zeros.numpy().reshape(scale.shape)
        zeros = zeros.view(np.uint8) ^ np.uint8(sign) if sign else zeros
    elif sign:
        zeros = (zeros or 0) + sign
    offset = multiplied(group, form.offset, order).numpy() if form.offset else None
    each = (*group.batch, *scale.shape[len(group.batch) :])  # one of all experts is that of each
    return Content(
        group,
        codes=None,
        scale=np.broadcast_to(scale, each),
        factor=_of_each(group, factor) if factor is not None and group.has(factor) else None,
        zeros=zeros,
        offset=None if offset is None else offset.reshape(scale.shape),
    )


def codes_of(group: Group) -> Array:
    """The codes of a weight as bytes that count from 0 on."""
    codes = group.numbers(group.form.codes).permuted(f"*{group.form.axes}").tensor
    raw = np.ascontiguousarray(codes.unpack()).view(np.uint8).reshape(group.stored_shape)
    return raw ^ np.uint8(group.sign) if group.sign else raw


def _of_each(group: Group, factor: Numbers) -> Array:
    """The factor of all scales, one per expert even if all are equal."""
    given = group.tensors[factor.part].numpy()
    return given if given.size != 1 else np.broadcast_to(given.reshape(()), group.batch)
