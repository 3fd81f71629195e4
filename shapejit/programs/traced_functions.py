"""TracedFunction: what a Program does, as a value: its source's shape and dtype, its operations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any, Self

import numpy as np

from ..arrays.tensor import Tensor, fixed_width
from ..dtypes.promotion import AnyDtype
from ..dtypes.table import DType
from ..engine.routes import FOUND
from ..engine.small_calls import Routes
from ..errors import DTypeError, FormatError, ReshapeError, shape_text
from ..planning.cast_plans import CastPlan
from ..planning.plans import Plan
from ..shapes.layout import Layout, checked_shape
from .fuse import Route
from .ops import Op, batched, checked_ops
from .sources import fits, free_text
from .specialization import Specialization
from .text import described
from .trace import traced

ROUTES_OF_SMALL_CALLS = 16  # slots for kinds of arrays with Routes in compiled code


@dataclass(frozen=True)
class TracedFunction:
    """What a Program does: the shape and dtype of its source, and the operations.

    If dim 0 of the source has any length, `fn` is traced for each new one.
    """

    source_shape: tuple[Any, ...]
    dtype: DType
    ops: tuple[Op, ...] = ()
    fn: Callable[[Tensor], Tensor] | None = None
    _shape: tuple[int, ...] = field(init=False, compare=False, repr=False)
    _result_dtype: DType = field(init=False, compare=False, repr=False)
    # The start of the keys under which the one cache, FOUND, has what this program needs again.
    _key: object = field(init=False, compare=False, repr=False)
    _small: Routes = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        # A Program may come from a pickle: operations that leave their source are refused.
        free = self.fn is not None
        given = self.source_shape
        if free:
            if (
                type(given) is not tuple
                or given[:1] != (None,)
                or self.ops
                or not callable(self.fn)
            ):
                raise FormatError("a free dim 0 needs the shape (None, ...), a function and no ops")
            given = given[1:]
        shape = checked_shape(given, "the source shape", "Program")
        dtype, fill = fixed_width(self.dtype), object.__setattr__
        fill(self, "source_shape", (None, *shape) if free else shape)
        fill(self, "dtype", dtype)
        fill(self, "_key", object())
        fill(self, "_small", Routes(ROUTES_OF_SMALL_CALLS))
        made = ((), dtype) if free else checked_ops(self.ops, shape, dtype)
        fill(self, "_shape", made[0])
        fill(self, "_result_dtype", made[1])
        if not free:
            self._route()  # raises for a view that does not exist

    @property
    def free_dims(self) -> tuple[int, ...]:
        """The dims of the source that may have any length: (0,) or ().

        >>> from shapejit import plan
        >>> plan((None, 2), "uint8", lambda t: t.T).free_dims
        (0,)
        """
        return () if self.fn is None else (0,)

    def of(self, length: int) -> Self:
        """The Program for one length of dim 0 (elements). Raises ReshapeError if it has another.

        >>> from shapejit import plan
        >>> plan((None, 2), "uint8", lambda t: t.T).of(5).shape
        (2, 5)
        """
        if self.fn is None:
            if self.source_shape[:1] != (length,):
                raise ReshapeError(f"the program is of shape {shape_text(self.source_shape)}")
            return self
        key = self._key, length
        program: Self | None = FOUND.get(key)
        if program is None:
            shape = (length, *self.source_shape[1:])
            program = type(self)(shape, self.dtype, traced(self.fn, shape, self.dtype))
            FOUND.put(key, program)
        return program

    def fitted(self, shape: tuple[int, ...]) -> Self | None:
        """The Program for arrays of `shape`, or None. Raises what the traced function raises.

        >>> from shapejit import plan
        >>> rows = plan((None, 2), "uint8", lambda t: t.T)
        >>> rows.fitted((5, 2)).shape, rows.fitted((5, 3))
        ((2, 5), None)
        """
        if self.fn is None:
            return self if shape == self.source_shape else None
        return self.of(shape[0]) if fits(shape, self.source_shape) else None

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the dims of a result, in elements.

        >>> from shapejit import plan
        >>> plan((3, 5), "uint4", lambda t: t.T).shape
        (5, 3)
        """
        self._check_fixed()
        return self._shape

    @property
    def result_dtype(self) -> DType:
        """The dtype of a result.

        >>> from shapejit import plan
        >>> plan((3, 5), "uint4", lambda t: t.cast("int8")).result_dtype
        shapejit.dtype('int8')
        """
        self._check_fixed()
        return self._result_dtype

    @property
    def nbytes(self) -> int:
        """Bytes of one result, packed.

        >>> from shapejit import plan
        >>> plan((3, 5), "uint4", lambda t: t.T).nbytes
        8
        """
        return self.result_dtype.nbytes(prod(self.shape))

    @property
    def is_view(self) -> bool:
        """Whether the result of a row-major tensor is a view of it.

        >>> from shapejit import plan
        >>> plan((3, 5), "uint4", lambda t: t.T.reshape((15,))).is_view
        False
        """
        return not self._route().fresh

    @property
    def steps(self) -> tuple[Plan | CastPlan, ...]:
        """The copies of a row-major tensor, in order, as the planner sees them.

        >>> from shapejit import plan
        >>> plan((3, 5), "uint4", lambda t: t.T).steps
        ()
        """
        return tuple(step.plan for step in self._route().copies)

    def __str__(self) -> str:
        if self.fn is not None:
            return f"{free_text(self.source_shape)} {self.dtype}: traced for each n"
        return described(
            (self.source_shape, self.dtype), (self.shape, self.result_dtype), self._route()
        )

    def __dask_tokenize__(self) -> tuple[object, ...]:
        # What is found as the program runs makes no other tasks of it.
        return self.source_shape, self.dtype.name, self.ops, self.fn

    def _specialized(self, layout: Layout, as_tensors: bool) -> Specialization:
        """The Specialization for Tensors, or ndarrays, of this Layout."""
        key = self._key, layout, as_tensors
        special: Specialization | None = FOUND.get(key)
        if special is None:
            result = self._shape, self._kind(as_tensors)
            special = Specialization(self.ops, layout, self.dtype, *result)
            FOUND.put(key, special)
        return special

    def _kind(self, as_tensors: bool) -> AnyDtype:
        """The dtype of the results: a DType for Tensors, NumPy's for ndarrays."""
        made = self._result_dtype
        if as_tensors:
            return made
        if made.numpy is None and made is not self.dtype:
            raise DTypeError(f"NumPy has no {made}: pass Tensors, shapejit.asarray(x)")
        # No ndarray has a dtype that NumPy lacks: a check raises for the first one.
        return np.dtype(np.void) if made.numpy is None else made.numpy

    def _route(self) -> Route:
        """The Route of a row-major source."""
        self._check_fixed()
        return self._specialized(Layout.row_major(self.source_shape, self.dtype.bits), True).route

    def _of_stacks(self, count: int) -> Self:
        """The Program for stacks of `count` tensors."""
        key = self._key, count
        program: Self | None = FOUND.get(key)
        if program is None:
            shape = count, *self.source_shape
            program = type(self)(shape, self.dtype, batched(self.ops, count))
            FOUND.put(key, program)
        return program

    def _check_fixed(self) -> None:
        """Raise if dim 0 is free, for a fact that depends on its length."""
        if self.fn is not None:
            text = free_text(self.source_shape)
            raise ReshapeError(f"what a program of shape {text} makes depends on n: ask its of(n)")
