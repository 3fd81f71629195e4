"""Routes: how arrays of one kind are processed, decided once and looked up by later calls.

A Route copies or converts tensors of one Layout: by a kernel with all its arguments, or by NumPy
until that kernel is ready. All Routes are in one cache of bounded size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Any, NamedTuple, TypeVar

from numpy.typing import NDArray

from ..kernels.numbers import Conversion
from ..planning import planner
from ..planning.cast_plans import CastPlan, Scales
from ..planning.casts import cast_plan
from ..planning.plans import Plan
from ..planning.small_plans import slower_whole
from ..runtime.kernel_names import Name
from ..runtime.lazy import cached_property
from ..runtime.recent import Recent
from ..shapes.layout import Layout
from . import numpy_fallback
from .array_structs import SMALL_CALLS, SMALL_NAMES
from .execution import (
    WORK_BYTES,
    Where,
    Work,
    cast_kind,
    cast_work,
    interleaved_work,
    kind_of,
    small_work,
    work_of,
)
from .patience import NEVER, Kind, Unplanned, by_numpy, patience

REMEMBERED = 16 * 1024 * 1024  # bytes of the cache
ENTRY = 2048  # bytes assumed for an entry without `weight`
LARGE_TABLES = 128 * 1024  # bytes; those of most plans have a tenth

Finder = TypeVar("Finder", bound=Callable[..., Any])

FOUND: Recent[object, Any] = Recent(REMEMBERED, lambda value: getattr(value, "weight", ENTRY))
_NEW = object()


def found_once(find: Finder) -> Finder:
    """A decorator that caches the results of `find` by its arguments, in `FOUND`."""

    @wraps(find)
    def known(*asked: Any) -> Any:
        value = FOUND.get((find, asked), _NEW)
        if value is _NEW:
            value = find(*asked)
            FOUND.put((find, asked), value)
        return value

    return known  # type: ignore[return-value]  # it takes what `find` takes


Instead = Callable[[Where, Where, tuple[int, int]], None]


def _nothing(*_: object) -> None:
    """NumPy copies the arrays themselves."""


@dataclass(frozen=True, eq=False)
class Route:
    """How tensors of one Layout are copied or converted: by a kernel, by NumPy until it is ready.

    `kind` is the kind of work of `patience`; `make` makes the Work of the plan. `instead` does the
    same with NumPy, or by kernels that are more likely to be ready (then it is `by_kernels`), given
    sources, targets and the addresses of scales and zero points.
    """

    kind: Kind
    plan: Plan | CastPlan | None = None
    make: Callable[[], Work] | None = None
    instead: Instead = _nothing
    by_kernels: bool = False

    def names(self) -> tuple[Name, ...]:
        """The kernels that it needs."""
        return self.make().launch.names if self.make else SMALL_NAMES

    @property
    def ready(self) -> bool:
        """Whether the kernel is ready."""
        return self.kind.kernels_ready(self.names)

    @cached_property
    def work(self) -> Work:
        """The kernel with its arguments. Only once `ready`: it holds addresses of functions."""
        assert self.make is not None
        return self.make()

    @cached_property
    def slower_whole(self) -> bool:
        """Whether the plan beats `copy_whole`, on one thread, for an array of whole bytes."""
        return isinstance(self.plan, Plan) and slower_whole(self.plan)

    @property
    def weight(self) -> int:
        """The bytes of the Route and its tables; until they are made, those of large ones."""
        if "work" in vars(self):
            return self.work.weight
        small = isinstance(self.plan, Plan) and self.plan.small
        return WORK_BYTES if self.make is None or self.kind is NEVER or small else LARGE_TABLES

    def work_for(self, tensors: int, fresh: bool) -> Work:
        """The Work for `count` tensors."""
        if isinstance(self.plan, Plan) and self.plan.small:
            return _small_work(self.plan, tensors, fresh)
        return self.work


NUMPY = Route(NEVER)  # NumPy's copy of ndarrays
COPY_WHOLE = Route(SMALL_CALLS)  # the kernel `small_joins.copy_whole`

_small_work = found_once(small_work)


def copies(
    layout: Layout,
    unit: int = 0,
    into: Layout | None = None,
    count: int = 1,
    networks: bool = True,
) -> Route:
    """The Route of `planner.plan`."""
    return _copies(layout, unit or layout.bits, into, rounded(count), networks)


def rounded(count: int) -> int:
    """`count` rounded up to a power of two, to limit the number of Routes."""
    return 1 << (count - 1).bit_length() if count else 1


@found_once
def _copies(layout: Layout, unit: int, into: Layout | None, count: int, networks: bool) -> Route:
    plan = planner.plan(layout, unit, into, count, networks)
    without = partial(_copies, layout, unit, into, count, False) if plan.shuffle else None
    return _planned(plan, without=without)


def compiled(layout: Layout, unit: int = 0, into: Layout | None = None, count: int = 1) -> Route:
    """As `copies`, but never NumPy's copy."""
    made = copies(layout, unit, into, count)
    return copies(layout, unit, into, 2) if made.kind is NEVER else made


@found_once
def joins(layout: Layout, into: Layout, count: int, spacing: int) -> Route:
    """The Route of `planner.joined`."""
    return _planned(planner.joined(layout, into, count, spacing))


@found_once
def biased(layout: Layout, into: Layout, bias: int) -> Route | None:
    """The Route of `planner.biased`, if there is such a plan."""
    plan = planner.biased(layout, into, bias)
    return _planned(plan, bias) if plan else None


def _planned(plan: Plan, bias: int = 0, without: Callable[[], Route] | None = None) -> Route:
    """The Route of a plan; while its network is compiled, that of a plan `without` one."""
    kind = NEVER if plan.by_numpy else kind_of(plan)

    def by_numpy(sources: Where, targets: Where, _: tuple[int, int]) -> None:
        assert plan.seen is not None
        assert plan.into is not None
        numpy_fallback.copy(sources, plan.seen, targets, plan.into, bias)

    make = partial(small_work, plan, 1, True) if plan.small else partial(work_of, plan)
    return _until(Route(kind, plan, make, by_numpy), without)


def _until(route: Route, without: Callable[[], Route] | None) -> Route:
    """A Route that is replaced by another one, if its kernels are there, until it is ready."""
    if without is None:
        return route
    by_numpy, kind = route.instead, route.kind

    def instead(sources: Where, targets: Where, operands: tuple[int, int]) -> None:
        if kind.taken >= patience():
            other = without()
            if other.make is not None and other.kind.on_disk(other.names):
                run(other, sources, targets, operands=operands)
                return
        by_numpy(sources, targets, operands)

    return replace(route, instead=instead, by_kernels=True)


@found_once
def casts(
    layout: Layout,
    unit: int,
    into: Layout | None,
    scales: Scales | None,
    count: int,
    conversion: Conversion,
    fresh: bool,
    networks: bool = True,
) -> Route:
    """The Route of `cast_plan`: a conversion into `fresh` memory, or into other memory.

    `count` is `rounded`.
    """
    plan = cast_plan(layout, unit, into, scales, count, networks)
    target = into or Layout.row_major(layout.shape, unit)
    own = (None, None) if scales is None else (scales.scale, scales.zero)

    def by_numpy(sources: Where, targets: Where, operands: tuple[int, int]) -> None:
        numbers = tuple((8 * at, layout) for at, layout in zip(operands, own, strict=True))
        numpy_fallback.convert(sources, layout, targets, target, conversion, numbers)

    asked = plan, conversion._replace(scales=plan.scale_pattern), fresh
    made = Route(cast_kind(*asked), plan, partial(cast_work, *asked), by_numpy)
    given = layout, unit, into, scales, count, conversion, fresh, False
    return _until(made, partial(casts, *given) if plan.box.shuffle else None)


@found_once
def unplanned(conversion: Conversion, shape: tuple[int, ...]) -> Route:
    """The Route of a conversion of small arrays before they have a Plan, see `Unplanned`."""
    return Route(Unplanned())


def run(
    route: Route,
    sources: Where,
    targets: Where,
    fresh: bool = False,
    operands: tuple[int, int] = (0, 0),
    instead: Callable[[], object] | None = None,
) -> Work | Route:
    """Copy or convert each tensor to the target of the same index, all of them in one launch.

    Sources and targets are bit addresses, from which the offsets of the plan's Layouts count. A
    `fresh` target is newly allocated: its zeroed pages are still in the caches, so streaming past
    these would be slower. Interleaved arrays have one target, the first. `operands` are the
    addresses of scales and zero points. The caller has checked the memory and keeps it alive; it
    may pass a function for NumPy, `instead`. Returns the Work if the kernel ran, else the Route.
    """
    plan, tensors = route.plan, len(sources)
    if not tensors or (plan and not plan.nbytes):
        return route
    # Kernels of a Route without arguments may have become ready since its caller looked.
    if route.make is None or not route.ready:
        with by_numpy(route.kind):
            if instead is not None:
                instead()
            else:
                route.instead(sources, targets, operands)
        return route
    work = route.work_for(tensors, fresh)
    addresses = work.addresses(sources, targets)
    if isinstance(plan, Plan) and plan.array_stride:
        work, tensors = interleaved_work(work, plan, sources), 1
    elif operands != (0, 0):
        work = work.with_operands(*operands)
    work.run(addresses, tensors, fresh)
    return work


class Done(NamedTuple):
    """What copied or converted an array: a kernel, or a Route whose kernel is not ready.

    Until it is, NumPy does the same by `move`, or else by the Route's `instead` with these
    `operands`. `alive` owns memory that both read besides the arrays.
    """

    way: Work | Route
    move: Callable[[NDArray[Any], NDArray[Any]], object] | None = None
    operands: tuple[int, int] = (0, 0)
    alive: object = None
