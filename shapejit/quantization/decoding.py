"""Groups of stored tensors -> weights: codes are read where they lie, scaled, and written once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from .. import outputs
from ..casts import cast, dequantize, quantize
from ..converting import Operands, convert, number_of
from ..dtypes import DType, dtype
from ..layout import Layout
from ..packings.packing import Packing
from ..scaling import dequantize_operands
from ..tensor import Tensor, asarray
from . import sizes
from .forms import Numbers
from .groups import Axes, Group, fault

FLOAT32 = dtype("float32")


BAND = 1 << 22  # codes that stay in a cache until they are scaled
DENSE = 64  # codes side by side that are worth a loop of their own


def decode(group: Group, kind: DType, out: Any, between: DType | None = None) -> Tensor:
    """The weight as `kind`: in float32 until the last step, or rounded to `between` before sums."""
    shape = group.shape
    target: Tensor = outputs.target(out, kind, shape, list(group.tensors.values()))
    into = target if group.result is None else target.reshape(group.sizes(group.form.result))
    for part, rows in _bands(group, into):
        _decoded(part, rows, between)
    return target


def _bands(group: Group, target: Tensor) -> Iterator[tuple[Group, Tensor]]:
    """The whole, or a few rows at a time where codes are put together from planes."""
    split = isinstance(group.form.codes.format, Packing) and len(group.form.codes.format.planes) > 1
    if not split or group.batch:
        yield group, target
        return
    step = max(1, BAND // max(1, group.known["K"]))
    for begin in range(0, group.known["N"], step):
        end = min(begin + step, group.known["N"])
        yield group.rows(begin, end), target[begin:end]


def _decoded(group: Group, target: Tensor, between: DType | None) -> None:
    form = group.form
    order = "*" + "".join(size[0] for size in form.result.split())
    codes = group.numbers(form.codes).permuted(order)
    scale = multiplied(group, form.scales, between if form.rounds == "scales" else None)
    zero = zero_points(group)
    offset = multiplied(group, form.offset) if form.offset else None
    if between is not None and form.rounds == "product":
        product = outputs.target(None, between, target.shape, ())
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
                stage = outputs.new_bytes(some.size * t.dtype.bits)
            ordered = Layout.row_major(some.shape, t.dtype.bits)
            some = some.ascontiguous(out=Tensor.trusted(stage, t.dtype, ordered))
            zeros_of = None if whole.zero is None else whole.zero[of]
            operands = Operands(whole.conversion, whole.scale[of], zeros_of, whole.blocks)
        convert(some, into[rows], operands.conversion, operands, fresh=False)


Rows = tuple[slice, ...]


def _passes(t: Tensor, blocks: Sequence[int] | None) -> Iterator[tuple[Rows, Rows]]:
    """All codes, or some at a time that are put in order first and stay in a cache, by rows.

    With each come the rows of their scales, of which there is one for each of `blocks`. Kernels
    that only move narrow codes follow any order at the speed of memory; those that
    convert them as well follow only some.
    """
    dense = not t.dtype.packed or (t.strides[-1] == t.dtype.bits and t.shape[-1] >= DENSE)
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
    """Numbers with a dim for each dim of the codes, and the elements per number along each."""
    if not isinstance(numbers, Axes):
        return numbers, None
    step = {size[0]: sizes.block(size, group.known) for size in dims.split()}
    return _aligned(group, codes, numbers, step)


def _aligned(
    group: Group, codes: Axes, numbers: Axes, step: Mapping[str, int]
) -> tuple[Tensor, tuple[int, ...]]:
    """`_spread` where each number is that of `step` codes along each axis."""
    found = numbers.permuted("".join(dict.fromkeys(codes.axes)))
    shape, blocks = list[int](), list[int]()
    for axis in dict.fromkeys(codes.axes):
        by = _blocks(group, codes.sizes(axis), step.get(axis, 1))
        blocks += by
        shape += [-(-n // size) for n, size in zip(codes.sizes(axis), by, strict=True)]
    return found.tensor.reshape(shape), tuple(blocks)


def _blocks(group: Group, factors: Sequence[int], step: int) -> list[int]:
    """How `step` elements of an axis cover its factors, the last ones first."""
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


def multiplied(group: Group, numbers: Sequence[Numbers], kind: DType | None = None) -> Axes:
    """Scales, or offsets, as the parts give them, or their products in float32.

    Every one of them, and each product, is rounded to `kind` if that is given.
    """
    first, *others = numbers
    made = group.numbers(first)
    if kind is not None:
        made = Axes(cast(made.tensor, kind), made.axes)
    per = {size[0]: sizes.block(size, group.known) for size in first.dims.split()}
    for other in others:
        if not group.has(other):
            continue
        found = group.numbers(other)
        if kind is not None:
            found = Axes(cast(found.tensor, kind), found.axes)
        if other.step == "-":
            found = Axes(asarray(-found.tensor.numpy()), found.axes)
        step = {size[0]: sizes.block(size, group.known) for size in other.dims.split()}
        step = {axis: step[axis] // per[axis] if step else prod(made.sizes(axis)) for axis in per}
        if found.tensor.size == 1:
            step["*"] = prod(group.batch)
        factor, blocks = _aligned(group, made, found, step)
        scaled: Any = quantize if other.step == "/" else dequantize
        given = {"block_shape": [max(1, n) for n in blocks], "dtype": kind or FLOAT32}
        made = Axes(scaled(made.tensor, factor, **given), made.axes)
    return made


def zero_points(group: Group) -> Any:
    """Zero points as Axes, the one number of all codes, or None."""
    form = group.form
    if form.zeros is None or not group.has(form.zeros):
        return 1 << (group.bits(form.codes) - 1) if form.zero == "half" else form.zero
    if group.tensors[form.zeros.part].dtype.kind == "float":
        return group.numbers(form.zeros._replace(dtype="", format=None))
    found = group.numbers(form.zeros)
    bias = group.packing(form.zeros).bias
    if not bias:
        return found
    top = np.uint8((1 << group.bits(form.codes)) - 1)
    raw = cast(found.tensor, "uint8").numpy()
    return Axes(asarray((raw - np.uint8(bias % 256)) & top), found.axes)


def _by_input(group: Group, numbers: Any) -> Any:
    """Scales or zero points of groups as those of each input, in the order that g_idx tells."""
    if not isinstance(numbers, Axes):
        return numbers
    t, groups = numbers.permuted("KN").tensor, group.order
    if t.dtype.packed:
        t = cast(t, "uint8")
    return Axes(asarray(t.ascontiguous().numpy()[groups]), "KN")
