"""A Program on many tensors: all are checked before the first result is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from math import prod
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
from ..engine.patience import by_numpy
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
    array is not like `x`.
    """
    if special.fused.fresh or not new:
        return MapRoute.of(special, x, count, new)
    like, view = (x.dtype, x.shape, x.strides), special.view
    return lambda items, _: list(map(view, items)) if are_alike(items, *like) else None


@dataclass(frozen=True, eq=False, slots=True)
class MapRoute:
    """How a program makes the results of a number of ndarrays of one kind, known by `like`.

    One launch does it; until its kernel is ready, NumPy does. `kinds` contain the addresses of
    dtypes.
    """

    way: Work | Route
    special: Specialization
    made: np.dtype[Any]
    like: tuple[np.dtype[Any], Ints, Ints]  # dtype, shape, strides
    shape: Ints  # of all results
    kinds: Sequence[Addresses]  # of a source, of a result, and of all results as one array
    span: Addresses  # see `kernels.maps.locate`

    @property
    def weight(self) -> int:
        """A bound on the bytes of its tables."""
        return ENTRY + self.way.weight + self.special.weight

    @classmethod
    def of(cls, special: Specialization, x: Any, count: int, new: bool) -> MapRoute | None:
        """The Route into `new` results or outputs, if one small launch, or NumPy, makes them."""
        shape, one = (count, *special.shape), special.one_pass(new)
        if one is None or not 2 <= len(shape) <= MOST_DIMS or 0 in shape or not x.ndim:
            return None
        made: Any = special.kind
        nbytes = prod(special.shape) * made.itemsize
        way: Work | Route = one.route(count, True)
        # Kernels are looked for by later calls: that would take time of a loader's first batch.
        if isinstance(way, Route) and way.kind and way.kind.ready:
            large = count * nbytes >= thresholds.STREAM_FROM
            if large or not array_structs.kernel(array_structs.LOCATE):
                return None
            way = way.work_for(count, fresh=True)
            way = way.with_operands(*one.at) if one.scales is not None else way
        like = x.dtype, x.shape, x.strides
        kinds = kind_of(*like), _row_major_kind(made, shape[1:]), _row_major_kind(made, shape)
        low, high = layout_of(x).span
        shift, source, target = 0, 0, 0
        if isinstance(way, Work):
            shift = 3 if way.launch.bits else 0
            source, target = way.source >> 3 - shift, way.target >> 3 - shift
        span = np.array([low // 8, (high + 7) // 8, nbytes, shift, source, target])
        return cls(way, special, made, like, shape, kinds, span)

    def __call__(self, items: tuple[Any, ...], out: Any) -> Any:
        """The results, or `out`; None if an array is unfit, or the kernel became ready."""
        way, count = self.way, len(items)
        if isinstance(way, Route):
            changed = way.kind and way.kind.kernels_ready(way.names)
            return None if changed else self._by_numpy(items, out, way)
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

    def _by_numpy(self, items: tuple[Any, ...], out: Any, way: Route) -> Any:
        # Another thread may change the list.
        rows = out if out is None or type(out) is np.ndarray else tuple(out)
        if not are_exact(items) or (rows is not None and not self._may_fill(items, rows)):
            return None
        if rows is None:
            rows, _ = outputs.new_array(self.made, self.shape)
        dtype, shape, strides = self.like
        instead, alone = self.special.by_numpy(items, rows), len(items) <= self.special.stacked
        if alone and type(rows) is np.ndarray:  # NumPy compares dtypes
            alike = [*map(SHAPE, items)].count(shape) == len(items)
        else:
            alike = are_alike(items, dtype, shape, strides)
        if not alike or instead is None:
            return None
        try:
            with by_numpy(*filter(None, (way.kind,))):
                instead()
        except (TypeError, ValueError):
            return None
        return list(rows) if out is None else out

    def _may_fill(self, items: tuple[Any, ...], rows: Any) -> bool:
        """Whether an array of all results, or one for each, shares no memory with the sources."""
        if type(rows) is np.ndarray:
            fits = rows.dtype == self.made and rows.shape == self.shape and rows.flags.carray
            return bool(fits) and not any(map(may_share_memory, items, repeat(rows)))
        alike = len(rows) == len(items) and are_alike(rows, self.made, self.shape[1:])
        return alike and may_fill(items, rows)


def _row_major_kind(dtype: np.dtype[Any], shape: Ints) -> Addresses:
    strides = Layout.row_major(shape, dtype.itemsize).strides
    return kind_of(dtype, shape, tuple(strides))
