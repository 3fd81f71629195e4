"""The operands of a weight: the products of its scales, and its zero points, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ..arrays.tensor import Tensor, asarray
from ..dtypes.table import FLOAT32, UINT8, DType
from ..kernels.numbers import Number
from ..operations.casts import cast, dequantize, quantize
from ..shapes.request import Ints
from . import sizes
from .forms import Numbers
from .groups import Axes, Group, fault


def ordered(group: Group, numbers: Numbers, order: str, kind: DType | None = None) -> Tensor:
    """Numbers with the dims of experts and one dim per axis, in this order, rounded to `kind`."""
    made = group.numbers(numbers).permuted(order)
    shape = (*made.sizes("*"), *(prod(made.sizes(axis)) for axis in order[1:]))
    kind = UINT8 if kind is None and made.tensor.dtype.packed else kind
    t = made.tensor if kind is None else cast(made.tensor, kind)
    return t if t.shape == shape else t.reshape(shape)


def multiplied(
    group: Group, numbers: Sequence[Numbers], order: str, kind: DType | None = None
) -> Tensor:
    """Scales or offsets as stored, or their products in float32, see `ordered`.

    Each of them, and each product, is rounded to `kind` if that is given.
    """
    first, *others = numbers
    made, per = ordered(group, first, order, kind), sizes.steps(first.dims, group.known)
    for other in filter(group.has, others):
        factor, step = ordered(group, other, order, kind), sizes.steps(other.dims, group.known)
        if other.step == "-":
            factor = asarray(-factor.numpy())
        axes = order[0] * len(group.batch) + order[1:]
        pairs = zip(axes, made.shape, factor.shape, strict=True)
        blocks = [step[a] // per[a] if a in step else max(1, n // max(1, m)) for a, n, m in pairs]
        scaled: Any = quantize if other.step == "/" else dequantize
        made = scaled(made, factor, block_shape=blocks, dtype=kind or FLOAT32)
    return made


def zero_points(group: Group, order: str, kind: DType | None = None) -> Any:
    """Zero points, see `ordered`, or one number for all codes, or None.

    Those with a bias are bytes.
    """
    form = group.form
    if form.zeros is None or not group.has(form.zeros):
        return constant_zero(group)
    bias = group.packing(form.zeros).bias if form.zeros.format else 0
    found = ordered(group, form.zeros, order, None if bias else kind)
    if not bias:
        return found
    top = np.uint8((1 << group.bits(form.codes)) - 1)
    return asarray((found.numpy() - np.uint8(bias % 256)) & top)


def constant_zero(group: Group) -> Any:
    """The zero point of all codes, or None."""
    form = group.form
    if group.has(form.zeros):
        return None
    return 1 << (group.bits(form.codes) - 1) if form.zero == "half" else form.zero


def meaning(group: Group, number: Number) -> tuple[Number, int, str]:
    """Codes as numbers that include a constant zero point: the Number, its bias, and `zeros`.

    The last two are those of a Conversion. An integer zero point is the middle of the codes.
    """
    table, zero = group.form.codes.table, constant_zero(group)
    if table:
        number = number._replace(kind="table", table=table)
    if zero is None or number.kind != "uint":
        return number, 0, "" if zero is None else "positive"
    return number._replace(kind="int"), -zero % (1 << number.bits), ""


def aligned(
    group: Group, codes: Axes, shape: Ints, dims: str
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Another shape for numbers of these dims, and the elements per number along each dim of codes.

    It has as many dims as the codes have. Raises FormatError if a number's elements are no block.
    """
    step = sizes.steps(dims, group.known)
    blocks = [n // m for _, n, m in zip(group.batch, codes.tensor.shape, shape, strict=False)]
    for axis in dict.fromkeys(codes.axes[len(blocks) :]):
        blocks += _blocks(group, codes.sizes(axis), step[axis])
    made = (-(-n // size) for n, size in zip(codes.tensor.shape, blocks, strict=True))
    return tuple(made), tuple(blocks)


def _blocks(group: Group, factors: Sequence[int], step: int) -> list[int]:
    """The factors of an axis among which `step` elements are divided, the last ones first."""
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
