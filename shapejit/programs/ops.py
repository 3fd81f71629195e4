"""The operations of a Program: one row per operation has everything about it.

A traced function is a tuple of Ops. A row of `OPERATIONS` has an operation's effect on a Layout,
its checks, and the NumPy calls that do it, for one tensor or for a stack.
"""

from __future__ import annotations

import operator
import reprlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.buffers import memory_of
from ..dtypes.table import DType, dtype
from ..engine.outputs import array_over
from ..errors import FormatError, ReshapeError, ShapeJitError, shape_text
from ..shapes.arithmetic import MAX_SIZE
from ..shapes.layout import Layout, checked_shape
from .index_maps import IndexMap
from .steps import Step, cast_step, dequantize_step, quantize_step, stacked

Op = tuple[str, tuple[Any, ...]]  # the name of a row of OPERATIONS, and its arguments
Arguments = tuple[Any, ...]
Shape = tuple[int, ...]
Call = Callable[[NDArray[Any]], NDArray[Any]]

VIEW = "view"  # the names of operations that tracing records
READ_ONLY_VIEW = "broadcast"
RESHAPE_VIEW = "reshape_view"
COPIED: Op = ("copy", ())  # never the source's own memory
MADE_CONTIGUOUS: Op = ("contiguous", ())  # row-major, and begins on a byte


@dataclass(frozen=True)
class Operation:
    """One row of the table of operations; `*given` are its arguments in an Op."""

    # (layout, *given): the view of a Layout; None if this operation by itself is a copy.
    view: Callable[..., Layout | None]
    # (shape, *given): the shape of the result. Raises FormatError for what tracing never records.
    check: Callable[..., Shape]
    # (ndim, *given): the sequence of NumPy calls that do the same to an ndarray.
    numpy: Callable[..., list[Call]]
    # (count, *given): the arguments for `count` stacked arrays.
    stacked: Callable[..., Arguments]
    # Of a view: whether the result must not be written.
    read_only: bool | None = None
    reshapes: bool = False  # whether it keeps the elements in order and changes the shape
    # (dtype, shape, *given): the conversion of all elements, if it is one.
    convert: Callable[..., Step] | None = None


def checked_ops(ops: object, shape: Shape, kind: DType) -> tuple[Shape, DType]:
    """The shape and dtype of the result of `ops` on an array of `shape` and dtype `kind`.

    Raises FormatError, which names the operation, for anything that tracing never records: an
    unknown name, arguments of other types, and elements that the array does not have.

    >>> checked_ops((("view", ((2,), ((1, 2),), (((0, 1),),))),), (2, 3), dtype("int8"))
    ((2,), shapejit.dtype('int8'))
    >>> checked_ops((("view", ((2,), ((1, 3),), (((0, 1),),))),), (2, 3), dtype("int8"))
    Traceback (most recent call last):
        ...
    shapejit.errors.FormatError: operation 0 (view) of shape (2, 3): index 3 is out of bounds
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
    """The shape after each of the operations."""
    for name, given in ops:
        shape = OPERATIONS[name].check(shape, *given)
        yield shape


def batched(ops: Sequence[Op], count: int) -> tuple[Op, ...]:
    """The operations that do `ops` to each of `count` arrays stacked along a new dim 0.

    >>> batched((("view", ((2,), (), (((0, 1),),))), ("reshape", ((1, 2),))), 5)
    (('view', ((5, 2), (), (((0, 1),), ((1, 1),)))), ('reshape', ((5, 1, 2),)))
    """
    return tuple([(name, OPERATIONS[name].stacked(count, *given)) for name, given in ops])


def numpy_calls(ops: Sequence[Op], shape: Shape) -> Iterator[Call]:
    """The NumPy calls of operations on an ndarray of a shape."""
    for (name, given), met in zip(ops, (shape, *shapes(ops, shape)), strict=False):
        yield from OPERATIONS[name].numpy(len(met), *given)


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


def _numpy_view(view: IndexMap, read_only: bool, ndim: int) -> list[Call]:
    """The fastest NumPy calls for a view of arrays with `ndim` dims.

    An index, a permutation and new dims; as_strided if dims mix or have no elements.
    """
    shape, starts, steps = view
    axes = [axis for each in steps for axis, _ in each]
    if 0 in shape or len(set(axes)) < len(axes) or any(len(each) > 1 for each in steps):
        return [partial(_by_layout, view, read_only)]
    first = dict(starts)
    index: list[Any] = [first.get(axis, 0) for axis in range(ndim)]
    for size, each in zip(shape, steps, strict=True):
        for axis, step in each:
            stop = index[axis] + size * step
            index[axis] = slice(index[axis], stop if stop >= 0 else None, step)
    calls: list[Call] = [operator.itemgetter((*index, Ellipsis))]
    if axes != sorted(axes):
        order = [sorted(axes).index(axis) for axis in axes]
        calls.append(operator.methodcaller("transpose", order))
    if len(axes) < len(shape):
        calls.append(operator.itemgetter(tuple([slice(None) if s else None for s in steps])))
    return [*calls, partial(np.broadcast_to, shape=shape)] if read_only else calls


def _by_layout(view: IndexMap, read_only: bool, x: NDArray[Any]) -> Any:
    memory, layout = memory_of(x, 8 * x.itemsize)
    fixed = read_only or not x.flags.writeable
    return array_over(memory, x.dtype, view.applied(layout), fixed)


def _view(name: str, read_only: bool) -> Operation:
    """The row of a view, whose arguments are those of an IndexMap."""

    def check(shape: Shape, target: Any, starts: Any, steps: Any) -> Shape:
        _check_ints(target)
        made = checked_shape(target, "the shape", name)
        if type(starts) is not tuple or type(steps) is not tuple or len(steps) != len(made):
            raise FormatError("a view has starts, and steps for each of its dims")
        for pairs in (starts, *steps):
            if type(pairs) is not tuple or not all(type(p) is tuple and len(p) == 2 for p in pairs):
                raise FormatError("starts and steps are pairs of an axis and a number")
            for pair in pairs:
                _check_ints(pair)
        IndexMap(made, starts, steps).check(shape, repeats=read_only)
        return made

    return Operation(
        view=lambda layout, *given: IndexMap(*given).applied(layout),
        check=check,
        numpy=lambda ndim, *given: _numpy_view(IndexMap(*given), read_only, ndim),
        stacked=lambda count, *given: tuple(IndexMap(*given).stacked(count)),
        read_only=read_only,
    )


def _conversion(convert: Callable[..., Step], stack: Callable[..., Arguments]) -> Operation:
    """The row of a conversion; `stack` (count, *given) returns its arguments for stacked arrays."""

    return Operation(
        view=lambda layout, *given: None,
        check=lambda shape, *given: shape,
        numpy=lambda ndim, *given: [lambda x: convert(dtype(x.dtype), x.shape, *given).new(x)],
        stacked=stack,
        convert=convert,
    )


def _reshape(view: Callable[[Layout, Shape], Layout | None]) -> Operation:
    """The row of a reshape; `view` is its view by itself."""
    return Operation(
        view=view,
        check=_check_reshape,
        numpy=lambda ndim, target: [operator.methodcaller("reshape", target)],
        stacked=lambda count, target: ((count, *target),),
        reshapes=True,
    )


def _copy(view: Callable[[Layout], Layout | None], copy: bool | None) -> Operation:
    """The row of a copy to row-major memory; `copy` as in numpy.array."""
    return Operation(
        view=view,
        check=lambda shape: shape,
        numpy=lambda ndim: [partial(np.array, order="C", copy=copy)],
        stacked=lambda count: (),
    )


def _stacked_scales(count: int, *given: Any) -> Arguments:
    return (*stacked(count, *given[:3]), *given[3:])


OPERATIONS: dict[str, Operation] = {
    VIEW: _view(VIEW, read_only=False),
    READ_ONLY_VIEW: _view(READ_ONLY_VIEW, read_only=True),
    "reshape": _reshape(Layout.reshape),
    RESHAPE_VIEW: _reshape(_must_view),
    "copy": _copy(lambda layout: None, True),
    "contiguous": _copy(lambda layout: layout if layout.contiguous_bytes else None, None),
    "cast": _conversion(cast_step, lambda count, *given: given),
    "dequantize": _conversion(dequantize_step, _stacked_scales),
    "quantize": _conversion(quantize_step, _stacked_scales),
}
