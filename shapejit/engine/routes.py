"""Routes of calls: what is done to arrays of one kind, found once and looked up by later calls.

A Route says how tensors that lie alike are copied or converted: by NumPy, or by a kernel with its
arguments as soon as that is ready. All Routes are in one cache of bounded size, and with them
what calls do that need not be checked again (`follow`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..arrays.tensor import Tensor
from ..dtypes.table import DType
from ..kernels.numbers import Conversion
from ..planning import planner
from ..planning.cast_plans import CastPlan, Scales
from ..planning.casts import cast_plan
from ..planning.plans import Plan
from ..planning.small_plans import slower_whole
from ..runtime import result_memory
from ..runtime.launches import SHARE, address_of, run_launch
from ..runtime.lazy import cached_property
from ..runtime.recent import Recent
from ..shapes.layout import Layout
from . import numpy_fallback
from .execution import (
    WORK_BYTES,
    Where,
    Work,
    cast_work,
    kind_of,
    kind_of_cast,
    small_work,
    work_in_turns,
    work_of,
)
from .outputs import Kind as Dtype
from .patience import READY, Kind, by_numpy, kernels_ready, numpys

BYTES = np.dtype(np.uint8)
REMEMBERED = 16 * 1024 * 1024  # bytes of all that is found once
ENTRY = 2048  # bytes of an entry that does not say what it weighs

Found = TypeVar("Found", bound=Callable[..., Any])

FOUND: Recent[object, Any] = Recent(REMEMBERED, lambda value: getattr(value, "weight", ENTRY))
_NEW = object()


def found_once(find: Found) -> Found:
    """`find`, whose last results are remembered by its arguments."""

    @wraps(find)
    def known(*asked: Any) -> Any:
        value = FOUND.get((find, asked), _NEW)
        if value is _NEW:
            value = find(*asked)
            FOUND.put((find, asked), value)
        return value

    return known  # type: ignore[return-value]  # it takes what `find` takes


def clear() -> None:
    """Forget all Routes."""
    FOUND.clear()


@dataclass(frozen=True, eq=False)
class Route:
    """How tensors that lie alike are copied or converted: by a kernel, NumPy until it is ready.

    `kind` is that of `patience`, `make` makes the Work. `instead` is what NumPy does from the
    sources to the targets, given the addresses of scales and zero points.
    """

    plan: Plan | CastPlan
    kind: Kind
    make: Callable[[], Work]
    instead: Callable[[Where, Where, tuple[int, int]], None]

    @property
    def by_numpy(self) -> bool:
        """Whether no kernel does it."""
        return isinstance(self.plan, Plan) and self.plan.by_numpy

    @property
    def ready(self) -> bool:
        """Whether the kernel does it now."""
        return not self.by_numpy and kernels_ready(self.kind, lambda: self.make().launch.names)

    @cached_property
    def work(self) -> Work:
        """The kernel with its arguments, once it is `ready`: what it calls may be called then."""
        return replace(self.make(), kind=self.kind)

    @cached_property
    def slower_whole(self) -> bool:
        """Whether one thread moves an array of whole bytes slower if it does without the plan."""
        return isinstance(self.plan, Plan) and slower_whole(self.plan)

    @property
    def weight(self) -> int:
        """A bound on the bytes of the Route and its tables."""
        return self.plan.weight + WORK_BYTES

    def work_for(self, tensors: int, fresh: bool) -> Work:
        """The Work for so many tensors."""
        if isinstance(self.plan, Plan) and self.plan.small:
            return _small_work(self.plan, self.kind, tensors, fresh)
        return self.work


@found_once
def _small_work(plan: Plan, kind: Kind, tensors: int, fresh: bool) -> Work:
    return replace(small_work(plan, tensors, fresh), kind=kind)


def copies(layout: Layout, unit: int = 0, into: Layout | None = None, count: int = 1) -> Route:
    """The Route of `planner.plan`."""
    return _copies(layout, unit or layout.bits, into, rounded(count))


def rounded(count: int) -> int:
    """A number of tensors as a power of two: else each number would have a Route of its own."""
    return 1 << (count - 1).bit_length() if count else 1


@found_once
def _copies(layout: Layout, unit: int, into: Layout | None, count: int) -> Route:
    return _planned(planner.plan(layout, unit, into, count))


def compiled(layout: Layout, unit: int = 0, into: Layout | None = None, count: int = 1) -> Route:
    """`copies`, but never NumPy's copy."""
    made = copies(layout, unit, into, count)
    return copies(layout, unit, into, 2) if made.by_numpy else made


@found_once
def joins(layout: Layout, into: Layout, count: int, apart: int) -> Route:
    """The Route of `planner.joined`."""
    return _planned(planner.joined(layout, into, count, apart))


@found_once
def biased(layout: Layout, into: Layout, bias: int) -> Route | None:
    """The Route of `planner.biased`, if there is such a plan."""
    plan = planner.biased(layout, into, bias)
    return _planned(plan) if plan else None


def _planned(plan: Plan) -> Route:
    def instead(sources: Where, targets: Where, _: tuple[int, int]) -> None:
        assert plan.seen is not None
        assert plan.into is not None
        numpy_fallback.copy(sources, plan.seen, targets, plan.into, plan.bias)

    make = partial(small_work, plan, 1, True) if plan.small else partial(work_of, plan)
    return Route(plan, kind_of(plan), make, instead)


@found_once
def casts(
    layout: Layout,
    unit: int,
    into: Layout | None,
    scales: Scales | None,
    count: int,
    conversion: Conversion,
    fresh: bool,
) -> Route:
    """The Route of `cast_plan`, by which numbers are converted; into `fresh` memory, or other.

    `count` is `rounded`.
    """
    plan = cast_plan(layout, unit, into, scales, count)
    target = into or Layout.row_major(layout.shape, unit)
    lie = (None, None) if scales is None else (scales.scale, scales.zero)

    def instead(sources: Where, targets: Where, operands: tuple[int, int]) -> None:
        numbers = tuple((8 * place, of) for place, of in zip(operands, lie, strict=True))
        numpy_fallback.convert(sources, layout, targets, target, conversion, numbers)

    make = partial(cast_work, plan, conversion._replace(scales=plan.lie), fresh)
    return Route(plan, kind_of_cast(make().launch.names), make, instead)


def run(
    route: Route,
    sources: Where,
    targets: Where,
    fresh: bool = False,
    operands: tuple[int, int] = (0, 0),
    instead: Callable[[], object] | None = None,
) -> Work | None:
    """Copy or convert each tensor to the target of the same index, all of them in one launch.

    Places are bit addresses (8 times those of bytes) that the offsets of the plan's
    Layouts count from. A `fresh` target was never touched: the kernel's zeros are
    still in the caches when the elements come, so that streaming past them would
    cost. Of a plan of arrays in turns the first target is that of all. `operands` are the
    addresses of scales and zero points. Whoever calls keeps the memory alive, and has checked
    it, and may know what NumPy does `instead`. Returns the Work, if the kernel did it.
    """
    plan, tensors = route.plan, len(sources)
    if not plan.nbytes or not tensors:
        return None
    if not route.ready:
        with by_numpy(route.kind):
            if instead is None:
                route.instead(sources, targets, operands)
            else:
                instead()
        return None
    work = route.work_for(tensors, fresh)
    places = work.places(sources, targets)
    if isinstance(plan, Plan) and plan.apart:
        work, tensors = work_in_turns(work, plan, sources), 1
    elif operands != (0, 0):
        work = work.with_operands(*operands)
    work.run(places, tensors, fresh)
    return work


class StandIn(NamedTuple):
    """What NumPy does to arrays of one kind until kernels are `ready`, those of a kind of work.

    `move` takes the arrays of the source and of the result, the bytes of Tensors, and the bits
    from the first one's memory to where its elements count from.
    """

    kind: Kind
    ready: Callable[[], bool]
    move: Callable[[NDArray[Any], NDArray[Any], int], object]
    weight: int = 0

    @classmethod
    def of(cls, route: Route, operands: tuple[int, int] = (0, 0)) -> StandIn:
        """That of a Route; `operands` as in `run`."""

        def move(x: NDArray[Any], target: NDArray[Any], source: int) -> None:
            route.instead([8 * address_of(x) + source], [8 * address_of(target)], operands)

        return cls(route.kind, lambda: route.ready, move, route.weight)


@dataclass(frozen=True, eq=False, slots=True)
class CheckedCall:
    """What a call does to an array, and what comes out: elements of `dtype`, row-major by `layout`.

    `ways` are those into memory that was used before, and into fresh memory. `source` are the
    bits from the array's memory to where they count from.
    """

    ways: tuple[Work | StandIn | None, ...]
    source: int
    dtype: Dtype
    layout: Layout
    nbytes: int

    @property
    def weight(self) -> int:
        """A bound on the bytes of its tables."""
        return ENTRY + sum(way.weight for way in {*self.ways} if way)


def keep(
    key: object, way: Work | StandIn, x: NDArray[Any] | Tensor, made: Any, *fresh: bool
) -> None:
    """Let later calls with this key do what was just done to `x`, which became `made`.

    That is for results in `fresh` memory, which was never touched, in other memory, or both.
    """
    if isinstance(x, Tensor):
        source, bits = x.layout.offset & ~7, made.dtype.bits
    else:
        source, bits = 0, 8 * made.itemsize
    before: CheckedCall | None = FOUND.get(key)
    ways = list(before.ways) if before else [None, None]
    for untouched in fresh:
        ways[untouched] = way
    layout = Layout.row_major(made.shape, bits)
    FOUND.put(key, CheckedCall((*ways,), source, made.dtype, layout, made.nbytes))


def follow(key: object, x: Any, out: Any) -> Any:
    """The result of the CheckedCall with this key, as `out` or new; None: there is none."""
    call: CheckedCall | None = FOUND.get(key)
    if call is None:
        return None
    fresh, target, tensor = out is None, out, type(call.dtype) is DType
    shape: Any = call.layout.shape
    if tensor:
        x = x.buffer
    if out is None:
        dtype: Any = call.dtype
        if tensor:
            shape, dtype = (call.nbytes,), BYTES
        # `new_array` of what is known to be possible: a small call takes little longer than this.
        large = call.nbytes >= result_memory.FROM
        memory, fresh = (large and result_memory.kept().take(call.nbytes)) or (None, True)
        new = memory is None  # np.empty takes half of the time
        target = np.empty(shape, dtype) if new else np.ndarray(shape, dtype, memory)
        if tensor:
            target[-1] = 0
    elif not (
        type(out) is np.ndarray
        and out.dtype is call.dtype
        and out.shape == shape
        and out.flags.carray
        and not np.may_share_memory(x, out)
    ):
        return None
    way = call.ways[fresh]
    if type(way) is StandIn:
        if way.ready():
            return None
        numpys(way.kind, way.move, x, target, call.source)
    elif way is None or way.kind not in READY:
        return None
    else:
        source = 8 * x.__array_interface__["data"][0] + call.source + way.source
        begin = 8 * target.__array_interface__["data"][0] + way.target
        shift = 0 if way.launch.bits else 3
        places = np.array([[source >> shift], [begin >> shift]], np.int64)
        shares, streamed = max(1, way.nbytes // SHARE), way.streaming and not fresh
        run_launch(way.launch, streamed, places, way.units, way.units, shares, way.depth)
    if isinstance(call.dtype, DType):
        return Tensor.trusted(target, call.dtype, call.layout)
    return target
