"""A Program on many tensors: all are checked before the first result is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from math import prod
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import foreign
from ..arrays.tensor import is_array
from ..dtypes.promotion import AnyDtype
from ..dtypes.table import DType
from ..engine import array_structs, outputs
from ..engine.addresses import BitAddresses, layout_of
from ..engine.array_structs import kind_of
from ..engine.execution import Work
from ..engine.routes import ENTRY, Route
from ..planning import thresholds
from ..runtime.kernels import called
from ..runtime.launches import Addresses
from ..runtime.ndarrays import MOST_DIMS, may_share_memory
from ..shapes.layout import Layout
from ..shapes.request import Ints
from .bulk_checks import SHAPE, are_alike, are_exact, may_fill
from .sources import rows_of
from .specialization import Specialization

CHUNK_MAX_BYTES = 4 * 1024 * 1024  # bytes of a chunk of `imap`, read and written

_LOCATING = array_structs.work_of(array_structs.LOCATE)

Groups = Sequence[tuple[Specialization, NDArray[np.intp]]]  # and the indices of arrays, ascending


def wanted_results(groups: Groups) -> list[tuple[AnyDtype, Ints]]:
    """The dtypes and shapes of results: that of all, or one for each."""
    kinds = {special.result: which for special, which in groups}
    if len(kinds) <= 1:
        return [*kinds]
    each = {i: special.result for special, which in groups for i in which.tolist()}
    return [each[i] for i in range(len(each))]


def new_results(items: Sequence[Any], sources: BitAddresses, groups: Groups) -> list[Any]:
    """A new array, or a view, for each of `items`, which are at `sources`."""
    results: list[Any] = [None] * len(items)
    for special, which in groups:
        made = special.results(_chosen(items, which), sources.begins(which))
        for i, x in zip(which.tolist(), made, strict=True):
            results[i] = x
    return results


def fill_outs(
    items: Sequence[Any], sources: BitAddresses, groups: Groups, targets: BitAddresses, outs: Any
) -> None:
    """Write the results to `targets`; `outs` are the arrays there, one of all or a list."""
    if is_array(outs) and len(groups) > 1:
        outs = [*rows_of(outs)]
    for special, which in groups:
        begins = sources.begins(which), targets.begins(which)
        special.fill(*begins, _chosen(items, which), _chosen(outs, which))


def _chosen(arrays: Sequence[Any], which: NDArray[np.intp]) -> Sequence[Any]:
    """The arrays with these indices."""
    return arrays if len(which) == len(arrays) else [arrays[i] for i in which.tolist()]


def in_chunks(
    run: Callable[[Sequence[Any], Any, int], Any],
    tensors: Iterator[Any],
    out: Any,
    most: int,
    dtype: DType | None,
) -> Iterator[Any]:
    """Yield the results of `run` (tensors, outputs, index of the first) chunk by chunk.

    A chunk has at most `most` tensors. It ends before an output that overlaps an earlier one of it,
    and, if a `dtype` is given, when its sources have half of `CHUNK_MAX_BYTES`.
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
        if dtype is not None:
            held += dtype.nbytes(prod(getattr(x, "shape", ())))
        del x  # a source may live no longer than its chunk
        if len(taken) == most or held >= CHUNK_MAX_BYTES // 2:
            yield from results()
    yield from results()


def later_map(
    special: Specialization, x: Any, count: int, new: bool
) -> Callable[[tuple[Any, ...], Any], Any] | None:
    """A function that makes the results of later calls with as many ndarrays like `x`, if possible.

    It is called with the arrays and an `out` (None if results are `new`), and returns None if an
    array is not like `x`. What is not a view takes one small launch, or NumPy.
    """
    like, one, shape = (x.dtype, x.shape, x.strides), special.one_pass(new), (count, *special.shape)
    if not special.fused.fresh and new:
        view = special.view
        return lambda items, _: list(map(view, items)) if are_alike(items, *like) else None
    if one is None or not 2 <= len(shape) <= MOST_DIMS or 0 in shape or not x.ndim:
        return None
    made: Any = special.kind
    route, nbytes = one.route(count, True), prod(special.shape) * made.itemsize
    # Kernels are looked for by later calls: that would take time of a loader's first batch.
    if not route.kind.ready:
        return NumpyMap(route, special, made, shape, like)
    if count * nbytes >= thresholds.STREAM_FROM or not array_structs.kernel(array_structs.LOCATE):
        return None
    way = route.work_for(count, fresh=True)
    way = way.with_operands(*one.at) if one.scales is not None else way
    kinds = kind_of(*like), _row_major_kind(made, shape[1:]), _row_major_kind(made, shape)
    (low, high), shift = layout_of(x).span, 3 if way.launch.bits else 0
    begins = way.source >> 3 - shift, way.target >> 3 - shift
    span = np.array([low // 8, (high + 7) // 8, nbytes, shift, *begins])
    return MapRoute(way, special, made, x.dtype, shape, kinds, span)


@dataclass(frozen=True, eq=False, slots=True)
class MapRoute:
    """How a program makes the results of a number of ndarrays of one kind, in one launch.

    `kinds` contain the addresses of dtypes, which `made` and `dtype` keep alive.
    """

    way: Work
    special: Specialization
    made: np.dtype[Any]
    dtype: np.dtype[Any]
    shape: Ints  # of all results
    kinds: Sequence[Addresses]  # of a source, of a result, and of all results as one array
    span: Addresses  # see `kernels.maps.locate`

    @property
    def weight(self) -> int:
        """A bound on the bytes of its tables."""
        return ENTRY + self.way.weight + self.special.weight

    def __call__(self, items: tuple[Any, ...], out: Any) -> Any:
        """The results, or `out`; None if an array is unfit, or NumPy is to do it."""
        way, count = self.way, len(items)
        rows, fresh = (out, False) if out is not None else outputs.new_array(self.made, self.shape)
        slab, addresses = type(rows) is np.ndarray, np.empty((3, count), np.int64)
        outs = rows if slab else tuple(rows)  # another thread may change the list
        if not way.kind.ready or (not slab and len(outs) != count):
            return None
        given = count, self.kinds[0], self.kinds[1 + slab], self.span, addresses
        if not called(array_structs.LOCATE)(items, outs, *given):
            return None
        way.run(addresses[:2], count, fresh)
        return list(rows) if out is None else out


@dataclass(frozen=True, eq=False, slots=True)
class NumpyMap:
    """The same by NumPy, until the kernel of `route` is ready."""

    route: Route
    special: Specialization
    made: np.dtype[Any]
    shape: Ints  # of all results
    like: tuple[Any, ...]  # dtype, shape and strides of a source

    @property
    def weight(self) -> int:
        """A bound on the bytes of its tables."""
        return ENTRY + self.route.weight + self.special.weight

    def __call__(self, items: tuple[Any, ...], out: Any) -> Any:
        """The results, or `out`; None if an array is unfit, or the kernel is ready."""
        kind, made = self.route.kind, self.made
        if (kind.ready or kind.taken >= kind.next_look) and self.route.ready:
            return None
        if not _LOCATING.ready and _LOCATING.taken >= _LOCATING.next_look:
            array_structs.kernel(array_structs.LOCATE)
        start, slab = perf_counter(), out is None or type(out) is np.ndarray
        if slab and len(items) <= self.special.stacked:  # NumPy compares their dtypes
            alike = are_exact(items) and [*map(SHAPE, items)].count(self.like[1]) == len(items)
        else:
            alike = are_alike(items, *self.like)
        rows: Any = out if slab else tuple(out)  # another thread may change the list
        if out is None:
            rows, _ = outputs.new_array(made, self.shape)
        elif slab:
            alike = alike and rows.dtype == made and rows.shape == self.shape
            if alike and not may_fill(items, (rows,)):
                alike = rows.flags.carray and not any(map(may_share_memory, items, repeat(rows)))
        else:
            fits = len(rows) == len(items) and are_alike(rows, made, self.shape[1:])
            alike = alike and fits and may_fill(items, rows)
        instead = self.special.by_numpy(items, rows) if alike else None
        if instead is None:
            return None
        try:
            instead()
        except (TypeError, ValueError):
            return None
        for needed in (kind, _LOCATING):  # both are built in the same time
            needed.taken += perf_counter() - start
        return list(rows) if out is None else out


def _row_major_kind(dtype: np.dtype[Any], shape: Ints) -> Addresses:
    strides = Layout.row_major(shape, dtype.itemsize).strides
    return kind_of(dtype, shape, tuple(strides))
