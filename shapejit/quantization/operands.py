"""The operands of a weight: the products of its scales, and its zero points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from ..arrays.tensor import Tensor, asarray
from ..dtypes.table import FLOAT32, DType
from ..operations.casts import cast, dequantize, quantize
from . import sizes
from .forms import Numbers
from .groups import Axes, Group, fault


def multiplied(group: Group, numbers: Sequence[Numbers], kind: DType | None = None) -> Axes:
    """Scales or offsets as stored, or their products in float32.

    Each of them, and each product, is rounded to `kind` if that is given.
    """
    first, *others = numbers
    made = group.numbers(first)
    if kind is not None:
        made = Axes(cast(made.tensor, kind), made.axes)
    per = sizes.steps(first.dims, group.known)
    for other in others:
        if not group.has(other):
            continue
        found = group.numbers(other)
        if kind is not None:
            found = Axes(cast(found.tensor, kind), found.axes)
        if other.step == "-":
            found = Axes(asarray(-found.tensor.numpy()), found.axes)
        step = sizes.steps(other.dims, group.known)
        step = {axis: step[axis] // per[axis] if step else prod(made.sizes(axis)) for axis in per}
        factor, blocks = aligned(group, made, found, step)
        scaled: Any = quantize if other.step == "/" else dequantize
        given = {"block_shape": [max(1, n) for n in blocks], "dtype": kind or FLOAT32}
        made = Axes(scaled(made.tensor, factor, **given), made.axes)
    return made


def zero_points(group: Group) -> Any:
    """Zero points as Axes, or one number for all codes, or None."""
    form = group.form
    if form.zeros is None or not group.has(form.zeros):
        return 1 << (group.bits(form.codes) - 1) if form.zero == "half" else form.zero
    found = group.numbers(form.zeros)
    bias = group.packing(form.zeros).bias if form.zeros.format else 0
    if not bias:
        return found
    top = np.uint8((1 << group.bits(form.codes)) - 1)
    raw = cast(found.tensor, "uint8").numpy()
    return Axes(asarray((raw - np.uint8(bias % 256)) & top), found.axes)


def aligned(
    group: Group, codes: Axes, numbers: Axes, step: Mapping[str, int]
) -> tuple[Tensor, tuple[int, ...]]:
    """`_spread` for numbers of `step` codes along each axis, or of all codes."""
    if numbers.tensor.size == 1:
        step = {**step, "*": prod(group.batch)}
    found = numbers.permuted("".join(dict.fromkeys(codes.axes)))
    shape, blocks = list[int](), list[int]()
    for axis in dict.fromkeys(codes.axes):
        by = _blocks(group, codes.sizes(axis), step.get(axis, 1))
        blocks += by
        shape += [-(-n // size) for n, size in zip(codes.sizes(axis), by, strict=True)]
    return found.tensor.reshape(shape), tuple(blocks)


def _blocks(group: Group, factors: Sequence[int], step: int) -> list[int]:
    """How `step` elements of an axis are divided among its factors, the last ones first."""
    made = list[int]()
    for k in reversed(range(len(factors))):
        size = factors[k]
        if k and step >= size:
            if step % size:
                raise fault(group.scheme, f"{step} elements per scale do not fit its blocks")
            made.insert(0, size)
            step //= size
        else:
            if k and size % step:
                raise fault(group.scheme, f"{step} elements per scale do not fit its blocks")
            made.insert(0, step)
            step = 1
    return made
