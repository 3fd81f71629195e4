"""Program: a function of one Tensor, traced once and run on any number of arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from ..arrays import foreign
from ..arrays.foreign import Other, Out
from ..arrays.tensor import Tensor, is_array
from ..dtypes.table import DType
from ..engine import array_structs, outputs, small_calls
from ..engine.addresses import byte_of, located
from ..engine.patience import by_numpy
from ..engine.routes import FOUND
from ..errors import DTypeError, ReshapeError, about
from ..runtime.ndarrays import is_a, is_sequence, unwrapped
from ..shapes.arithmetic import MAX_SIZE
from ..shapes.request import integer
from . import sources
from .columns import map_batches
from .map_routes import MapRoute
from .mapped import Mapped, in_chunks
from .ops import Op
from .specialization import Specialization
from .trace import Traced
from .traced_functions import TracedFunction

CHUNK_MAX_BYTES = 4 * 1024 * 1024  # bytes of a chunk of `imap`, read and written
CHUNK_MAX_TENSORS = 256  # tensors of a chunk


class Program(TracedFunction):
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
        done = small_calls.run(x, out, self._small.table)
        if done is not None:
            return done
        if type(x) is not np.ndarray and foreign.is_foreign(x):
            return foreign.call_with(self, x, out)
        as_tensors = is_a(x, Tensor)
        array: Any = x if type(x) is np.ndarray else unwrapped(x)
        sources.check(array, as_tensors, self.dtype, self.source_shape)
        if self.fn is not None:
            return self.of(array.shape[0])(array, out)
        if isinstance(array, Traced):
            return array.inlined(self.ops, out)
        begin, layout = byte_of(array)
        special = self._specialized(layout, as_tensors)
        if out is not None:
            made = outputs.checked(out, special.kind, self._shape)
            outputs.check_apart(array, made)
            special.into(array, made)
        elif special.route.fresh and not as_tensors and special.small:
            made = special.by_numpy(array)
        else:
            (made,) = special.results((array,), [begin])
        special.remember(self._small, array, made)
        return made if out is None else out

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
        first = tensors[0] if out is None and type(tensors) is list and tensors else None
        if type(first) is np.ndarray:
            kind = first.dtype, first.shape, first.strides
            known: MapRoute | None = FOUND.get((self._key, len(tensors), *kind))
            made = None if known is None else known.results(tuple(tensors))
            if made is not None:
                return made
        if callable(out):
            if self.fn is None:
                return list(self.imap(tensors, out))
            tensors = list(tensors)
            out = [out(i) for i in range(len(tensors))]
        if foreign.is_foreign(tensors):
            return foreign.call_with(self.map, tensors, out)
        if is_array(tensors):
            stack = sources.checked_stack(tensors, self.source_shape)
            if out is None or is_array(out):
                one = self if self.fn is None else self.of(stack.shape[1])
                return one._of_stacks(len(stack))(stack, out)
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
            tensors = sources.rows(sources.checked_stack(tensors, self.source_shape))
        most, ahead = CHUNK_MAX_TENSORS, CHUNK_MAX_BYTES // 2 if self.fn is not None else MAX_SIZE
        if self.fn is None:
            each = self.dtype.nbytes(prod(self.source_shape)) + self.nbytes
            most = max(1, min(CHUNK_MAX_TENSORS, CHUNK_MAX_BYTES // max(each, 1)))
        if chunk is not None:
            most = integer(chunk, "chunk=", "imap")
            if not 1 <= most <= MAX_SIZE:
                fault = f"chunk= must be at least 1, and an int64, not {chunk}"
                raise ReshapeError(fault, asked_by="imap")
            ahead = MAX_SIZE
        return in_chunks(self._map, iter(tensors), out, most, ahead, self.dtype)

    def _map(self, items: Sequence[Any], out: Any, first: int) -> Any:
        """`map` of a sequence; `first` is the index of its first tensor in errors."""
        if items and foreign.is_foreign(items[0]):
            return foreign.call_each(self._map, items, out, first)
        if not items and self.fn is not None:  # the shape of the results is unknown
            if out is None:
                return []
            if not (is_sequence(out) or is_array(out)):
                raise DTypeError(f"out= must be a sequence of arrays, not {type(out).__name__}")
            if len(out):
                raise ReshapeError(f"out= holds {len(out)} arrays for 0 tensors")
            return out
        made = self._by_numpy(items) if out is None else None
        if made is not None:
            return made
        names = range(first, first + len(items))
        job = self.mapped(items, out, names)
        if job.targets is not None:
            outputs.check_places_apart(job.sources, job.targets, is_array(out), names)
        results = job.results()
        if out is None and len(job.groups) == 1:
            self._keep_map(job.items, job.groups[0][0])
        return results

    def _by_numpy(self, items: Sequence[Any]) -> list[Any] | None:
        """The results by NumPy, until kernels that read array structs are ready; None then."""
        read = array_structs.READ_ALIKE
        if {*map(type, items)} != {np.ndarray} or not array_structs.verified():
            return None
        if array_structs.kernel(read) is not None:
            return None
        with by_numpy(array_structs.work_of(read)):
            dtype, shape = items[0].dtype, items[0].shape
            program = self.fitted(shape) if dtype == self.dtype.numpy else None
            if program is None or any(x.dtype is not dtype for x in items):
                return None
            special = program._specialized(byte_of(items[0])[1], False)
            if special.converts or not special.numpys or any(x.shape != shape for x in items):
                return None
            return [special.by_numpy(x) for x in items]

    def _keep_map(self, items: Sequence[Any], special: Specialization) -> None:
        """Keep a MapRoute for later calls with as many arrays like these."""
        x, count = items[0], len(items)
        route = special.map_route(x, count) if count > 1 else None
        if route is not None:
            FOUND.put((self._key, count, x.dtype, x.shape, x.strides), route)

    def map_batches(
        self, batch: Mapping[str, Any], columns: str | Sequence[str] | None = None
    ) -> dict[str, Any]:
        """Apply the program to each row of some columns of a batch, one launch per column.

        `batch` is a dict of ndarrays with rows along dim 0, as Ray Data's `Dataset.map_batches`
        passes it; a column whose rows differ in shape is an object array of ndarrays. `columns`
        names the columns to transform; by default, those whose rows have the program's shape and
        dtype (not object arrays without rows). Other columns are returned unchanged, and `batch` is
        not modified. A new column is an ndarray of shape (rows, *shape), or an object array if
        results differ in shape.
        Raises ReshapeError, DTypeError, UnknownNameError, which name the column.

        >>> import shapejit as sj
        >>> load = sj.plan((2, 2, 3), "uint8", lambda t: t.permute_dims((2, 0, 1)).cast("float32"))
        >>> batch = {"image": np.ones((5, 2, 2, 3), np.uint8), "label": np.arange(5)}
        >>> {name: (x.shape, str(x.dtype)) for name, x in load.map_batches(batch).items()}
        {'image': ((5, 3, 2, 2), 'float32'), 'label': ((5,), 'int64')}
        """
        return map_batches(self, batch, columns)

    def mapped(self, items: Sequence[Any], out: Any, names: Sequence[object]) -> Mapped:
        """A checked call for the named arrays; only overlaps with outputs are not checked yet.

        Raises ReshapeError, DTypeError, which name the array.

        >>> from shapejit import plan
        >>> plan((2,), "int8", lambda t: t).mapped([np.zeros(3, np.int8)], None, ["x"])
        Traceback (most recent call last):
            ...
        shapejit.errors.ReshapeError: tensor 'x': the shape is (3,), the program's (2,)
        """
        # No arrays count as Tensors: NumPy may lack the dtype.
        as_tensors = is_a(items[0], Tensor) if items else not is_a(out, np.ndarray)
        source = as_tensors, self.dtype, self.source_shape
        items, places = located(items, lambda x: sources.check(x, *source), names)
        groups = []
        for layout, which in places.groups():
            with about(f"tensor {names[which[0]]}"):
                program = self if self.fn is None else self.of(layout.shape[0])
                groups.append((program._specialized(layout, as_tensors), which))
        targets = kept = None
        if out is not None:
            kinds = {(special.kind, special.shape) for special, _ in groups}
            wanted = [*(kinds or {(self._kind(as_tensors), self._shape)})]
            if len(kinds) > 1:
                wanted = wanted[:1] * len(items)
                for special, which in groups:
                    for i in which.tolist():
                        wanted[i] = special.kind, special.shape
            targets, kept = outputs.given(out, wanted, names)
        return Mapped(items, places, groups, out, targets, kept)


def _program(
    source_shape: tuple[int | None, ...],
    dtype: DType,
    ops: tuple[Op, ...],
    fn: Callable[[Tensor], Tensor] | None = None,
) -> Program:
    """Unpickle a Program."""
    return Program(source_shape, dtype, ops, fn)


_program.__module__ = "shapejit"  # the module named in pickles
