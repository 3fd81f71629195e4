"""What a traced function comes to on tensors that all lie alike: calls of NumPy, or Plans."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import engine, planner, roster, tiling
from .dtypes import DType
from .engine import Addresses
from .fusion import CONTIGUOUS, COPY, Op, route
from .kernels import MAX_RANK
from .layout import Layout
from .lazy import cached_property
from .planner import Plan
from .tensor import Bytes, Tensor
from .tiling import Strategy

PARCEL = 128 * 1024  # bytes of a tensor that is still moved whole by one thread
VECTORS = (Strategy.INTERLEAVE, Strategy.PICK, Strategy.TURN)  # parcels take single elements
FEW_ELEMENTS = 1024  # bytes of those that are as fast as a plan's first vectors
SCRATCH = 4 * 1024 * 1024  # bytes between two copies of many tensors: they stay in a cache

_scratch = threading.local()


class Quick(NamedTuple):
    """A call of a kernel that does everything if both arrays are as its `card` says."""

    fill: Callable[[int, int, Addresses], bool]
    card: Addresses
    dtypes: tuple[np.dtype[Any], ...]  # the kernel knows them by their address


class Way:
    """Operations on sources of one Layout (`bits` an element, strides from the first one).

    Its memory is that of an ndarray or, of packed elements, of a Tensor's buffer.
    """

    def __init__(self, ops: Sequence[Op], source: Layout) -> None:
        self.ops = ops
        self.source = source
        self.route = route(ops, source)

    @cached_property
    def copies(self) -> tuple[Plan, ...]:
        """The copies of a call without out=."""
        return tuple(_compiled(layout) for layout in self.route.copies)

    @cached_property
    def fills(self) -> tuple[Plan, ...]:
        """The copies of a call with out=."""
        return tuple(_compiled(layout) for layout in self.route.fills)

    @cached_property
    def small(self) -> bool:
        """Whether NumPy's own calls are faster than compiled ones."""
        few = planner.NUMPY_BELOW
        plans = [planner.plan(layout, layout.bits) for layout in self.route.fills]
        return all(
            made.strategy in (Strategy.NUMPY, Strategy.NOTHING)
            or (made.strategy is Strategy.ONE_RUN and made.nbytes < few)
            for made in plans
        )

    @cached_property
    def parcel(self) -> Addresses | None:
        """How a kernel moves such a tensor whole, from its first element; None: by Plans."""
        if len(self.route.fills) != 1:
            return None
        (layout,) = self.route.fills
        if layout.bits % 8 or not 0 < _nbytes(layout) <= PARCEL:
            return None
        kernels = roster.parcels()
        rank = len(layout.shape)
        sizes = np.array(layout.shape, np.int64)
        strides = np.array([stride // 8 for stride in layout.strides], np.int64)
        table = np.empty(kernels.HEAD + 3 * rank, np.int64)
        kept = kernels.merged(sizes, strides, rank)
        facts = sizes, strides, kept, layout.bits // 8, table, 0
        table = table[: kernels.parcel(*facts)]
        table[[kernels.SHIFT, kernels.NEAR]] += layout.offset // 8
        return table

    def quick(self, x: NDArray[Any], out: NDArray[Any], patient: bool) -> Quick | None:
        """How calls with arrays like these go straight to a kernel, if they may.

        Their headers are compared with these ones' there. numba is only imported
        for the sake of whoever was `patient`.
        """
        kernels = roster.headers(roster.FEW if patient else 1)
        if kernels is None or self.parcel is None:
            return None
        if not self.small and _compiled(self.route.fills[0]).strategy in VECTORS:
            return None
        (low,), (high,) = roster.spans(np.zeros(1, np.int64), x.shape, x.strides, x.itemsize)
        facts = [kernels.facts_of(a.dtype, a.shape, a.strides) for a in (x, out)]
        card = kernels.card_of(*facts, self.parcel, low, high, out.nbytes)
        done = kernels.fill(id(x), id(out), card)
        return Quick(kernels.fill, card, (x.dtype, out.dtype)) if done else None

    @cached_property
    def _calls(self) -> tuple[Callable[[NDArray[Any]], NDArray[Any]], ...]:
        return tuple(map(_numpys, self.ops))

    def by_numpy(self, x: NDArray[Any]) -> NDArray[Any]:
        """The result as NumPy's own methods make it, step by step."""
        for call in self._calls:
            x = call(x)
        return x

    def array(self, x: NDArray[Any], out: NDArray[Any] | None) -> NDArray[Any]:
        """The result for an ndarray, in `out` if there is one."""
        if (out is None and not self.route.fresh) or self.small:
            made = self.by_numpy(x)
            if out is None:
                return made
            out[...] = made
            return out
        if out is not None:
            run(self.fills, x, out, fresh=False)
            return out
        memory = np.empty(self.copies[-1].nbytes, np.uint8)
        run(self.copies, x, memory, fresh=True)
        return self.result(memory, x.dtype)

    def result(self, memory: Bytes, dtype: np.dtype[Any]) -> NDArray[Any]:
        """The ndarray whose last copy `memory` is."""
        view = self.route.view
        if view is None:
            return memory.view(dtype).reshape(self.route.shape)
        strides = tuple(stride // 8 for stride in view.strides)
        made: NDArray[Any] = np.ndarray(view.shape, dtype, memory.data, view.offset // 8, strides)
        made.flags.writeable = not self.route.locked
        return made

    def new(self, arrays: Sequence[NDArray[Any]], addresses: Addresses) -> list[NDArray[Any]]:
        """The results for ndarrays of such strides: views of them, or rows of one new slab."""
        if not self.route.fresh:
            return [self.by_numpy(x) for x in arrays]
        count, dtype = len(arrays), arrays[0].dtype
        if self.route.view is None and len(self.route.shape) < MAX_RANK:
            slab = np.empty((count, *self.route.shape), dtype)
            made = list(slab) if self.route.shape else [slab[i, ...] for i in range(count)]
        else:
            slab = np.empty((count, _nbytes(self.route.copies[-1])), np.uint8)
            made = [self.result(row, dtype) for row in slab]
        each = slab.nbytes // count
        targets = engine.address_of(slab) + each * np.arange(count)
        self._all(addresses, targets, self.route.copies, fresh=True)
        return made

    def fill(self, sources: Addresses, targets: Addresses) -> None:
        """The result for every source in the memory at the target of the same index."""
        self._all(sources, targets, self.route.fills, fresh=False)

    def packed(self, source: Bytes, out: Tensor) -> None:
        """The result for packed elements in `out`, which starts on a byte."""
        run(self.fills, source, _bytes(out), fresh=False)

    def packed_new(self, source: Bytes, dtype: DType) -> Tensor:
        """The result for packed elements in new memory."""
        memory = np.empty(self.copies[-1].nbytes, np.uint8)
        run(self.copies, source, memory, fresh=True)
        return self._packed(memory, dtype)

    def new_packed(self, sources: Addresses, dtype: DType) -> list[Tensor]:
        """The results for packed tensors whose Layout begins in these bytes: rows of a new slab."""
        slab = np.empty((len(sources), _nbytes(self.route.copies[-1])), np.uint8)
        targets = engine.address_of(slab) + slab.shape[1] * np.arange(len(slab))
        self._all(sources, targets, self.route.copies, fresh=True)
        return [self._packed(row, dtype) for row in slab]

    def _packed(self, memory: Bytes, dtype: DType) -> Tensor:
        view = self.route.view
        row = Layout.row_major(self.route.shape, dtype.bits)
        made = Tensor(memory, dtype, row if view is None else view)
        return made.locked() if self.route.locked else made

    def fill_bits(self, sources: Addresses, targets: Addresses, bits: Addresses | None) -> None:
        """`fill` for packed tensors: at `bits` of bytes that others share, if there are any."""
        if bits is None:
            self._all(sources, targets, self.route.fills, fresh=False)
            return
        for bit in np.unique(bits).tolist():
            lot = bits == bit
            self._all(sources[lot], targets[lot], self.route.fills, fresh=False, bit=bit)

    def _all(
        self,
        sources: Addresses,
        targets: Addresses,
        steps: Sequence[Layout],
        fresh: bool,
        bit: int | None = None,
    ) -> None:
        """`steps` from every source to its target: one launch, or one a step of so many.

        With `bit` the targets begin there in bytes that others share.
        """
        count = len(sources)
        if len(steps) == 1:
            self._each(sources, targets, steps[0], fresh, bit)
            return
        most = max(_nbytes(step) for step in steps[:-1])
        chunk = max(1, min(count, SCRATCH // max(most, 1)))
        pool = [scratch(k, chunk * most) for k in range(min(2, len(steps) - 1))]
        rows = [engine.address_of(memory) + most * np.arange(chunk) for memory in pool]
        for start in range(0, count, chunk):
            come = sources[start : start + chunk]
            for k, step in enumerate(steps):
                last = k == len(steps) - 1
                to = targets[start : start + chunk] if last else rows[k % 2][: len(come)]
                self._each(come, to, step, fresh and last, bit if last else None)
                come = to

    def _each(
        self,
        sources: Addresses,
        targets: Addresses,
        step: Layout,
        fresh: bool,
        bit: int | None = None,
    ) -> None:
        nbytes, into = _nbytes(step), None
        if bit is not None:
            into = replace(Layout.row_major(step.shape, step.bits), offset=bit)
        made = plan_of_many(step, len(sources), into)
        whole = nbytes <= FEW_ELEMENTS or made.strategy not in VECTORS
        if whole and self.parcel is not None and step == self.route.fills[0]:
            facts = np.array([nbytes]), self.parcel, np.zeros(1, np.int64)
            engine.deliver(sources, targets, *facts, fresh=fresh)
        else:
            engine.run_each(made, sources, targets, fresh)


def _numpys(op: Op) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """An operation as a call of NumPy."""
    name, given = op
    match name:
        case "permute":
            return operator.methodcaller("transpose", *given)
        case "flip":
            axes = given[0]
            turned = (slice(None, None, -1 if i in axes else 1) for i in range(max(axes) + 1))
            return operator.itemgetter(tuple(turned))
        case "narrow":
            axis, start, size, step = given
            stop = start + size * step
            kept = slice(start, stop if stop >= 0 else None, step) if size else slice(0)
            return operator.itemgetter((slice(None),) * axis + (kept,))
        case "select":
            axis, index = given
            # The Ellipsis makes an array of the last dim, too.
            return operator.itemgetter((slice(None),) * axis + (index, Ellipsis))
        case "broadcast_to":
            return partial(np.broadcast_to, shape=given[0])
    if op in (COPY, CONTIGUOUS):
        return partial(np.array, order="C", copy=True if op == COPY else None)
    return operator.methodcaller("reshape", *given)


def _compiled(layout: Layout, total: int = 0, into: Layout | None = None) -> Plan:
    """A plan that is not NumPy's, for `total` bytes in one launch."""
    return planner.plan(layout, layout.bits, into, max(total, planner.NUMPY_BELOW * tiling.PIECE))


def plan_of_many(layout: Layout, count: int, into: Layout | None = None) -> Plan:
    """A compiled plan of so many tensors in one launch.

    Their bytes are rounded, or each number of tensors would have a plan of its own.
    """
    return _compiled(layout, 1 << (count * _nbytes(layout)).bit_length() >> 1, into)


def run(plans: Sequence[Plan], source: NDArray[Any], target: NDArray[Any], fresh: bool) -> None:
    """Copies one after the other, all but the last through scratch memory."""
    for k, made in enumerate(plans):
        last = k == len(plans) - 1
        into = target if last else scratch(k % 2, made.nbytes)
        engine.run(made, source, into, fresh=fresh and last)
        source = into


def scratch(which: int, nbytes: int) -> Bytes:
    """Memory of this thread's own, of which it keeps no more than `SCRATCH`."""
    pool: dict[int, Bytes] = _scratch.__dict__.setdefault("pool", {})
    have = pool.get(which)
    if have is None or have.size < nbytes:
        have = np.empty(nbytes, np.uint8)
        if nbytes <= SCRATCH:
            pool[which] = have
    return have[:nbytes]


def _bytes(t: Tensor) -> Bytes:
    first = t.offset // 8
    return t.buffer[first : first + t.nbytes]


def _nbytes(layout: Layout) -> int:
    return (layout.size * layout.bits + 7) // 8
