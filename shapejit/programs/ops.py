"""The operations of a Program: one row per operation holds all there is to know of it.

A function that is traced becomes a tuple of Ops. What an operation does to a view,
how it is written down, checked, done by NumPy and to a stack of tensors, its row in
`OPERATIONS` says.
"""

from __future__ import annotations

import operator
import reprlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.buffers import memory_of
from ..dtypes.table import DType, dtype
from ..engine.outputs import array_over
from ..errors import FormatError, ReshapeError, ShapeJitError, shape_text
from ..shapes.arithmetic import MAX_SIZE
from ..shapes.layout import AXES, Layout, checked_shape
from .index_maps import IndexMap, View
from .steps import Step, cast_step, dequantize_step, quantize_step, stacked

Op = tuple[str, tuple[Any, ...]]  # the name of a row of OPERATIONS, and its arguments
Arguments = tuple[Any, ...]
Shape = tuple[int, ...]

COPY: Op = ("copy", ())  # never the source's own memory
CONTIGUOUS: Op = ("contiguous", ())  # row-major, from a byte on
VIEW = "view"  # the name of a reshape that must not copy


@dataclass(frozen=True)
class Operation:
    """All that is known of one operation; `*given` are its arguments in an Op."""

    # (layout, *given): the view of a Layout; None where doing this step by itself is a copy.
    view: Callable[..., Layout | None]
    # (shape, *given): the shape of the result. Raises FormatError for what tracing does not write.
    check: Callable[..., Shape]
    # (*given): the call of NumPy that does the same to an ndarray.
    numpy: Callable[..., Callable[[NDArray[Any]], NDArray[Any]]]
    # (count, shape, *given): what does it to each of `count` stacked arrays of `shape`.
    batched: Callable[..., tuple[Op, ...]]
    maps: bool = (
        False  # whether it is a view of every Layout, of other elements or in another order
    )
    reshapes: bool = False  # whether it has the elements in the same order in another shape
    read_only: bool = False  # whether a view that it makes must not be written through
    # (dtype, shape, *given): the conversion of all elements, if it is one.
    convert: Callable[..., Step] | None = None


def checked_ops(ops: object, shape: Shape, kind: DType) -> tuple[Shape, DType]:
    """The shape and dtype that `ops`, done to an array of `shape` and `kind`, result in.

    Raises FormatError, which names the operation, for anything that tracing does
    not write: an unknown name, arguments of other types, and elements that the
    array does not have at that point.

    >>> checked_ops((("permute", ((1, 0),)), ("narrow", (0, 2, 2, -2))), (2, 3), dtype("int8"))
    ((2, 2), shapejit.dtype('int8'))
    >>> checked_ops((("select", (0, 2)),), (2, 3), dtype("int8"))
    Traceback (most recent call last):
        ...
    shapejit.errors.FormatError: operation 0 (select) of shape (2, 3): index 2 is out of bounds
    """
    if type(ops) is not tuple:
        raise FormatError(f"operations are a tuple, not {type(ops).__name__}")
    for i, op in enumerate(ops):
        if type(op) is not tuple or list(map(type, op)) != [str, tuple]:
            raise FormatError(f"operation {i} is not a pair of a name and a tuple of arguments")
        name, given = op
        if name not in OPERATIONS:
            raise FormatError(f"operation {i} is unknown: {reprlib.repr(name)}")
        row = OPERATIONS[name]
        try:
            shape = row.check(shape, *given)
            if row.convert is not None:
                kind = row.convert(kind, shape, *given).kind
        except ShapeJitError as fault:
            where = f"operation {i} ({name}) of shape {shape_text(shape)}"
            raise FormatError(f"{where}: {fault}") from None
        except TypeError:
            raise FormatError(f"operation {i} ({name}) takes another number of arguments") from None
    return shape, kind


def shapes(ops: Sequence[Op], shape: Shape) -> Iterator[Shape]:
    """The shapes that operations make of a shape one after the other."""
    for name, given in ops:
        shape = OPERATIONS[name].check(shape, *given)
        yield shape


def batched(ops: Sequence[Op], shape: Shape, count: int) -> tuple[Op, ...]:
    """What does `ops` to each of `count` arrays of `shape` that are stacked along a new dim 0.

    >>> batched((("permute", ((1, 0),)), ("reshape", ((6,),))), (2, 3), 5)
    (('permute', ((0, 2, 1),)), ('reshape', ((5, 6),)))
    """
    made: list[Op] = []
    for (name, given), before in zip(ops, chain((shape,), shapes(ops, shape)), strict=False):
        made += OPERATIONS[name].batched(count, before, *given)
    return tuple(made)


def numpy_call(op: Op) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """An operation as a call of NumPy."""
    name, given = op
    return OPERATIONS[name].numpy(*given)


def view_of(op: Op) -> View:
    """An operation that maps indices, as a view of a Layout."""
    name, given = op
    row = OPERATIONS[name]

    def view(layout: Layout) -> Layout:
        seen = row.view(layout, *given)
        assert seen is not None
        return seen

    return view


def recorded(method: str, before: Layout, after: Layout, given: Arguments) -> Op | None:
    """The operation to write down for a view method of Layout; None if nothing has changed."""
    name = method if method in OPERATIONS else "reshape"
    places = [(layout.shape, layout.strides, layout.offset) for layout in (before, after)]
    if places[0] == places[1] and not OPERATIONS[name].read_only:
        return None
    if name == "permute":
        given = (tuple(axis % before.ndim for axis in given[0]),)
    elif name not in AXES:
        given = (after.shape,)
    return name, given


METHODS = ("permute", "broadcast_to", "insert", "squeeze", "reshape", *AXES)


def _numpy_narrow(axis: int, start: int, size: int, step: int) -> Any:
    stop = start + size * step
    kept = slice(start, stop if stop >= 0 else None, step) if size else slice(0)
    return operator.itemgetter((slice(None),) * axis + (kept,))


def _numpy_select(axis: int, index: int) -> Any:
    return operator.itemgetter((slice(None),) * axis + (index, Ellipsis))


def _batched_broadcast(count: int, shape: Shape, target: Shape) -> tuple[Op, ...]:
    lead = len(target) - len(shape)
    aligned = (count, *(1,) * lead, *shape)
    return ("reshape", (aligned,)), ("broadcast_to", ((count, *target),))


def _check_reshape(shape: Shape, target: Any) -> Shape:
    _check_ints(target)
    checked_shape(target, "the target shape", "reshape")
    if prod(shape) != prod(target):
        raise FormatError(f"it has {prod(shape)} elements, the target {prod(target)}")
    return Shape(target)


def _must_view(layout: Layout, shape: Shape) -> Layout:
    """The view of another shape; ReshapeError if there is none."""
    view = layout.reshape(shape)
    if view is None:
        note = f"strides {layout.strides} need a copy, which copy=False forbids"
        raise ReshapeError("cannot view", layout.shape, shape, (note,), "reshape")
    return view


def _check_ints(values: Any) -> None:
    if type(values) is not tuple or not set(map(type, values)) <= {int}:
        raise FormatError("the arguments are ints and tuples of ints, nothing else")
    if any(not -MAX_SIZE <= value <= MAX_SIZE for value in values):
        raise FormatError("the arguments must fit int64")


def _map(
    name: str,
    batched: Callable[..., tuple[Op, ...]],
    numpy: Callable[..., Any] | None = None,
    read_only: bool = False,
) -> Operation:
    """The row of a view method of Layout."""
    view = getattr(Layout, name)

    def check(shape: Shape, first: Any, *others: Any) -> Shape:
        given = first, *others
        for values in given:
            _check_ints(values if type(values) is tuple else (values,))
        if min(first if type(first) is tuple else given[:1], default=0) < 0:
            raise FormatError("axes are counted from the front, and no size is negative")
        try:
            found = IndexMap.of(shape, [lambda layout: view(layout, *given)])
        except IndexError:
            raise FormatError(f"there is no such axis among the {len(shape)} dims") from None
        made = checked_shape(found.shape, "the shape", name)
        found.check(repeats=read_only)
        return made

    def by_layout(*given: Any) -> Any:
        def call(x: NDArray[Any]) -> Any:
            memory, layout = memory_of(x, 8 * x.itemsize)
            return array_over(memory, x.dtype, view(layout, *given), not x.flags.writeable)

        return call

    return Operation(view, check, numpy or by_layout, batched, maps=True, read_only=read_only)


def _along_axes(name: str, numpy: Callable[..., Any] | None) -> Operation:
    """The row of a view method whose first arguments are axes."""
    count = AXES[name]

    def batched(_: int, shape: Shape, *given: int) -> tuple[Op, ...]:
        return ((name, (*(1 + axis for axis in given[:count]), *given[count:])),)

    return _map(name, batched, numpy)


def _conversion(
    name: str, convert: Callable[..., Step], stack: Callable[..., Arguments]
) -> Operation:
    """The row of a conversion; `stack` (count, *given) is what it does to stacked arrays."""

    def by_numpy(*given: Any) -> Any:
        return lambda x: convert(dtype(x.dtype), x.shape, *given).new(x)

    return Operation(
        view=lambda layout, *given: None,
        check=lambda shape, *given: shape,
        numpy=by_numpy,
        batched=lambda count, shape, *given: ((name, stack(count, *given)),),
        convert=convert,
    )


def _stacked_scales(count: int, *given: Any) -> Arguments:
    return (*stacked(count, *given[:3]), *given[3:])


# NumPy's own calls, where they are faster than a view of the Layout. The Ellipsis makes an array of
# the last dim, too.
_NUMPY: dict[str, Callable[..., Any]] = {"narrow": _numpy_narrow, "select": _numpy_select}

OPERATIONS: dict[str, Operation] = {
    **{name: _along_axes(name, _NUMPY.get(name)) for name in AXES},
    "permute": _map(
        "permute",
        lambda count, shape, axes: (("permute", ((0, *(1 + a for a in axes)),)),),
        lambda axes: operator.methodcaller("transpose", axes),
    ),
    "broadcast_to": _map(
        "broadcast_to",
        _batched_broadcast,
        lambda target: partial(np.broadcast_to, shape=target),
        read_only=True,
    ),
    "reshape": Operation(
        view=Layout.reshape,
        check=_check_reshape,
        numpy=lambda target: operator.methodcaller("reshape", target),
        batched=lambda count, shape, target: (("reshape", ((count, *target),)),),
        reshapes=True,
    ),
    VIEW: Operation(
        view=_must_view,
        check=_check_reshape,
        numpy=lambda target: operator.methodcaller("reshape", target),
        batched=lambda count, shape, target: ((VIEW, ((count, *target),)),),
        reshapes=True,
    ),
    "copy": Operation(
        view=lambda layout: None,
        check=lambda shape: shape,
        numpy=lambda: partial(np.array, order="C", copy=True),
        batched=lambda count, shape: (COPY,),
    ),
    "contiguous": Operation(
        view=lambda layout: layout if layout.contiguous and layout.offset % 8 == 0 else None,
        check=lambda shape: shape,
        numpy=lambda: partial(np.array, order="C", copy=None),
        batched=lambda count, shape: (CONTIGUOUS,),
    ),
    "cast": _conversion("cast", cast_step, lambda count, *given: given),
    "dequantize": _conversion("dequantize", dequantize_step, _stacked_scales),
    "quantize": _conversion("quantize", quantize_step, _stacked_scales),
}
