"""A Program on many tensors: all are checked before the first result is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import foreign
from ..dtypes.table import DType
from ..engine import array_structs, outputs
from ..engine.addresses import Places, are_alike, layout_of
from ..engine.execution import Work
from ..engine.patience import by_numpy
from ..engine.routes import Route
from ..planning import thresholds
from ..runtime.kernels import called
from ..runtime.launches import Addresses
from ..runtime.ndarrays import MOST_DIMS
from ..shapes.arithmetic import MAX_SIZE
from ..shapes.layout import Layout
from .plain_batches import apart, fillable
from .specialization import Move, Specialization

STACKED_MAX_BYTES = 2 * 1024  # of an array that is copied to a stack before it is moved


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
        if self.targets is not None:
            for special, which in self.groups:
                places = self.sources.begins(which), self.targets.begins(which)
                one = len(self.groups) == 1
                special.fill(*places, *((self.items, self.kept) if one else ()))
            return self.out
        results: list[Any] = [None] * len(self.items)
        for special, which in self.groups:
            own = (self.items[i] for i in which.tolist())
            made = special.results(own, self.sources.begins(which))
            if len(self.groups) == 1:
                return made
            for i, x in zip(which.tolist(), made, strict=True):
                results[i] = x
        return results


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
        made = run(taken, None if out is None else outs, first)
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

    One launch does it; until its kernel is ready, NumPy moves arrays to their results. `kind` is
    that of the sources, as kernels read it; it contains the address of their dtype.
    """

    way: Work | Route
    move: Move | None
    move_all: Move | None  # the same for a stack of small arrays
    like: tuple[np.dtype[Any], tuple[int, ...], tuple[int, ...]]  # dtype, shape, strides
    kind: Addresses
    layout: Layout
    made: np.dtype[Any]
    shape: tuple[int, ...]  # of all results

    @classmethod
    def of(
        cls,
        special: Specialization,
        x: Any,
        count: int,
        new: bool,
        stacked: Callable[[], Specialization] | None,
    ) -> MapRoute | None:
        """The Route into `new` results or outputs, if these take one small launch.

        `stacked` returns what makes the results of a stack of the arrays.
        """
        shape, one = (count, *special.shape), special.one_pass(new)
        made: Any = special.kind
        if not one or not 2 <= len(shape) <= MOST_DIMS or 0 in shape or one.scales is not None:
            return None
        if prod(shape) * made.itemsize >= thresholds.STREAM_FROM:
            return None
        way: Work | Route = one.route(count, True)
        if isinstance(way, Route) and way.ready:
            if array_structs.kernel(array_structs.READ_ALIKE) is None:
                return None
            way = way.work_for(count, fresh=True)
        elif special.one_move is None:
            return None
        like = x.dtype, x.shape, x.strides
        few = isinstance(way, Route) and x.ndim and x.nbytes <= STACKED_MAX_BYTES
        move_all = stacked().one_move if few and stacked else None
        kind = array_structs.kind_of(*like)
        return cls(way, special.one_move, move_all, like, kind, layout_of(x), made, shape)

    def __call__(self, items: tuple[Any, ...], out: Any) -> Any:
        """The results, or `out`; None if an array is unfit, or the way is another now."""
        way, count = self.way, len(items)
        if isinstance(way, Route):
            changed = way.kind and way.kind.kernels_ready(way.names)
            return None if changed else self._by_numpy(items, out, way)
        places, read = np.empty((2, count), np.int64), called(array_structs.READ_ALIKE)
        if not way.kind.ready or read(items, count, self.kind, 0, places[0]) < count:
            return None
        if out is None:
            slab, fresh = outputs.new_array(self.made, self.shape)
            begin, row = slab.__array_interface__["data"][0], slab.strides[0]
            places[1] = np.arange(begin, begin + row * count, row)
            places <<= 3
        else:
            names, fresh, whole = range(count), False, type(out) is np.ndarray
            targets, _ = outputs.given(out, [(self.made, self.shape[1:])], names)
            places <<= 3
            places[1] = targets.addresses
            sources = Places.alike(places[0], self.layout)
            outputs.check_places_apart(sources, targets, whole, names)
        places += [[way.source], [way.target]]
        if not way.launch.bits:
            places >>= 3
        way.run(places, count, fresh)
        return list(slab) if out is None else out

    def _by_numpy(self, items: tuple[Any, ...], out: Any, way: Route) -> Any:
        if not are_alike(items, *self.like):
            return None
        rows = out
        if out is None:
            rows, _ = outputs.new_array(self.made, self.shape)
        else:
            slab = type(out) is np.ndarray
            outs, shape = ([out], self.shape) if slab else (out, self.shape[1:])
            if not (slab or len(out) == len(items)) or not fillable(outs):
                return None
            if {(x.dtype, x.shape) for x in outs} != {(self.made, shape)} or not apart(items, outs):
                return None
        with by_numpy(*filter(None, (way.kind,))):
            if self.move_all and type(rows) is np.ndarray:
                dtype, (rest, *others), _ = self.like
                stack = np.empty((len(items) * rest, *others), dtype)  # else its order is theirs
                np.concatenate(items, out=stack)  # a sixth of the time of a loop
                self.move_all(stack.reshape(len(items), rest, *others), rows)
            elif self.move:
                for x, into in zip(items, rows, strict=True):
                    self.move(x, into)
        return list(rows) if out is None else out
