"""A Program on many tensors: all are checked before the first result is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import foreign
from ..dtypes.promotion import AnyDtype
from ..dtypes.table import DType
from ..engine import array_structs, outputs
from ..engine.addresses import layout_of
from ..engine.array_structs import kind_of
from ..engine.execution import Work
from ..engine.routes import ENTRY
from ..planning import thresholds
from ..runtime.kernels import called
from ..runtime.launches import Addresses
from ..runtime.ndarrays import MOST_DIMS
from ..shapes.arithmetic import MAX_SIZE
from ..shapes.layout import Layout
from .bulk_checks import are_alike
from .specialization import Specialization

Groups = Sequence[tuple[Specialization, NDArray[np.intp]]]  # and the indices of arrays, ascending


def wanted_results(groups: Groups) -> list[tuple[AnyDtype, tuple[int, ...]]]:
    """The dtypes and shapes of results: that of all, or one for each."""
    kinds = {special.result: which for special, which in groups}
    if len(kinds) <= 1:
        return [*kinds]
    each = {i: special.result for special, which in groups for i in which.tolist()}
    return [each[i] for i in range(len(each))]


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


def later_map(
    special: Specialization, x: Any, count: int, new: bool
) -> Callable[[tuple[Any, ...], Any], Any] | None:
    """What makes the results of later calls with as many ndarrays like `x`, if anything does.

    It is called with the arrays and an `out` (None if results are `new`), and returns None if an
    array is not like `x`.
    """
    if special.fused.fresh or not new:
        return MapRoute.of(special, x, count, new)
    like, view = (x.dtype, x.shape, x.strides), special.view
    return lambda items, _: list(map(view, items)) if are_alike(items, *like) else None


@dataclass(frozen=True, eq=False, slots=True)
class MapRoute:
    """The kernel that makes the results of a number of ndarrays of one kind, in one launch.

    `kinds` and `alive` contain the addresses of dtypes, and these.
    """

    work: Work
    dtype: np.dtype[Any]
    shape: tuple[int, ...]  # of all results
    kinds: Sequence[Addresses]  # of a source, of a result, and of all results as one array
    span: Addresses  # see `kernels.maps.locate`
    alive: object

    @property
    def weight(self) -> int:
        """A bound on the bytes of its tables."""
        return ENTRY + self.work.weight

    @classmethod
    def of(cls, special: Specialization, x: Any, count: int, new: bool) -> MapRoute | None:
        """The Route into `new` results or outputs, if these take one small launch."""
        shape, one = (count, *special.shape), special.one_pass(new)
        if one is None or not 2 <= len(shape) <= MOST_DIMS or 0 in shape or not x.ndim:
            return None
        made: Any = special.kind
        nbytes, route = prod(special.shape) * made.itemsize, one.route(count, True)
        if count * nbytes >= thresholds.STREAM_FROM or not route.ready:
            return None
        if not array_structs.kernel(array_structs.LOCATE):
            return None
        work = route.work_for(count, fresh=True)
        work = work.with_operands(*one.at) if one.scales is not None else work
        kinds = (
            kind_of(x.dtype, x.shape, x.strides),
            _row_major_kind(made, shape[1:]),
            _row_major_kind(made, shape),
        )
        (low, high), shift = layout_of(x).span, 3 if work.launch.bits else 0
        begins = work.source >> 3 - shift, work.target >> 3 - shift
        span = np.array([low // 8, (high + 7) // 8, nbytes, shift, *begins])
        return cls(work, made, shape, kinds, span, (x.dtype, special))

    def __call__(self, items: tuple[Any, ...], out: Any) -> Any:
        """The results, or `out`; None if an array is unfit, or NumPy does all work."""
        count = len(items)
        rows, fresh = (out, False) if out is not None else outputs.new_array(self.dtype, self.shape)
        slab, addresses = type(rows) is np.ndarray, np.empty((3, count), np.int64)
        outs = rows if slab else tuple(rows)  # another thread may change the list
        if not self.work.kind.ready or (not slab and len(outs) != count):
            return None
        given = count, self.kinds[0], self.kinds[1 + slab], self.span, addresses
        if not called(array_structs.LOCATE)(items, outs, *given):
            return None
        self.work.run(addresses[:2], count, fresh)
        return list(rows) if out is None else out


def _row_major_kind(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Addresses:
    strides = Layout.row_major(shape, dtype.itemsize).strides
    return kind_of(dtype, shape, tuple(strides))
