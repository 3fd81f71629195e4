"""A Program on many tensors: all are checked before the first result is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import foreign
from ..arrays.tensor import is_array
from ..dtypes.table import DType
from ..engine import array_structs, outputs
from ..engine.addresses import Places, layout_of
from ..engine.execution import Work
from ..engine.numpy_fallback import STACK_BYTES
from ..engine.patience import by_numpy
from ..engine.routes import Route
from ..planning import thresholds
from ..runtime.kernel_names import Call
from ..runtime.kernels import called
from ..runtime.launches import Addresses, address_of
from ..runtime.ndarrays import MOST_DIMS
from ..shapes.arithmetic import MAX_SIZE
from ..shapes.layout import Layout
from .bulk_checks import are_alike, are_apart, are_writable
from .sources import rows_of
from .specialization import Specialization

STACKED_MAX_BYTES = 2 * 1024  # of an array that is copied to a stack though NumPy can move it

LOCATE = Call("maps.locate", ("o", "o", "i", *"aaat"), "i", held=True)


class Mapped(NamedTuple):
    """The checked arrays of a call at `sources`, in groups of equal Layouts, and their outputs.

    With an `out` the results begin at `targets`, and `kept` must live until they are filled: a
    sequence may create its arrays on access.
    """

    items: Sequence[Any]
    sources: Places
    groups: Sequence[tuple[Specialization, NDArray[np.intp]]]
    out: Any = None
    targets: Places | None = None
    kept: Any = None

    def results(self) -> Any:
        """The results: a list of new arrays, or `out`."""
        one, rows = len(self.groups) == 1, self.kept
        if not one and is_array(rows):
            rows = [*rows_of(rows)]
        results: list[Any] = [None] * len(self.items)
        for special, which in self.groups:
            own, begins = _chosen(self.items, which), self.sources.begins(which)
            if self.targets is not None:
                into = rows if one else _chosen(rows, which)
                special.fill(begins, self.targets.begins(which), own, into)
                continue
            for i, x in zip(which.tolist(), special.results(own, begins), strict=True):
                results[i] = x
        return results if self.targets is None else self.out


def _chosen(arrays: Sequence[Any], which: NDArray[np.intp]) -> Sequence[Any]:
    """The arrays with these indices, which ascend."""
    return arrays if len(which) == len(arrays) else [arrays[i] for i in which.tolist()]


def in_chunks(
    run: Callable[[Sequence[Any], Any, int], Any],
    tensors: Iterator[Any],
    out: Any,
    most: int,
    ahead: int,
    dtype: DType,
) -> Iterator[Any]:
    """Yield the results of `run` (tensors, outputs, index of the first) chunk by chunk.

    A chunk has at most `most` tensors. It ends when its sources have `ahead` bytes of `dtype`, and
    before an output that overlaps an earlier one of the chunk.
    """
    first = held = 0
    taken: list[Any] = []
    outs: list[Any] = []
    pending = outputs.Pending()

    def results() -> Any:
        """Run the current chunk, and empty it."""
        nonlocal first, held, taken, outs, pending
        made = run(tuple(taken), None if out is None else outs, first)
        first, held, taken = first + len(taken), 0, []
        outs, pending = [], outputs.Pending()
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
        if ahead < MAX_SIZE:
            held += dtype.nbytes(prod(getattr(x, "shape", ())))
        del x  # a source may live no longer than its chunk
        if len(taken) == most or held >= ahead:
            yield from results()
    yield from results()


def views(see: Callable[[Any], Any], items: tuple[Any, ...], _: None) -> list[Any] | None:
    """What `see` makes of ndarrays of one kind; None if these are not all like the first."""
    x = items[0]
    return list(map(see, items)) if are_alike(items, x.dtype, x.shape, x.strides) else None


class MapRoute(NamedTuple):
    """How a program makes the results of a number of ndarrays of one kind, known by `like`.

    One launch does it; until its kernel is ready, NumPy does. `kind` is that of the sources, as
    kernels read it; it contains the address of their dtype. `stacked` returns what makes the
    results of a row-major stack of them.
    """

    way: Work | Route
    special: Specialization
    stacked: Callable[[int], Specialization]
    like: tuple[np.dtype[Any], tuple[int, ...], tuple[int, ...]]  # dtype, shape, strides
    shape: tuple[int, ...]  # of all results
    kinds: Sequence[Addresses]  # of a source, of a result, and of all results as one array
    span: Addresses  # see `kernels.maps.locate`

    @classmethod
    def of(
        cls,
        special: Specialization,
        x: Any,
        count: int,
        new: bool,
        stacked: Callable[[int], Specialization],
    ) -> MapRoute | None:
        """The Route into `new` results or outputs, if these take one small launch, or NumPy."""
        shape, one = (count, *special.shape), special.one_pass(new)
        if one is None or not 2 <= len(shape) <= MOST_DIMS or 0 in shape or not x.ndim:
            return None
        way: Work | Route = one.route(count, True)
        if isinstance(way, Route) and way.ready:
            large = prod(shape) * special.kind.itemsize >= thresholds.STREAM_FROM
            if large or one.scales is not None or not array_structs.kernel(LOCATE):
                return None
            way = way.work_for(count, fresh=True)
        like = x.dtype, x.shape, x.strides
        low, high = layout_of(x).span
        rows = [Layout.row_major(size, 8 * special.kind.itemsize) for size in (shape[1:], shape)]
        kinds = [array_structs.kind_of(*like)]
        for row in rows:
            strides = tuple([stride // 8 for stride in row.strides])
            kinds.append(array_structs.kind_of(special.kind, row.shape, strides))
        span = np.array([low // 8, (high + 7) // 8, rows[0].size * special.kind.itemsize])
        return cls(way, special, stacked, like, shape, kinds, span)

    def __call__(self, items: tuple[Any, ...], out: Any) -> Any:
        """The results, or `out`; None if an array is unfit, or the way is another now."""
        way, count, made = self.way, len(items), self.special.kind
        if isinstance(way, Route):
            changed = way.kind and way.kind.kernels_ready(way.names)
            return None if changed else self._by_numpy(items, out, way)
        rows, fresh = (out, False) if out is not None else outputs.new_array(made, self.shape)
        slab, places = type(rows) is np.ndarray, np.empty((3, count), np.int64)
        if not way.kind.ready or len(rows) != count:
            return None
        given = items, rows if slab else tuple(rows), count, self.kinds[0], self.kinds[1 + slab]
        if not called(LOCATE)(*given, self.span, places):
            return None
        places = places[:2] << 3
        places += [[way.source], [way.target]]
        if not way.launch.bits:
            places >>= 3
        way.run(places, count, fresh)
        return list(rows) if out is None else out

    def _by_numpy(self, items: tuple[Any, ...], out: Any, way: Route) -> Any:
        if not are_alike(items, *self.like):
            return None
        slab, rows, made = type(out) is np.ndarray, out, self.special.kind
        if out is None:
            rows, _ = outputs.new_array(made, self.shape)
        else:
            outs, shape = ([out], self.shape) if slab else (out, self.shape[1:])
            fit = len(out) == len(items) and are_alike(outs, made, shape) and are_writable(outs)
            if not fit or not are_apart(items, outs):
                return None
        with by_numpy(*filter(None, (way.kind,))):
            move, small = self.special.move_each, items[0].nbytes <= STACKED_MAX_BYTES
            if move is None or (small and type(rows) is np.ndarray):
                self._by_stack(items, rows)
            else:
                move(items, rows)
        return list(rows) if out is None else out

    def _by_stack(self, items: tuple[Any, ...], rows: Any) -> None:
        """Copy the arrays to stacks, whose results NumPy makes as those of one array."""
        dtype, shape, _ = self.like
        count = max(1, STACK_BYTES // max(1, prod(shape) * dtype.itemsize))
        for begin in range(0, len(items), count):
            some, into = items[begin : begin + count], rows[begin : begin + count]
            stack = np.empty((len(some) * shape[0], *shape[1:]), dtype)  # else its order is theirs
            np.concatenate(some, out=stack)  # a sixth of the time of a loop
            special, target = self.stacked(len(some)), into
            if type(rows) is not np.ndarray:
                target = np.empty((len(some), *self.shape[1:]), self.special.kind)
            if special.move_each:
                special.move_each((stack.reshape(len(some), *shape),), (target,))
            else:
                special.fill(*(np.array([8 * address_of(x)]) for x in (stack, target)))
            if target is not into:
                for x, made in zip(into, target, strict=True):
                    x[...] = made
