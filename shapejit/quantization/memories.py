"""Where decoders, which know no weight, find its operands: in parts, or made by functions of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays.tensor import Tensor
from ..dtypes.table import FLOAT32, DType
from ..engine import outputs, routes
from ..engine.converting import number_of
from ..kernels.numbers import Conversion
from ..operations.casts import cast
from ..runtime.launches import address_of
from ..shapes.layout import Layout
from ..shapes.request import Ints
from .forms import Numbers
from .groups import Group
from .operands import multiplied, zero_points

FLOAT = number_of(FLOAT32)

# The memory of numbers: the key of a part, an array, or what makes one from a weight.
Memory = str | NDArray[Any] | Callable[[Group], NDArray[Any]]


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
