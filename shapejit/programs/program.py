"""sj.plan: a function of one Tensor, traced once, run on as many as there are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from .. import outputs
from ..arrays import foreign
from ..arrays.foreign import Other, Out
from ..arrays.tensor import Tensor, fixed_width, is_array
from ..dtypes.table import DType
from ..errors import DTypeError, ReshapeError, about
from ..places import located, place_of
from ..planning.cast_plans import CastPlan
from ..planning.plans import Plan
from ..runtime.ndarrays import is_a, unwrapped
from ..runtime.recent import Recent
from ..shapes.arithmetic import MAX_SIZE
from ..shapes.layout import Layout, checked_shape
from ..shapes.request import integers
from . import sources
from .columns import MapsBatches
from .fast_calls import FastCalls
from .fuse import Route
from .mapped import Mapped
from .ops import Op, batched, checked_ops
from .specialization import Specialization
from .text import described
from .trace import Traced

KEPT = 16  # sources of other strides, and lengths of stacks, that a program remembers
AHEAD = 4 * 1024 * 1024  # bytes that `imap` takes from an iterator, and makes, at a time
MOST = 256  # tensors that it takes at a time


@dataclass(frozen=True)
class Program(MapsBatches):
    """A traced function: which operations, in order, it does to one tensor.

    Programs are equal if they do the same operations to the same shape and
    dtype. `source_shape` and `shape` are in elements, `nbytes` is the bytes of
    one result (packed). Made by `planned.plan`; see there.

    >>> from shapejit import plan
    >>> turn = plan((2, 3), "int4", lambda t: t.T)
    >>> turn.shape, turn.dtype, turn.nbytes, turn == plan((2, 3), "int4", lambda t: t.mT)
    ((3, 2), shapejit.dtype('int4'), 3, True)
    >>> turn(np.array([[1, 2, 3], [4, 5, 6]], turn.dtype.numpy))
    array([[1, 4],
           [2, 5],
           [3, 6]], dtype=int4)
    """

    source_shape: tuple[int, ...]
    dtype: DType
    ops: tuple[Op, ...]
    shape: tuple[int, ...] = field(init=False, compare=False)
    result_dtype: DType = field(init=False, compare=False)
    # What is found as the program runs; threads may find the same at once.
    _specializations: Recent[tuple[Layout, bool], Specialization] = field(
        init=False, compare=False, repr=False
    )
    _batched: Recent[int, Program] = field(init=False, compare=False, repr=False)
    _fast: FastCalls = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        # Programs come out of pickles, too: operations that leave their source are refused.
        shape = checked_shape(self.source_shape, "the source shape", "Program")
        dtype, fill = fixed_width(self.dtype), object.__setattr__
        fill(self, "source_shape", shape)
        fill(self, "dtype", dtype)
        made = checked_ops(self.ops, shape, dtype)
        fill(self, "shape", made[0])
        fill(self, "result_dtype", made[1])
        fill(self, "_specializations", Recent(KEPT))
        fill(self, "_batched", Recent(KEPT))
        fill(self, "_fast", FastCalls())
        self._route()  # raises for a view that does not exist

    def __reduce__(self) -> tuple[Any, ...]:
        # The rest is compiled, or soon found again.
        return _program, (self.source_shape, self.dtype, self.ops)

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
        return described(
            (self.source_shape, self.dtype), (self.shape, self.result_dtype), self._route()
        )

    def __dask_tokenize__(self) -> tuple[object, ...]:
        # What is found as the program runs makes no other tasks of it.
        return self.source_shape, self.dtype.name, self.ops

    def fitted(self, shape: tuple[int, ...]) -> Program | None:
        """This program, if it takes arrays of `shape`."""
        return self if shape == self.source_shape else None

    @overload
    def __call__(self, x: NDArray[Any], out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Other, out: None = None) -> Other: ...
    @overload
    def __call__(self, x: Any, out: Out) -> Out: ...

    def __call__(self, x: Any, out: Any = None) -> Any:
        """What the function makes of `x`, an array of the planned shape and dtype.

        `x`, of any strides, is an ndarray, a Tensor or an array that DLPack lends (torch's),
        and the result is of the same kind; without `out` it is a view of `x` where the
        function's own result would be one. `out` (the result's shape and dtype,
        contiguous, apart from `x`) is filled and returned. Raises ReshapeError, DTypeError.

        >>> from shapejit import plan
        >>> columns = plan((2, 3), "float32", lambda t: t.T.reshape((6,)))
        >>> columns(np.arange(6, dtype=np.float32).reshape(2, 3))
        array([0., 3., 1., 4., 2., 5.], dtype=float32)
        """
        if out is not None:
            for fill, key, _ in self._fast.known:
                if fill(x, out, key):
                    return out
        if type(x) is not np.ndarray and foreign.is_foreign(x):
            return foreign.call_with(self, x, out)
        as_tensors = is_a(x, Tensor)
        array: Any = x if type(x) is np.ndarray else unwrapped(x)
        sources.check(array, as_tensors, self.dtype, self.source_shape)
        if isinstance(array, Traced):
            return array.inlined(self.ops, out)
        place, layout = place_of(array)
        special = self._specialized(layout.at(place & 7), as_tensors)
        kind = self._kind(as_tensors)
        if out is None:
            if special.route.fresh and not as_tensors and special.small:
                return special.by_numpy(array)
            return special.results((array,), [place], kind)[0]
        target = outputs.checked(out, kind, self.shape)
        outputs.check_apart(array, target)
        if not as_tensors and self._fast.add(special, array, target):
            return out
        special.into(array, target)
        return out

    @overload
    def map(  # type: ignore[overload-overlap]  # a stack iterates over arrays, too
        self, tensors: NDArray[Any], out: None = None
    ) -> NDArray[Any]: ...
    @overload
    def map(self, tensors: Other, out: None = None) -> Other: ...
    @overload
    def map(self, tensors: Iterable[NDArray[Any]], out: None = None) -> list[NDArray[Any]]: ...
    @overload
    def map(self, tensors: Iterable[Other], out: None = None) -> list[Other]: ...
    @overload
    def map(self, tensors: Any, out: Callable[[int], Out]) -> list[Out]: ...
    @overload
    def map(self, tensors: Any, out: Out) -> Out: ...

    def map(self, tensors: Any, out: Any = None) -> Any:
        """The program of many tensors, in one launch: a list of results.

        `tensors` are arrays as `__call__` takes them, or one array of them stacked along a
        new dim 0, which gives such an array (a view of it where the program is a
        view). `out` is one slab of shape (n, *shape), a sequence of n arrays, or
        a function that gives the array for result i; it is returned, of a
        function a list. New results are rows of one slab: it lives as long as
        any of them. Nothing is written if any tensor or `out` is refused; the
        error names it. (A function is asked as by `imap`: what was moved before
        the tensor that is refused stays moved.)

        >>> from shapejit import plan
        >>> turn = plan((2, 3), "int16", lambda t: t.T.reshape((6,)))
        >>> slab = np.empty((2, 6), np.int16)
        >>> turn.map([np.arange(6, dtype=np.int16).reshape(2, 3)] * 2, out=slab)
        array([[0, 3, 1, 4, 2, 5],
               [0, 3, 1, 4, 2, 5]], dtype=int16)
        """
        if callable(out):
            return list(self.imap(tensors, out))
        if foreign.is_foreign(tensors):
            return foreign.call_with(self.map, tensors, out)
        if is_array(tensors):
            stack = sources.checked_stack(tensors, self.source_shape)
            if out is None or is_array(out):
                return self._of_stacks(len(stack))(stack, out)
            tensors = sources.rows(stack)
        try:
            items = tuple(tensors)
        except NotImplementedError as fault:  # a memoryview of several dims
            raise DTypeError(f"not a sequence of tensors: {fault}") from None
        return self._map(items, out, 0)

    def imap(
        self,
        tensors: Iterable[Any],
        out: Callable[[int], Any] | None = None,
        *,
        chunk: int | None = None,
    ) -> Iterator[Any]:
        """The results of an iterator's tensors, one after the other, with bounded memory.

        `chunk` tensors at a time (if not given, those of about 4 MiB, at most 256)
        are taken and moved in one launch: each in memory of its own, so that an
        iterator that fills the same array again and again needs `chunk=1`.
        `out(i)` gives the array for result i; an array may be given again once the
        result in it was yielded, and a pool of n arrays that waits for one to come
        back needs `chunk` of n at most. Without `out` the results of a chunk are
        rows of one slab.

        >>> from shapejit import plan
        >>> turn = plan((2, 3), "int16", lambda t: t.T)
        >>> ring = [np.empty((3, 2), np.int16) for _ in range(4)]
        >>> tensors = (np.full((2, 3), i, np.int16) for i in range(9))
        >>> sum(int(x.sum()) for x in turn.imap(tensors, lambda i: ring[i % 4]))
        216
        """
        if out is not None and not callable(out):
            raise DTypeError(f"out= must be a function of the index, not {type(out).__name__}")
        if is_array(tensors):
            tensors = sources.rows(sources.checked_stack(tensors, self.source_shape))
        each = self.dtype.nbytes(prod(self.source_shape)) + self.nbytes
        most = max(1, min(MOST, AHEAD // max(each, 1)))
        if chunk is not None:
            (most,) = integers((chunk,), "chunk=", "imap")
            if not 1 <= most <= MAX_SIZE:
                fault = f"chunk= must be at least 1, and an int64, not {chunk}"
                raise ReshapeError(fault, asked_by="imap")
        return self._imap(iter(tensors), out, most)

    def _imap(self, tensors: Iterator[Any], out: Any, most: int) -> Iterator[Any]:
        first = 0
        taken: list[Any] = []
        outs: list[Any] = []
        pending = outputs.Pending()

        def results() -> Any:
            """The results of what was taken, which is forgotten."""
            nonlocal first, taken, outs, pending
            made = self._map(taken, None if out is None else outs, first)
            first, taken, outs, pending = first + len(taken), [], [], outputs.Pending()
            return made

        for x in tensors:
            if out is not None:
                into = out(first + len(taken))
                lent = foreign.native(into)
                if not pending.add(lent):
                    yield from results()
                    pending.add(lent)
                outs.append(into)
            taken.append(x)
            del x  # a source may live no longer than its chunk
            if len(taken) == most:
                yield from results()
        yield from results()

    def _map(self, items: Sequence[Any], out: Any, first: int) -> Any:
        """`map` of a sequence whose first tensor has the number `first`."""
        if items and foreign.is_foreign(items[0]):
            return foreign.call_each(self._map, items, out, first)
        names = range(first, first + len(items))
        job = self.mapped(items, out, names)
        if job.targets is not None:
            outputs.check_places_apart(job.sources, job.targets, is_array(out), names)
        return job.results()

    def mapped(self, items: Sequence[Any], out: Any, names: Sequence[object]) -> Mapped:
        """`map` of the named arrays: all is checked but that arrays and outputs lie apart.

        >>> from shapejit import plan
        >>> plan((2,), "int8", lambda t: t).mapped([np.zeros(3, np.int8)], None, ["x"])
        Traceback (most recent call last):
            ...
        shapejit.errors.ReshapeError: tensor 'x': the shape is (3,), the program's (2,)
        """
        # No arrays are taken for Tensors: NumPy may lack the dtype.
        as_tensors = is_a(items[0], Tensor) if items else not is_a(out, np.ndarray)
        kind, wanted = self._kind(as_tensors), (as_tensors, self.dtype, self.source_shape)
        items, places = located(items, lambda x: sources.check(x, *wanted), names)
        groups = []
        for layout, which in places.groups():
            with about(f"tensor {names[which[0]]}"):
                groups.append((self._specialized(layout, as_tensors), which))
        targets = kept = None
        if out is not None:
            targets, kept = outputs.given(out, kind, self.shape, names)
        return Mapped(items, places, groups, kind, out, targets, kept)

    def _kind(self, as_tensors: bool) -> outputs.Kind:
        """The dtype of the results, as Tensors or as ndarrays have it."""
        made = self.result_dtype
        if as_tensors:
            return made
        if made.numpy is None and made is not self.dtype:
            raise DTypeError(f"NumPy has no {made}: pass Tensors, shapejit.asarray(x)")
        # An ndarray of a dtype that NumPy lacks does not exist: the first one is refused.
        return np.dtype(np.void) if made.numpy is None else made.numpy

    def _specialized(self, layout: Layout, as_tensors: bool) -> Specialization:
        """What the program does to Tensors, or to ndarrays, of this Layout."""
        key = layout, as_tensors
        special = self._specializations.get(key)
        if special is None:
            special = Specialization(self.ops, layout, self.dtype, as_tensors)
            self._specializations.put(key, special)
        return special

    def _route(self) -> Route:
        """How the result of a row-major tensor is made."""
        return self._specialized(Layout.row_major(self.source_shape, self.dtype.bits), True).route

    def _of_stacks(self, count: int) -> Program:
        """The program of stacks of `count` tensors."""
        program = self._batched.get(count)
        if program is None:
            ops = batched(self.ops, self.source_shape, count)
            program = Program((count, *self.source_shape), self.dtype, ops)
            self._batched.put(count, program)
        return program


def _program(source_shape: tuple[int, ...], dtype: DType, ops: tuple[Op, ...]) -> Program:
    """The Program of a pickle."""
    return Program(source_shape, dtype, ops)


_program.__module__ = "shapejit"  # where pickles look for it
