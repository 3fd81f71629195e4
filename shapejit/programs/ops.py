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

from ..dtypes.table import DType, dtype
from ..errors import FormatError, ReshapeError, ShapeJitError, shape_text
from ..shapes.arithmetic import MAX_SIZE
from ..shapes.layout import Layout, checked_shape
from .chain import Chain
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
    # (chain, *given): the view of a Chain; None where a copy must come first.
    fused: Callable[..., Chain | None]
    # (shape, *given): the shape of the result. Raises FormatError for what tracing does not write.
    check: Callable[..., Shape]
    # (*given): the call of NumPy that does the same to an ndarray.
    numpy: Callable[..., Callable[[NDArray[Any]], NDArray[Any]]]
    # (count, shape, *given): what does it to each of `count` stacked arrays of `shape`.
    batched: Callable[..., tuple[Op, ...]]
    # (before, after, *given): the arguments to write down for a call of one of the `methods` of
    # Layout that made one Layout of another; None if nothing has changed.
    recorded: Callable[..., Arguments | None] = lambda before, after, *given: given
    methods: tuple[str, ...] = ()
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


def _check_permute(shape: Shape, axes: Any) -> Shape:
    _check_axes(axes, len(shape))
    if len(axes) != len(shape):
        raise FormatError(f"{len(axes)} axes for {len(shape)} dims")
    return tuple(shape[axis] for axis in axes)


def _recorded_permute(before: Layout, after: Layout, axes: Sequence[int]) -> Arguments | None:
    order = tuple(axis % before.ndim for axis in axes)
    return None if order == tuple(range(before.ndim)) else (order,)


def _check_flip(shape: Shape, axes: Any) -> Shape:
    _check_axes(axes, len(shape))
    return shape


def _recorded_flip(
    before: Layout, after: Layout, axes: Sequence[int] | None = None
) -> Arguments | None:
    given = range(before.ndim) if axes is None else axes
    turned = tuple(sorted(axis % before.ndim for axis in given if before.shape[axis] > 1))
    return (turned,) if turned else None


def _numpy_flip(axes: Shape) -> Any:
    steps = (-1 if i in axes else 1 for i in range(max(axes, default=-1) + 1))
    # The Ellipsis makes an array of an array without dims, too.
    return operator.itemgetter((*(slice(None, None, step) for step in steps), Ellipsis))


def _check_narrow(shape: Shape, axis: Any, start: Any, size: Any, step: Any) -> Shape:
    _check_axes((axis,), len(shape))
    _check_ints((start, size, step))
    if size < 0 or (size > 1 and step == 0):
        raise FormatError(f"a slice cannot have {size} elements in steps of {step}")
    if size > 0:
        _check_index(start, shape[axis])
        _check_index(start + (size - 1) * step, shape[axis])
    return (*shape[:axis], size, *shape[axis + 1 :])


def _recorded_narrow(
    before: Layout, after: Layout, axis: int, start: int, size: int, step: int
) -> Arguments | None:
    if size == before.shape[axis] and (step == 1 or size < 2):
        return None
    return axis, start, size, step if size > 1 else 1


def _numpy_narrow(axis: int, start: int, size: int, step: int) -> Any:
    stop = start + size * step
    kept = slice(start, stop if stop >= 0 else None, step) if size else slice(0)
    return operator.itemgetter((slice(None),) * axis + (kept,))


def _check_select(shape: Shape, axis: Any, index: Any) -> Shape:
    _check_axes((axis,), len(shape))
    _check_ints((index,))
    _check_index(index, shape[axis])
    return (*shape[:axis], *shape[axis + 1 :])


def _numpy_select(axis: int, index: int) -> Any:
    # The Ellipsis makes an array of the last dim, too.
    return operator.itemgetter((slice(None),) * axis + (index, Ellipsis))


def _check_broadcast(shape: Shape, target: Any) -> Shape:
    _check_ints(target)
    checked_shape(target, "the target shape", "broadcast_to")
    lead = len(target) - len(shape)
    if lead < 0 or any(n not in (1, to) for n, to in zip(shape, target[lead:], strict=True)):
        raise FormatError("the sizes differ and are not 1")
    return Shape(target)


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


def _recorded_reshape(before: Layout, after: Layout, *given: object) -> Arguments | None:
    return None if after.shape == before.shape else (after.shape,)


def _check_ints(values: Any) -> None:
    if type(values) is not tuple or not set(map(type, values)) <= {int}:
        raise FormatError("the arguments are ints and tuples of ints, nothing else")
    if any(not -MAX_SIZE <= value <= MAX_SIZE for value in values):
        raise FormatError("the arguments must fit int64")


def _check_index(index: int, size: int) -> None:
    if not 0 <= index < size:
        raise FormatError(f"index {index} is out of bounds")


def _check_axes(axes: Any, ndim: int) -> None:
    """Refuse axes that are not counted from the front, or are given twice."""
    _check_ints(axes)
    if len(set(axes)) < len(axes) or not set(axes) <= set(range(ndim)):
        raise FormatError(f"the axes must be different ones of the {ndim} dims")


def _conversion(
    name: str, convert: Callable[..., Step], stack: Callable[..., Arguments]
) -> Operation:
    """The row of a conversion; `stack` (count, *given) is what it does to stacked arrays."""

    def by_numpy(*given: Any) -> Any:
        return lambda x: convert(dtype(x.dtype), x.shape, *given).new(x)

    return Operation(
        view=lambda layout, *given: None,
        fused=lambda chain, *given: chain,
        check=lambda shape, *given: shape,
        numpy=by_numpy,
        batched=lambda count, shape, *given: ((name, stack(count, *given)),),
        convert=convert,
    )


def _stacked_scales(count: int, *given: Any) -> Arguments:
    return (*stacked(count, *given[:3]), *given[3:])


OPERATIONS: dict[str, Operation] = {
    "permute": Operation(
        view=Layout.permute,
        fused=Chain.permute,
        check=_check_permute,
        numpy=lambda axes: operator.methodcaller("transpose", axes),
        batched=lambda count, shape, axes: (("permute", ((0, *(1 + a for a in axes)),)),),
        recorded=_recorded_permute,
        methods=("permute",),
    ),
    "flip": Operation(
        view=Layout.flip,
        fused=Chain.flip,
        check=_check_flip,
        numpy=_numpy_flip,
        batched=lambda count, shape, axes: (("flip", (tuple(1 + a for a in axes),)),),
        recorded=_recorded_flip,
        methods=("flip",),
    ),
    "narrow": Operation(
        view=Layout.narrow,
        fused=Chain.narrow,
        check=_check_narrow,
        numpy=_numpy_narrow,
        batched=lambda count, shape, axis, *given: (("narrow", (1 + axis, *given)),),
        recorded=_recorded_narrow,
        methods=("narrow",),
    ),
    "select": Operation(
        view=Layout.select,
        fused=Chain.select,
        check=_check_select,
        numpy=_numpy_select,
        batched=lambda count, shape, axis, index: (("select", (1 + axis, index)),),
        methods=("select",),
    ),
    "broadcast_to": Operation(
        view=Layout.broadcast_to,
        fused=Chain.broadcast_to,
        check=_check_broadcast,
        numpy=lambda target: partial(np.broadcast_to, shape=target),
        batched=_batched_broadcast,
        recorded=lambda before, after, target: (after.shape,),
        methods=("broadcast_to",),
        read_only=True,
    ),
    "reshape": Operation(
        view=Layout.reshape,
        fused=Chain.reshape,
        check=_check_reshape,
        numpy=lambda target: operator.methodcaller("reshape", target),
        batched=lambda count, shape, target: (("reshape", ((count, *target),)),),
        recorded=_recorded_reshape,
        methods=("reshape", "insert", "squeeze"),
    ),
    VIEW: Operation(
        view=_must_view,
        fused=Chain.reshape,
        check=_check_reshape,
        numpy=lambda target: operator.methodcaller("reshape", target),
        batched=lambda count, shape, target: ((VIEW, ((count, *target),)),),
    ),
    "copy": Operation(
        view=lambda layout: None,
        fused=lambda chain: chain,
        check=lambda shape: shape,
        numpy=lambda: partial(np.array, order="C", copy=True),
        batched=lambda count, shape: (COPY,),
    ),
    "contiguous": Operation(
        view=lambda layout: layout if layout.contiguous and layout.offset % 8 == 0 else None,
        fused=lambda chain: chain,
        check=lambda shape: shape,
        numpy=lambda: partial(np.array, order="C", copy=None),
        batched=lambda count, shape: (CONTIGUOUS,),
    ),
    "cast": _conversion("cast", cast_step, lambda count, *given: given),
    "dequantize": _conversion("dequantize", dequantize_step, _stacked_scales),
    "quantize": _conversion("quantize", quantize_step, _stacked_scales),
}
