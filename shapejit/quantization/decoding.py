"""Weights decoded from stored parts: codes are read in place, scaled, and written once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..arrays.tensor import Tensor, asarray
from ..dtypes.table import DType
from ..engine import outputs
from ..engine.converting import Operands, convert, number_of
from ..engine.patience import by_numpy, kind_named, unready
from ..operations.casts import cast
from ..operations.scaling import dequantize_operands
from ..planning import thresholds
from ..shapes.layout import Layout
from . import sizes
from .groups import Axes, Group
from .operands import aligned, multiplied, zero_points
from .runs import decoding

BAND = 1 << 22  # codes that stay in a cache until they are scaled


def decode(group: Group, kind: DType, out: Any, between: DType | None = None) -> Tensor:
    """The weight as `kind`: in float32 until the last step, or rounded to `between` before sums."""
    shape = group.shape
    target: Tensor = outputs.target(out, kind, shape, list(group.tensors.values()))[0]
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
    into = target.reshape(t.shape)
    _, whole = dequantize_operands(t, scales, zeros, shape, target.dtype, offsets, number)
    stage = None
    for rows, of in _passes(t, shape):
        some, operands = t[rows], whole
        if rows:
            if stage is None:
                stage, _ = outputs.new_bytes(some.size * t.dtype.bits)
            ordered = Layout.row_major(some.shape, t.dtype.bits)
            some = some.ascontiguous(out=Tensor.unchecked(stage, t.dtype, ordered))
            zeros_of = None if whole.zero is None else whole.zero[of]
            operands = Operands(whole.conversion, whole.scale[of], zeros_of, whole.blocks)
        convert(some, into[rows], operands.conversion, operands, fresh=False)


Rows = tuple[slice, ...]


def _passes(t: Tensor, blocks: Sequence[int] | None) -> Iterator[tuple[Rows, Rows]]:
    """Yield all codes, or bands of rows that are reordered first and stay in a cache.

    Each comes with the rows of its scales, one for each of `blocks`. Kernels that only move narrow
    codes follow any order at the speed of memory; kernels that also convert follow only some.
    """
    dense = not t.dtype.packed or (
        t.strides[-1] == t.dtype.bits and t.shape[-1] >= thresholds.SHORT
    )
    if dense or t.size < BAND or blocks is None:
        yield (), ()
        return
    axis = next(k for k, size in enumerate(t.shape) if size > 1)
    by, lead = blocks[axis], (slice(None),) * axis
    step = max(1, BAND * t.shape[axis] // t.size // by) * by
    for begin in range(0, t.shape[axis], step):
        end = min(begin + step, t.shape[axis])
        yield (*lead, slice(begin, end)), (*lead, slice(begin // by, -(-end // by)))


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
