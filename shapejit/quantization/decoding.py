"""Weights decoded from stored parts: codes are read in place, scaled, and written once."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays.tensor import Tensor, asarray
from ..dtypes.table import DType
from ..engine import outputs
from ..engine.converting import convert, number_of
from ..engine.patience import by_numpy, kind_named, unready
from ..operations.casts import cast
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
    form = group.form
    codes = group.numbers(form.codes).permuted(form.order)
    scale = multiplied(group, form.scales, between if form.rounds == "scales" else None)
    zero = zero_points(group)
    offset = multiplied(group, form.offset) if form.offset else None
    if between is not None and form.rounds == "product":
        product, _ = outputs.new_array(between, target.shape)
        _scaled(group, codes, scale, zero, None, product)
        codes = Axes(product.reshape(codes.tensor.shape), codes.axes)
        scale, zero = Axes(asarray(np.ones(scale.tensor.shape, np.float32)), scale.axes), None
    _scaled(group, codes, scale, zero, offset, target)


def _scaled(
    group: Group, codes: Axes, scale: Axes, zero: Any, offset: Axes | None, target: Tensor
) -> None:
    """Write (codes - zero) * scale + offset into the target."""
    blocks = group.form.scales[0].dims
    if group.order is not None:
        blocks, scale, zero = "K N", _by_input(group, scale), _by_input(group, zero)
    spread = [_spread(group, blocks, codes, x) for x in (scale, zero, offset)]
    (scales, shape), zeros, offsets = spread[0], spread[1][0], spread[2][0]
    t, numbers = codes.tensor, group.form.codes
    table = numbers.table
    number = number_of(group.kind(numbers))._replace(kind="table", table=table) if table else None
    _, operands = dequantize_operands(t, scales, zeros, shape, target.dtype, offsets, number)
    convert(t, target.reshape(t.shape), operands.conversion, operands, fresh=False)


def _spread(
    group: Group, dims: str, codes: Axes, numbers: Any
) -> tuple[Any, tuple[int, ...] | None]:
    """Numbers with as many dims as the codes, and the elements per number along each dim."""
    if not isinstance(numbers, Axes):
        return numbers, None
    return aligned(group, codes, numbers, sizes.steps(dims, group.known))


def _by_input(group: Group, numbers: Any) -> Any:
    """Scales or zero points of groups expanded to one per input, in the order of g_idx."""
    if not isinstance(numbers, Axes):
        return numbers
    t, groups = numbers.permuted("KN").tensor, group.order
    if t.dtype.packed:
        t = cast(t, "uint8")
    return Axes(asarray(t.ascontiguous().numpy()[groups]), "KN")
