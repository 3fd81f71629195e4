"""Repeated calls: one with the key of an earlier call skips the checks of its arguments."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.tensor import Tensor
from ..dtypes.table import DType
from ..planning import thresholds
from ..runtime import result_memory
from ..runtime.cpu_caches import PAGE
from ..runtime.launches import SHARE, Addresses, address_of, run_launch
from ..runtime.ndarrays import may_share_memory
from ..shapes.layout import Layout
from . import small_calls
from .addresses import layout_of
from .execution import COPY_EACH, Work
from .outputs import BYTE
from .routes import ENTRY, FOUND, Done
from .small_calls import KNOWN, ROUTE_BYTES, TABLE, SmallRoute, small_route


@dataclass(frozen=True, eq=False, slots=True)
class CheckedCall:
    """A call whose arguments need no checks: its result is an ndarray of a `kind` and `shape`.

    That is the memory of a `tensor` of this dtype and Layout, if there is one. The elements are at
    `seen`, counted from the data pointer of the source; `source` is the number of bits to where
    offsets count from. What is filled later: `done`, what did it into memory that
    was used before, and into fresh memory; `small`, the Routes that compiled code runs by itself,
    into an `out`, and into a new result.
    """

    seen: Layout
    source: int
    kind: np.dtype[Any]
    shape: tuple[int, ...]
    tensor: tuple[DType, Layout] | None
    nbytes: int
    asked: object
    done: list[Done | None] = field(default_factory=lambda: [None, None])
    small: list[SmallRoute | None] = field(default_factory=lambda: [None, None])

    @property
    def weight(self) -> int:
        """A bound on the bytes of its tables."""
        found = {done.way for done in self.done if done}
        stage = 6 * PAGE if self.nbytes >= thresholds.NO_PLAN_MAX_BYTES else 0  # of two Routes
        return ENTRY + sum(way.weight for way in found) + 2 * ROUTE_BYTES + stage

    def __call__(self, x: Any, out: Any) -> Any:
        """The result, as `out` or new; None if `out` does not fit, or the kernel became ready."""
        made, tensor, small = out, self.tensor, self.small[out is None]
        if type(x) is Tensor:
            x = x.buffer
        if tensor is not None and out is not None:
            if type(out) is not Tensor or out.dtype is not tensor[0] or out.layout != tensor[1]:
                return None
            made = out.buffer
        done = None if small is None else small_calls.run_found(x, made, small.words, TABLE)
        if done is None:
            fresh, kind, shape = out is None, self.kind, self.shape
            if fresh:
                # `new_array`, inlined without checks: it is a large part of a short call.
                large = self.nbytes >= thresholds.RESULT_MEMORY_FROM
                memory, fresh = (large and result_memory.kept().take(self.nbytes)) or (None, True)
                new = memory is None  # np.empty takes half of the time
                made = np.empty(shape, kind) if new else np.ndarray(shape, kind, memory)
                if tensor is not None:
                    made[-1] = 0
            elif not (
                type(made) is np.ndarray
                and made.dtype is kind
                and made.shape == shape
                and made.flags.carray
                and not may_share_memory(x, made)
            ):
                return None
            known, done = self.done[fresh], made
            if known is None:
                return None
            way = known.way
            if not isinstance(way, Work):
                work = way.kind
                if (work.ready or work.taken >= work.next_look) and way.ready:
                    return None
                start = perf_counter()
                if known.move:
                    known.move(x, made)
                else:
                    begin = 8 * address_of(x) + self.source
                    way.instead([begin], [8 * address_of(made)], known.operands)
                work.taken += perf_counter() - start
            elif way.kind.ready:
                source = 8 * address_of(x) + self.source + way.source
                begin = 8 * address_of(made) + way.target
                shift = 0 if way.launch.bits else 3
                addresses = np.array([[source >> shift], [begin >> shift]], np.int64)
                shares, streamed = max(1, way.nbytes // SHARE), way.streaming and not fresh
                run_launch(way.launch, streamed, addresses, way.units, way.units, shares, way.depth)
                if shares == 1 and not streamed:
                    self._learn(x, made, way, out is None)
            else:
                return None
        if tensor is None:
            return done
        return Tensor.unchecked(done, tensor[0], tensor[1]) if out is None else out

    def _learn(self, x: NDArray[Any], made: NDArray[Any], way: Work, new: bool) -> None:
        """Let compiled code do the same, with a `new` result or an `out`, if it can.

        It holds the GIL if that takes microseconds, and does not reuse memory of results.
        """
        each, unheld = way.kind is COPY_EACH, self.nbytes >= thresholds.NO_PLAN_MAX_BYTES
        if self.small[new] is not None or (unheld and (each or way.launch.stage > PAGE)):
            return
        if new and self.nbytes >= thresholds.RESULT_MEMORY_FROM:
            return
        work: Work | Addresses = way
        if each and not self.source:
            work = way.launch.arguments[1]  # a small plan, without the rest of the launch
        result = made.dtype if self.done[True] else None  # else new results are views
        small = small_route(x, made, work, result, self.seen, self.asked, self.source, unheld)
        self.small[new] = small
        if small is None or self.asked is None or unheld or self.tensor is not None:
            return
        KNOWN.put(x, self.asked, small)


def key_of(x: Any, asked: object) -> tuple[object, ...] | None:
    """A key for arrays like this one and the request; None for other objects."""
    if type(x) is np.ndarray:
        return x.dtype, x.shape, x.strides, asked
    if type(x) is Tensor:
        layout = x.layout
        return x.dtype.name, layout.shape, layout.strides, layout.offset, asked
    return None


def keep(
    key: object,
    done: Done,
    x: NDArray[Any] | Tensor,
    made: Any,
    fresh: bool,
    asked: object = None,
    new: bool = True,
) -> None:
    """Store what was just done to `x`, with result `made`, for later calls with this key.

    A large result is in `fresh` memory or not: the kernel may differ. Compiled code finds small
    ndarrays by what is `asked`, see `small_calls`. Unless `new`, an `out` must be given.
    """
    if isinstance(x, Tensor):
        seen, source = x.layout, x.layout.offset & ~7
    else:
        seen, source = layout_of(x), 0
    tensor, kind, shape = None, made.dtype, made.shape
    if isinstance(made, Tensor):
        tensor = made.dtype, Layout.row_major(made.shape, made.dtype.bits)
        kind, shape = BYTE, (made.nbytes,)
    # A new object: compiled code may know addresses that what was done before keeps alive.
    call = CheckedCall(seen, source, kind, shape, tensor, made.nbytes, asked)
    before: CheckedCall | None = FOUND.get(key)
    if before is not None:
        call.done[:] = before.done
    both = made.nbytes < thresholds.STREAM_FROM  # else the kernel differs
    for kind in (False, True) if both else (fresh,):
        if new or not kind:
            call.done[kind] = done
    FOUND.put(key, call)


def follow(key: object, x: Any, out: Any) -> Any:
    """The result of a stored call with this key, as `out` or new; None if there is no such call."""
    call = FOUND.get(key)
    return None if call is None else call(x, out)
