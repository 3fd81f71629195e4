"""The operations of a Program: one row per operation has everything about it.

A traced function is a tuple of Ops. A row of `OP_ROWS` has an operation's effect on a Layout,
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
from ..shapes.layout import VIEWS, Layout, checked_shape
from ..shapes.request import Ints
from .steps import ConversionStep, cast_step, dequantize_step, quantize_step

Op = tuple[str, tuple[Any, ...]]  # the name of a row of OP_ROWS, and its arguments


RESHAPE_VIEW = "reshape_view"
COPIED: Op = ("copy", ())  # never the source's own memory
MADE_CONTIGUOUS: Op = ("contiguous", ())  # row-major, and begins on a byte


@dataclass(frozen=True)
class OpRow:
    """One row of the table of operations; `*given` are its arguments in an Op."""

    # (layout, *given): the view of a Layout; None if this operation by itself is a copy.
    view: Callable[..., Layout | None]
    # (shape, *given): the shape of the result. Raises FormatError for what tracing never records.
    check: Callable[..., Ints]
    views: bool = False  # whether it is a method of Layout that selects elements
    read_only: bool = False  # whether the result must not be written
    reshapes: bool = False  # whether it keeps the elements in order and changes the shape
    # (dtype, shape, *given): the conversion of all elements, if it is one.
    convert: Callable[..., ConversionStep] | None = None


def checked_ops(ops: object, shape: Ints, kind: DType) -> tuple[Ints, DType]:
    """The shape and dtype of the result of `ops` on an array of `shape` and dtype `kind`.

    Raises FormatError, which names the operation, for anything that tracing never records: an
    unknown name, arguments of other types, and elements that the array does not have.

    >>> from shapejit.dtypes import dtype
    >>> checked_ops((("select", (1, 2)),), (2, 3), dtype("int8"))
    ((2,), shapejit.dtype('int8'))
    >>> checked_ops((("select", (1, 3)),), (2, 3), dtype("int8"))
    Traceback (most recent call last):
        ...
    shapejit.errors.FormatError: operation 0 (select) of shape (2, 3): (1, 3) is out of bounds
    """
    if type(ops) is not tuple:
        raise FormatError(f"operations are a tuple, not {type(ops).__name__}")
    for i, op in enumerate(ops):
        if type(op) is not tuple or list(map(type, op)) != [str, tuple]:
            raise FormatError(f"operation {i} is not a pair of a name and a tuple of arguments")
        name, given = op
        if name not in OP_ROWS:
            raise FormatError(f"operation {i} is unknown: {reprlib.repr(name)}")
        row = OP_ROWS[name]
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


def _check_reshape(shape: Ints, target: Any) -> Ints:
    _check_ints(target)
    checked_shape(target, "the target shape", "reshape")
    if prod(shape) != prod(target):
        raise FormatError(f"it has {prod(shape)} elements, the target {prod(target)}")
    return Ints(target)


def _must_view(layout: Layout, shape: Ints) -> Layout:
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


def _narrows(shape: Ints, axis: int, start: int, size: int, step: int) -> bool:
    ends = (start, start + (size - 1) * step) if size else ()
    exist = axis in range(len(shape)) and all(i in range(shape[axis]) for i in ends)
    return exist and size >= 0 and step != 0


# Whether the arguments of a view are of dims and elements that exist, where Layout does not check.
_IN_BOUNDS: dict[str, Callable[..., bool]] = {
    "diagonal": lambda shape, i, j, offset: i != j and {i, j} <= {*range(len(shape))},
    "insert": lambda shape, axis: axis in range(len(shape) + 1),
    "narrow": _narrows,
    "select": lambda shape, axis, i: axis in range(len(shape)) and i in range(shape[axis]),
}


def _view(name: str) -> OpRow:
    """The row of a view: a method of Layout."""
    view: Callable[..., Layout] = getattr(Layout, name)

    def check(shape: Ints, *given: Any) -> Ints:
        for value in (given,) if name in _IN_BOUNDS else given:
            _check_ints(value if type(value) is tuple else (value,))
        if name in _IN_BOUNDS and not _IN_BOUNDS[name](shape, *given):
            raise FormatError(f"{given} is out of bounds")
        return checked_shape(view(Layout.row_major(shape, 8), *given).shape, "the shape", name)

    return OpRow(view, check, views=True, read_only=name == "broadcast_to")


def _copy(layout: Layout, *given: Any) -> None:
    """No view: the operation by itself is a copy."""


def _kept(shape: Ints) -> Ints:
    """The shape, of operations without arguments."""
    return shape


def _conversion(convert: Callable[..., ConversionStep]) -> OpRow:
    """The row of a conversion, whose function checks its arguments."""
    return OpRow(_copy, lambda shape, *given: shape, convert=convert)


OP_ROWS: dict[str, OpRow] = {
    **{name: _view(name) for name in VIEWS},
    "reshape": OpRow(Layout.reshape, _check_reshape, reshapes=True),
    RESHAPE_VIEW: OpRow(_must_view, _check_reshape, reshapes=True),
    "copy": OpRow(_copy, _kept),
    "contiguous": OpRow(lambda layout: layout if layout.contiguous_bytes else None, _kept),
    "cast": _conversion(cast_step),
    "dequantize": _conversion(dequantize_step),
    "quantize": _conversion(quantize_step),
}
