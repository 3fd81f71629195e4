"""plan and Program: a function traced for one shape, or any length of dim 0, run on many."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any, Self, overload

import numpy as np
from numpy.typing import NDArray

from ..arrays import foreign
from ..arrays.foreign import Other, Out
from ..arrays.tensor import Tensor, fixed_width, is_array
from ..dtypes.promotion import AnyDtype
from ..dtypes.table import DType
from ..engine import outputs, small_calls
from ..engine.addresses import byte_of, located
from ..engine.calls import follow, key_of
from ..engine.copying import was_met
from ..engine.routes import FOUND
from ..engine.small_calls import TABLE
from ..errors import DTypeError, FormatError, ReshapeError, about, shape_text
from ..planning.cast_plans import CastPlan
from ..planning.plans import Plan
from ..runtime.ndarrays import is_a, is_sequence, unwrapped
from ..shapes.arithmetic import MAX_SIZE
from ..shapes.layout import Layout, checked_shape
from ..shapes.request import integer
from .columns import map_batches
from .fuse import Fused, fused
from .mapped import CHUNK_MAX_BYTES, fill_outs, in_chunks, later_map, new_results, wanted_results
from .ops import Op, checked_ops
from .sources import check_source, checked_stack, fits, free_text, is_of, rows_of
from .specialization import Specialization
from .trace import Traced, traced

CHUNK_MAX_TENSORS = 256  # tensors of a chunk

_KNOWN_OUTS = np.ndarray, list  # the types of outputs that later calls know


def plan(shape: Sequence[int | None], dtype: object, fn: Callable[[Tensor], Tensor]) -> Program:
    """Trace `fn`, a function of one Tensor of `shape` and `dtype`, into a Program.

    `fn` is called once, with a Tensor that has a shape (in elements) and no data. It may use the
    shape methods of Tensor, shapejit's shape operations (also those of dialects), casts, scales and
    basic slicing; operations that read or join elements, and `out=`, raise TraceError. The Program
    returns views where possible; views are part of the copy, cast or scales beside them.
    If dim 0 is None it may have any length, and `fn` is called for each new one. Raises TraceError,
    ReshapeError, DTypeError, and what `fn` raises.

    >>> print(plan((8, 128, 4, 64), "bfloat16", lambda t: t.permute_dims((0, 2, 1, 3))))
    (8, 128, 4, 64) -> (8, 4, 128, 64) bfloat16: a view, nothing is moved
    >>> heads = plan((128, 128, 256), "bfloat16", lambda t:
    ...     t.reshape((128, 128, 4, 64)).permute_dims((0, 2, 1, 3)).reshape((512, 128, 64)))
    >>> print(heads)
    (128, 128, 256) -> (512, 128, 64) bfloat16: 1 copy, 8388608 bytes read, 8388608 written
    1. scatter: runs in the source's order, to a few places; 128 bytes at a time, 8388608 bytes
      loop 128: source +65536, target +65536 bytes
      column 4: source +128, target +16384 bytes
      row 128: source +512, target +128 bytes
      split over the threads, whole lines streamed past the caches
    """
    kind = fixed_width(dtype)
    if isinstance(shape, tuple | list) and None in shape[1:]:
        raise DTypeError(f"only dim 0 may be None, of any length, not dim 1 or later: {shape}")
    if is_sequence(shape) and next(iter(shape), 0) is None:
        return Program(tuple(shape), kind, fn=fn)
    sizes = checked_shape(shape, "the shape", "plan")
    return Program(sizes, kind, traced(fn, sizes, kind))


plan.__module__ = "shapejit"  # the module named in pickles


@dataclass(frozen=True)
class Program:
    """A traced function: the operations that it does to one tensor. Made by `shapejit.plan`.

    `source_shape` and `shape` are in elements, `nbytes` is the bytes of one result (packed). If dim
    0 of the source is None, it may have any length: `fn` is traced for each new one, and `of`
    returns the Program of one length, which has `shape`, `nbytes` and so on. Programs are equal if
    they do the same operations to the same shape and dtype, or trace the same function.

    >>> from shapejit import plan
    >>> turn = plan((2, 3), "int4", lambda t: t.T)
    >>> turn.shape, turn.dtype, turn.nbytes, turn == plan((2, 3), "int4", lambda t: t.mT)
    ((3, 2), shapejit.dtype('int4'), 3, True)
    >>> turn(np.array([[1, 2, 3], [4, 5, 6]], turn.dtype.numpy))
    array([[1, 4],
           [2, 5],
           [3, 6]], dtype=int4)
    """

    source_shape: tuple[Any, ...]
    dtype: DType
    ops: tuple[Op, ...] = ()
    fn: Callable[[Tensor], Tensor] | None = None
    _shape: tuple[int, ...] = field(init=False, compare=False, repr=False)
    _result_dtype: DType = field(init=False, compare=False, repr=False)
    # The start of the keys under which the one cache, FOUND, has what this program needs again.
    _key: object = field(init=False, compare=False, repr=False)
    _stack_key: object = field(init=False, compare=False, repr=False)  # the same of stacks

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
        dtype = fixed_width(self.dtype)
        made = ((), dtype) if free else checked_ops(self.ops, shape, dtype)
        facts = (None, *shape) if free else shape, dtype, object(), object(), *made
        names = "source_shape", "dtype", "_key", "_stack_key", "_shape", "_result_dtype"
        for name, value in zip(names, facts, strict=True):  # `vars` would make calls slower
            object.__setattr__(self, name, value)
        if not free:
            self._fused()  # raises for a view that does not exist

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
        return not self._fused().fresh

    @property
    def steps(self) -> tuple[Plan | CastPlan, ...]:
        """The copies of a row-major tensor, in order, as Plans.

        >>> from shapejit import plan
        >>> plan((3, 5), "uint4", lambda t: t.T).steps
        ()
        """
        return tuple(step.plan for step in self._fused().copies)

    def __str__(self) -> str:
        if self.fn is not None:
            return f"{free_text(self.source_shape)} {self.dtype}: traced for each n"
        made = self._fused()
        steps = [step.plan for step in made.copies]
        kinds = dict.fromkeys((str(self.dtype), str(self.result_dtype)))
        shapes = f"{shape_text(self.source_shape)} -> {shape_text(self.shape)}"
        head = f"{shapes} {' -> '.join(kinds)}: "
        if not steps:
            return head + "a view, nothing is moved"
        copies = "1 copy" if len(steps) == 1 else f"{len(steps)} copies"
        read = sum((step.layout.size * step.layout.bits + 7) // 8 for step in made.copies)
        written = sum(step.nbytes for step in made.copies)
        head += f"{copies}, {read} bytes read, {written} written"
        if not made.whole:
            head += ", and a view of the last"
        return "\n".join([head, *(f"{i}. {step}" for i, step in enumerate(steps, 1))])

    def __reduce__(self) -> tuple[Any, ...]:
        # The rest is a cache.
        return _program, (self.source_shape, self.dtype, self.ops, self.fn)

    @overload
    def __call__(self, x: NDArray[Any], out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Other, out: None = None) -> Other: ...
    @overload
    def __call__(self, x: Any, out: Out) -> Out: ...

    def __call__(self, x: Any, out: Any = None) -> Any:
        """Apply the function to `x`, an array of the planned shape and dtype.

        `x` (any strides) is an ndarray, a Tensor or an array of a DLPack library (torch's), and the
        result is of the same type; without `out` it is a view of `x` if the function's own result
        would be one. `out` (the result's shape and dtype,
        contiguous, not overlapping `x`) is filled and returned. Raises ReshapeError, DTypeError.

        >>> from shapejit import plan
        >>> columns = plan((2, 3), "float32", lambda t: t.T.reshape((6,)))
        >>> columns(np.arange(6, dtype=np.float32).reshape(2, 3))
        array([0., 3., 1., 4., 2., 5.], dtype=float32)
        """
        done = small_calls.run(x, out, self._key, TABLE, None)
        if done is not None:
            return done
        if type(x) is np.ndarray:
            x = x[...]  # another thread may give `x` another shape
        done = follow(key_of(x, (self._key, out is None)), x, out)
        if done is not None:
            return done
        if type(x) is not np.ndarray and foreign.is_foreign(x):
            return foreign.call_with(self, x, out)
        as_tensors = is_a(x, Tensor)
        array: Any = unwrapped(x)
        check_source(array, as_tensors, self.dtype, self.source_shape)
        if isinstance(array, Traced):
            return array.then(out, *(self if self.fn is None else self.of(len(array))).ops)
        return self._run(array, out, self._key)

    def _run(self, array: Any, out: Any, key: object) -> Any:
        """The result for an array, or a stack of arrays."""
        layout = byte_of(array)[1]
        return self._specialized(layout, isinstance(array, Tensor)).call(array, out, key)

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
        """Apply the function to many tensors in one launch: a list of results.

        `tensors` are arrays as `__call__` takes them, or one array of them stacked along a new dim
        0, whose result is such an array, too (a view if the program is a view). `out` is one slab
        of shape (n, *shape), a sequence of n arrays, or a function that returns the array for
        result i; `out` is returned, or for a function a list. New results are rows of one slab,
        which lives as long as any of them. Nothing is written if a tensor or an `out` does not fit:
        the error names it. (A function is called as by `imap`: results before that tensor are
        written.) If dim 0 is free, each length has a launch, and a function is called for all
        results before anything is written. Raises
        ReshapeError, DTypeError.

        >>> from shapejit import plan
        >>> turn = plan((2, 3), "int16", lambda t: t.T.reshape((6,)))
        >>> slab = np.empty((2, 6), np.int16)
        >>> turn.map([np.arange(6, dtype=np.int16).reshape(2, 3)] * 2, out=slab)
        array([[0, 3, 1, 4, 2, 5],
               [0, 3, 1, 4, 2, 5]], dtype=int16)
        """
        if type(tensors) is list and not callable(out):
            return self._map(tuple(tensors), out, 0)  # another thread may append to the list
        if callable(out):
            if self.fn is None:
                return list(self.imap(tensors, out))
            tensors = list(tensors)
            out = [out(i) for i in range(len(tensors))]
        if foreign.is_foreign(tensors):
            return foreign.call_with(self.map, tensors, out)
        if is_array(tensors):
            stack = checked_stack(tensors, self.source_shape)
            if out is None or is_array(out):
                return self._stack(stack, out)
            tensors = rows_of(stack)
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
        """Yield the results of an iterator's tensors, with bounded memory.

        `chunk` tensors at a time (by default about 4 MiB of them, at most 256) are taken and
        processed in one launch. They must be distinct arrays: an iterator that refills one array
        needs `chunk=1`. `out(i)` returns the array for result i; an array may be returned again
        once its result was yielded, so a pool of n arrays needs `chunk` <= n. Without `out` the
        results of a chunk are rows of one slab. Raises ReshapeError, DTypeError.

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
            tensors = rows_of(checked_stack(tensors, self.source_shape))
        most, lengths = CHUNK_MAX_TENSORS, self.dtype if self.fn is not None else None
        if self.fn is None:
            each = self.dtype.nbytes(prod(self.source_shape)) + self.nbytes
            most = max(1, min(CHUNK_MAX_TENSORS, CHUNK_MAX_BYTES // max(each, 1)))
        if chunk is not None:
            most = integer(chunk, "chunk=", "imap")
            if not 1 <= most <= MAX_SIZE:
                fault = f"chunk= must be at least 1, and an int64, not {chunk}"
                raise ReshapeError(fault, asked_by="imap")
            lengths = None
        return in_chunks(self._map, iter(tensors), out, most, lengths)

    def _stack(self, stack: Any, out: Any) -> Any:
        """`map` of an array of stacked tensors."""
        done = small_calls.run(stack, out, self._stack_key, TABLE, None)
        if done is None:
            done = follow(key_of(stack, (self._stack_key, out is None)), stack, out)
        if done is not None:
            return done
        if not is_of(self.dtype, stack.dtype):
            raise DTypeError(f"the dtype is {stack.dtype}, the program's {self.dtype}")
        return self._run(stack, out, self._stack_key)

    def _map(self, items: Sequence[Any], out: Any, first: int) -> Any:
        """`map` of a sequence; `first` is the index of its first tensor in errors."""
        key: object = None
        x: Any = items[0] if items else None
        if type(x) is np.ndarray:
            key = self._key, len(items), out is None, x.dtype, x.shape, x.strides
            known: Any = FOUND.get(key) if out is None or type(out) in _KNOWN_OUTS else None
            made = None if known is None else known(tuple(items), out)
            if made is not None:
                return made
        if foreign.is_foreign(x):
            return foreign.call_with(self._map, items, out, first)
        if not items and self.fn is not None:  # the shape of the results is unknown
            if out is None:
                return []
            if not (is_sequence(out) or is_array(out)):
                raise DTypeError(f"out= must be a sequence of arrays, not {type(out).__name__}")
            if len(out):
                raise ReshapeError(f"out= holds {len(out)} arrays for 0 tensors")
            return out
        names = range(first, first + len(items))
        # No arrays count as Tensors: NumPy may lack the dtype.
        as_tensors = is_a(x, Tensor) if items else not is_a(out, np.ndarray)
        source = as_tensors, self.dtype, self.source_shape
        items, sources = located(items, lambda x: check_source(x, *source), names)
        groups = []
        for layout, _, which in sources.groups():
            with about(f"tensor {names[which[0]]}"):
                groups.append((self._specialized(layout, as_tensors), which))
        if out is None:
            results: Any = new_results(items, sources, groups)
        else:
            wanted = wanted_results(groups) or [(self._kind(as_tensors), self._shape)]
            targets, outs = outputs.given(out, wanted, names)
            outputs.check_all_apart(sources.spans(), targets.spans(), sources.locate, names)
            fill_outs(items, sources, groups, targets, outs)
            results = out
        if key and len(items) > 1 and len(groups) == 1 and was_met(key):
            later = later_map(groups[0][0], x, len(items), out is None)
            if later is not None:
                FOUND.put(key, later)
        return results

    def map_batches(
        self, batch: Mapping[str, Any], columns: str | Sequence[str] | None = None
    ) -> dict[str, Any]:
        """Apply the program to each row of some columns of a batch, one launch per column.

        `batch` is a dict of ndarrays with rows along dim 0, as Ray Data's `Dataset.map_batches`
        passes it; a column whose rows differ in shape is an object array of ndarrays. `columns`
        names the columns to transform; by default, those whose rows have the program's shape and
        dtype (not object arrays without rows); at least one must. Other columns are returned
        unchanged, and `batch` is not modified. A new column is an ndarray of shape (rows, *shape),
        or an object array if results differ in shape.
        Raises ReshapeError, DTypeError, UnknownNameError, which name the column.

        >>> import shapejit as sj
        >>> load = sj.plan((2, 2, 3), "uint8", lambda t: t.permute_dims((2, 0, 1)).cast("float32"))
        >>> batch = {"image": np.ones((5, 2, 2, 3), np.uint8), "label": np.arange(5)}
        >>> {name: (x.shape, str(x.dtype)) for name, x in load.map_batches(batch).items()}
        {'image': ((5, 3, 2, 2), 'float32'), 'label': ((5,), 'int64')}
        """
        return map_batches(self, batch, columns)

    def __dask_tokenize__(self) -> tuple[object, ...]:
        # What is found as the program runs makes no other tasks of it.
        return self.source_shape, self.dtype.name, self.ops, self.fn

    def _specialized(self, layout: Layout, as_tensors: bool) -> Specialization:
        """The Specialization for Tensors, or ndarrays, of this Layout, or for stacks of them."""
        key = self._key, layout, as_tensors
        special: Specialization | None = FOUND.get(key)
        if special is None:
            stacked = layout.ndim > len(self.source_shape)
            if self.fn is not None:
                return self.of(layout.shape[stacked])._specialized(layout, as_tensors)
            one = layout.select(0, 0) if stacked else layout
            made = fused(self.ops, one, self.dtype, as_tensors)
            if stacked:
                made = made.stacked(layout.shape[0], layout.strides[0])
            of = partial(self._specialized, as_tensors=as_tensors)
            special = Specialization(made, layout, self._kind(as_tensors), of)
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

    def _fused(self) -> Fused:
        """The passes over a row-major source."""
        self._check_fixed()
        return self._specialized(Layout.row_major(self.source_shape, self.dtype.bits), True).fused

    def _check_fixed(self) -> None:
        """Raise if dim 0 is free, since a fact depends on its length."""
        if self.fn is not None:
            text = free_text(self.source_shape)
            raise ReshapeError(f"the result of a program of shape {text} depends on n: use of(n)")


def _program(
    source_shape: tuple[int | None, ...],
    dtype: DType,
    ops: tuple[Op, ...],
    fn: Callable[[Tensor], Tensor] | None = None,
) -> Program:
    """Unpickle a Program."""
    return Program(source_shape, dtype, ops, fn)


_program.__module__ = "shapejit"  # the module named in pickles
