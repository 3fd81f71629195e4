"""The operations of a Program: one row per operation has everything about it.

A traced function is a tuple of Ops. A row of `OPERATIONS` has an operation's effect on a Layout,
and its checks.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

from ..dtypes.table import DType
from ..errors import FormatError, ReshapeError, ShapeJitError, shape_text
from ..shapes.arithmetic import MAX_SIZE
from ..shapes.layout import Layout, checked_shape
from .index_maps import IndexMap
from .steps import Step, cast_step, dequantize_step, quantize_step

Op = tuple[str, tuple[Any, ...]]  # the name of a row of OPERATIONS, and its arguments
Shape = tuple[int, ...]

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
    # Of a view: whether the result must not be written.
    read_only: bool | None = None
    reshapes: bool = False  # whether it keeps the elements in order and changes the shape
    # (dtype, shape, *given): the conversion of all elements, if it is one.
    convert: Callable[..., Step] | None = None


def checked_ops(ops: object, shape: Shape, kind: DType) -> tuple[Shape, DType]:
    """The shape and dtype of the result of `ops` on an array of `shape` and dtype `kind`.

    Raises FormatError, which names the operation, for anything that tracing never records: an
    unknown name, arguments of other types, and elements that the array does not have.

    >>> from shapejit.dtypes import dtype
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

    return Operation(lambda layout, *given: IndexMap(*given).applied(layout), check, read_only)


def _copy(layout: Layout, *given: Any) -> None:
    """No view: the operation by itself is a copy."""


def _kept(shape: Shape) -> Shape:
    """The shape, of operations without arguments."""
    return shape


def _conversion(convert: Callable[..., Step]) -> Operation:
    """The row of a conversion, which checks its own arguments."""
    return Operation(_copy, lambda shape, *given: shape, convert=convert)


OPERATIONS: dict[str, Operation] = {
    VIEW: _view(VIEW, read_only=False),
    READ_ONLY_VIEW: _view(READ_ONLY_VIEW, read_only=True),
    "reshape": Operation(Layout.reshape, _check_reshape, reshapes=True),
    RESHAPE_VIEW: Operation(_must_view, _check_reshape, reshapes=True),
    "copy": Operation(_copy, _kept),
    "contiguous": Operation(lambda layout: layout if layout.contiguous_bytes else None, _kept),
    "cast": _conversion(cast_step),
    "dequantize": _conversion(dequantize_step),
    "quantize": _conversion(quantize_step),
}
