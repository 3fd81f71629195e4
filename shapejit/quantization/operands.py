"""The operands of a weight: the products of its scales, and its zero points.

Content has them as arrays; decoders, which know no weight, as functions of one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays.tensor import Tensor, asarray
from ..dtypes.table import FLOAT32, UINT8, DType
from ..engine import outputs, routes
from ..engine.converting import number_of
from ..kernels.numbers import Conversion, Number
from ..operations.casts import cast, dequantize, quantize
from ..runtime.launches import address_of
from ..shapes.layout import Layout
from ..shapes.request import Ints
from . import sizes
from .forms import Numbers
from .groups import Axes, Group, fault

FLOAT = number_of(FLOAT32)

# The memory of numbers: the key of a part, an array, or what makes one from a weight.
Memory = str | NDArray[Any] | Callable[[Group], NDArray[Any]]


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


class Floats(NamedTuple):
    """Contiguous float32 of any weight, which begin at byte `offset` of their memory."""

    memory: Memory
    offset: int
    shape: Ints


def located(memories: Sequence[Memory], group: Group) -> tuple[list[Any], NDArray[np.int64]]:
    """The addresses of memories of one weight, and the arrays to keep alive while these are used.

    That of a part is the address of the byte in which its first element begins.
    """
    kept = [
        group.tensors[each] if isinstance(each, str)
        else each if isinstance(each, np.ndarray) else each(group)
        for each in memories
    ]  # fmt: skip
    begins = [begin_of(x) if isinstance(x, Tensor) else address_of(x) for x in kept]
    return kept, np.array(begins, np.int64)


def begin_of(t: Tensor) -> int:
    """The address of the byte in which the first element of a Tensor begins."""
    return address_of(t.buffer) + (t.layout.offset >> 3)


def place_of(group: Group, numbers: Numbers, seen: Tensor) -> tuple[Memory, int]:
    """The memory of numbers, `seen` in the tensors of one weight, and the offset in it (bytes).

    From there the Layout of `seen` counts. It is a part, unless this has to be copied.
    """
    t = group.tensors[numbers.part]
    if np.may_share_memory(seen.buffer, t.buffer):
        return numbers.part, address_of(seen.buffer) - begin_of(t)

    def copied(group: Group) -> NDArray[Any]:
        planes = group.planes(numbers)
        assert planes
        return planes[0][0].tensor.buffer

    return copied, 0


def products(
    group: Group, numbers: Sequence[Numbers], order: str, kind: DType | None = None
) -> Floats:
    """The product of numbers in any weight like this one: see `multiplied`."""
    others = any(map(group.has, numbers[1:]))
    found = None if others or kind else _converted(group, numbers[0], order, 0)
    return found or made_by(group, lambda group: multiplied(group, numbers, order, kind))


def stored_zeros(group: Group, order: str) -> Floats:
    """The stored zero points of any weight like this one: see `zero_points`."""
    zeros = group.form.zeros
    assert zeros is not None
    bias = group.packing(zeros).bias if zeros.format else 0
    found = _converted(group, zeros, order, -bias)
    return found or made_by(group, lambda group: zero_points(group, order))


def made_by(group: Group, make: Callable[[Group], Tensor]) -> Floats:
    """Numbers that are computed anew for each weight."""

    def floats(group: Group) -> NDArray[Any]:
        t = make(group)
        found: NDArray[Any] = (t.ascontiguous() if t.dtype is FLOAT32 else cast(t, FLOAT32)).numpy()
        return found

    return Floats(floats, 0, floats(group).shape)


def _converted(group: Group, numbers: Numbers, order: str, bias: int) -> Floats | None:
    """Numbers of one plane, as they are stored, or converted by a Route."""
    planes = group.planes(numbers) or ()
    if len(planes) != 1:
        return None
    made = planes[0][0].permuted(order)
    memory, offset = place_of(group, numbers, made.tensor)
    if not isinstance(memory, str):
        return None
    number, layout = number_of(group.kind(numbers)), made.tensor.layout
    shape = (*made.sizes("*"), *(prod(made.sizes(axis)) for axis in order[1:]))
    offset, layout = offset + layout.offset // 8, layout.at(layout.offset % 8)
    if number == FLOAT and layout.contiguous_bytes:
        return Floats(memory, offset, shape)
    conversion = Conversion(number, FLOAT, 32, bias=bias % (1 << number.bits))
    return Floats(_by_route(memory, offset, layout, conversion), 0, shape)


def _by_route(key: str, offset: int, layout: Layout, conversion: Conversion) -> Memory:
    """Numbers of a part, converted to an array of their own."""
    route = routes.casts(layout, 32, None, None, 1, conversion, True)

    def floats(group: Group) -> NDArray[Any]:
        made: NDArray[Any] = outputs.new_array(FLOAT32.codes, layout.shape)[0]
        begin = begin_of(group.tensors[key]) + offset
        routes.run(route, [8 * begin], [8 * address_of(made)], fresh=True)
        return made

    return floats


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
