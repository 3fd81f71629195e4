"""Weights decoded from stored parts: codes are read in place, scaled, and written once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.tensor import Tensor, asarray
from ..dtypes.table import DType
from ..engine import outputs
from ..engine.converting import convert, number_of
from ..engine.patience import by_numpy, kind_named, unready
from ..operations.scaling import dequantize_operands
from . import sizes
from .groups import Axes, Group
from .operands import aligned, multiplied, zero_points
from .runs import decoding


def decode(group: Group, kind: DType, out: Any, between: DType | None = None) -> Tensor:
    """The weight as `kind`: in float32 until the last step, or rounded to `between` before sums."""
    shape = group.shape
    target: Tensor = outputs.target(out, kind, shape, list(group.tensors.values()))[0]
    if not target.size:
        return target
    into = target if group.result is None else target.reshape(group.sizes(group.form.result))
    work = decoding(group, into) if between is None or not group.form.rounds else None
    kinds = () if work is None else unready(kind_named("decode", work.names), lambda: work.names)
    if work is not None and not kinds:
        work.run()
    else:
        with by_numpy(*kinds):
            _decoded(group, into, between)
    return target


def _decoded(group: Group, target: Tensor, between: DType | None) -> None:
    form, order = group.form, group.form.order
    codes = group.numbers(form.codes).permuted(order)
    if group.order is None:
        dims, zero = form.scales[0].dims, zero_points(group, order)
        scale = multiplied(group, form.scales, order, between if form.rounds == "scales" else None)
    else:
        dims, (scale, zero) = "K N", _by_input(group, group.order)
    offset = multiplied(group, form.offset, order) if form.offset else None
    operands = [scale, zero, offset]
    if between is not None and form.rounds == "product":
        product, _ = outputs.new_array(between, target.shape)
        _scaled(group, codes, [scale, zero, None], dims, product)
        codes = Axes(product.reshape(codes.tensor.shape), codes.axes)
        operands = [asarray(np.ones(scale.shape, np.float32)), None, offset]
    _scaled(group, codes, operands, dims, target)


def _scaled(group: Group, codes: Axes, operands: Sequence[Any], dims: str, target: Tensor) -> None:
    """Write (codes - zero) * scale + offset into the target, given scale, zero and offset."""
    step, t, numbers = sizes.steps(dims, group.known), codes.tensor, group.form.codes
    (scale, blocks), (zero, _), (offset, _) = (
        aligned(group, codes, x, step) if isinstance(x, Tensor) else (x, None) for x in operands
    )
    table = numbers.table
    number = number_of(group.kind(numbers))._replace(kind="table", table=table) if table else None
    _, found = dequantize_operands(t, scale, zero, blocks, target.dtype, offset, number)
    convert(t, target.reshape(t.shape), found.conversion, found, fresh=False)


def _by_input(group: Group, groups: NDArray[np.int64]) -> list[Any]:
    """Scales and zero points of groups expanded to one per input, in the order of g_idx."""
    given = multiplied(group, group.form.scales, "*KN"), zero_points(group, "*KN")
    return [asarray(x.numpy()[groups]).mT if isinstance(x, Tensor) else x for x in given]
