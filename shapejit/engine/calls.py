"""Calls that were made before: later ones with an equal key need no checks of their arguments."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.tensor import Tensor
from ..dtypes.promotion import AnyDtype
from ..dtypes.table import DType
from ..planning import thresholds
from ..runtime import result_memory
from ..runtime.cpu_caches import PAGE
from ..runtime.launches import SHARE, Addresses, run_launch
from ..shapes.layout import Layout
from . import small_calls
from .addresses import layout_of
from .execution import COPY_EACH, Work
from .patience import now, spent
from .routes import ENTRY, FOUND, Move, Route
from .small_calls import KNOWN, ROUTE_BYTES, TABLE, SmallRoute, small_route

Way = tuple[Work | Route | None, object]


@dataclass(frozen=True, eq=False, slots=True)
class CheckedCall:
    """A call whose arguments need no checks; the result has a `dtype` and a row-major `layout`.

    `ways` are that into memory that was used before, and that into fresh memory: the kernel, or the
    Route whose kernel is not ready, for which NumPy `moves` the arrays; and what owns the memory
    that it reads beside arrays. The elements are at `seen`, counted from the data pointer of the
    source; `source` is the number of bits to the place that offsets count from. `small`, which is
    filled later, are the ways that compiled code runs by itself.
    """

    ways: tuple[Way, Way]
    move: Move
    seen: Layout
    source: int
    dtype: AnyDtype
    layout: Layout
    nbytes: int
    asked: object
    small: list[SmallRoute | None] = field(default_factory=lambda: [None, None])

    @property
    def weight(self) -> int:
        """A bound on the bytes of its tables."""
        found = {way for way, _ in self.ways if way}
        stage = 3 * PAGE if self.nbytes >= result_memory.FROM else 0  # of a Route's own
        return ENTRY + sum(way.weight for way in found) + 2 * ROUTE_BYTES + stage

    def __call__(self, x: Any, out: Any) -> Any:
        """The result, as `out` or new; None if `out` does not fit, or the kernel became ready."""
        kind: Any = self.dtype
        target, row = out, type(kind) is DType and kind
        if row:
            x = x.buffer
            if out is not None:
                if type(out) is not Tensor or out.dtype is not row or out.layout != self.layout:
                    return None
                target = out.buffer
        small = self.small[out is None]
        done = None if small is None else small_calls.run_found(x, target, small.words, TABLE)
        if done is None:
            done = self._run(x, target)
        if done is None or not row:
            return done
        return Tensor.unchecked(done, row, self.layout) if out is None else out

    def _run(self, x: NDArray[Any], out: Any) -> Any:
        """The same of ndarrays (of Tensors, their bytes), by a kernel on threads, or by NumPy."""
        kind, shape, made, fresh = self.dtype, self.layout.shape, out, out is None
        if isinstance(kind, DType):
            kind, shape = _BYTE, (self.nbytes,)
        large = self.nbytes >= result_memory.FROM
        if fresh:
            # `new_array`, inlined without checks: it is a large part of a short call.
            memory, fresh = (large and result_memory.kept().take(self.nbytes)) or (None, True)
            new = memory is None  # np.empty takes half of the time
            made = np.empty(shape, kind) if new else np.ndarray(shape, kind, memory)
            if kind is _BYTE:
                made[-1] = 0  # packed elements may leave bits of the last byte
            small = self.small[False]
            if large and small is not None:
                done = small_calls.run_found(x, made, small.words, TABLE)
                if done is not None:
                    return done
        elif not (
            type(made) is np.ndarray
            and made.dtype is kind
            and made.shape == shape
            and made.flags.carray
            and not np.may_share_memory(x, made)
        ):
            return None
        way, _ = self.ways[fresh]
        if not isinstance(way, Work):
            if way is None or (way.kind and way.kind.kernels_ready(way.names)):
                return None
            start = now()
            self.move(x, made, self.source)
            spent(start, *filter(None, (way.kind,)))
        elif way.kind.ready:
            source = 8 * x.__array_interface__["data"][0] + self.source + way.source
            begin = 8 * made.__array_interface__["data"][0] + way.target
            shift = 0 if way.launch.bits else 3
            places = np.array([[source >> shift], [begin >> shift]], np.int64)
            shares, streamed = max(1, way.nbytes // SHARE), way.streaming and not fresh
            run_launch(way.launch, streamed, places, way.units, way.units, shares, way.depth)
            if shares == 1 and not streamed:
                self._learn(x, made, way, out is None, large)
        else:
            return None
        return made

    def _learn(
        self, x: NDArray[Any], made: NDArray[Any], way: Work, new: bool, large: bool
    ) -> None:
        """Let compiled code do the same, with a `new` result or an `out`, if it can.

        A `large` new one has memory of its own by then, as an `out` has.
        """
        plan: Work | Addresses = way
        at = new and not large
        if self.small[at] is not None or (large and way.launch.stage > PAGE):
            return
        if way.kind is COPY_EACH and not self.source:
            plan = way.launch.arguments[1]  # a small plan, without the rest of the launch
        result = made.dtype if self.ways[True][0] else None  # else new results are views
        small = small_route(x, made, plan, result, self.seen, self.asked, self.source, large)
        self.small[at] = small
        found = small is not None and self.asked is not None and not large
        if found and not isinstance(self.dtype, DType):
            KNOWN.put(x, self.asked, small)


_BYTE = np.dtype(np.uint8)


def key_of(x: Any, *asked: object) -> tuple[object, ...] | None:
    """A key for arrays like this one, and what is asked for; None for objects that are none."""
    if type(x) is np.ndarray:
        return x.dtype, x.shape, x.strides, *asked
    if type(x) is Tensor:
        layout = x.layout
        return x.dtype.name, layout.shape, layout.strides, layout.offset, *asked
    return None


def keep(
    key: object,
    way: Work | Route,
    move: Move,
    x: NDArray[Any] | Tensor,
    made: Any,
    fresh: bool,
    alive: object = None,
    asked: object = None,
    new: bool = True,
) -> None:
    """Let later calls with this key do what was just done to `x`, which became `made`.

    A large result is in `fresh` memory, or not: the kernel may differ. NumPy `moves` arrays until
    the kernel of a Route is ready. `alive` owns what both read beside arrays. Compiled code finds
    small ndarrays by what is `asked`, see `small_calls`. Unless `new`, an `out` must be given.
    """
    if isinstance(x, Tensor):
        seen, source, bits = x.layout, x.layout.offset & ~7, made.dtype.bits
    else:
        seen, source, bits = layout_of(x), 0, 8 * made.itemsize
    before: CheckedCall | None = FOUND.get(key)
    used, untouched = before.ways if before else ((None, None),) * 2
    both = made.nbytes < thresholds.STREAM_FROM  # else the kernel differs
    if new and (fresh or both):
        untouched = way, alive
    if not fresh or both:
        used = way, alive
    layout = Layout.row_major(made.shape, bits)
    done = move, seen, source, made.dtype, layout, made.nbytes, asked
    FOUND.put(key, CheckedCall((used, untouched), *done))


def follow(key: object, x: Any, out: Any) -> Any:
    """The result of what later calls with this key do, as `out` or new; None if there is none."""
    call = FOUND.get(key)
    return None if call is None else call(x, out)
