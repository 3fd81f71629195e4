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
from ..engine.addresses import Places, read_alike
from ..engine.execution import Work
from ..planning import thresholds
from ..runtime.kernels import called
from ..runtime.launches import Addresses
from ..runtime.ndarrays import MOST_DIMS
from ..shapes.arithmetic import MAX_SIZE
from .specialization import Specialization


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


def views(see: Callable[[Any], Any], items: tuple[Any, ...]) -> list[Any] | None:
    """What `see` makes of ndarrays of one kind; None if these are not all like the first."""
    x = items[0]
    _, like = read_alike(items, x.dtype, x.shape, x.strides)
    return list(map(see, items)) if like == len(items) else None


class MapRoute(NamedTuple):
    """The launch of a program for a number of ndarrays of one kind, into the rows of one slab.

    `kind` is that of the sources, as kernels read it; it contains the address of `dtype`.
    """

    work: Work
    kind: Addresses
    dtype: np.dtype[Any]
    made: np.dtype[Any]
    shape: tuple[int, ...]  # of the slab

    @classmethod
    def of(cls, special: Specialization, x: Any, count: int) -> MapRoute | None:
        """The Route for as many ndarrays like `x`, if new results take one small launch."""
        shape, one = (count, *special.shape), special.one_pass(True)
        made: Any = special.kind
        if not one or not 2 <= len(shape) <= MOST_DIMS:
            return None
        if prod(shape) * made.itemsize >= thresholds.STREAM_FROM:
            return None
        work = one.work(count)
        if work is None or array_structs.kernel(array_structs.READ_ALIKE) is None:
            return None
        return cls(work, array_structs.kind_of(x.dtype, x.shape, x.strides), x.dtype, made, shape)

    def __call__(self, items: tuple[Any, ...]) -> list[Any] | None:
        """The results; None if an item is of another kind, or kernels are not to run."""
        places = np.empty((2, len(items)), np.int64)
        read = called(array_structs.READ_ALIKE)
        count = len(items)
        if not self.work.kind.ready or read(items, count, self.kind, 0, places[0]) < count:
            return None
        slab, fresh = outputs.new_array(self.made, self.shape)
        begin, row = slab.__array_interface__["data"][0], slab.strides[0]
        places[1] = np.arange(begin, begin + row * count, row)
        places <<= 3
        places += [[self.work.source], [self.work.target]]
        if not self.work.launch.bits:
            places >>= 3
        self.work.run(places, count, fresh)
        return list(slab)
