"""The passes of a Program over memory: copies, some of which also convert."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from ..engine import routes
from ..engine.addresses import low_bits
from ..kernels.numbers import Conversion
from ..planning import planner
from ..planning.cast_plans import CastPlan, Scales
from ..planning.casts import cast_plan
from ..planning.plans import Plan
from ..runtime.launches import Addresses, address_of
from ..runtime.ndarrays import distinct
from ..shapes.dims import common
from ..shapes.layout import Layout


class Pass(NamedTuple):
    """One copy of the elements of `layout` to row-major elements of `unit` bits.

    A `conversion` changes the numbers. `scales` are their Layouts by element; they start `begins`
    bytes after the first of the `operands` (scales, zero points).
    """

    layout: Layout
    unit: int
    conversion: Conversion | None = None
    scales: Scales | None = None
    operands: tuple[NDArray[Any] | None, NDArray[Any] | None] = (None, None)
    begins: tuple[int, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes written for one tensor."""
        return (self.layout.size * self.unit + 7) // 8

    @property
    def plan(self) -> Plan | CastPlan:
        """The Plan for one tensor."""
        if self.conversion is None:
            return planner.plan(self.layout)
        return cast_plan(self.layout, self.unit, None, self.scales, 1)

    @property
    def at(self) -> tuple[int, int]:
        """The addresses of scales and zero points, 0 if there are none."""
        there = (a for a in self.operands if a is not None)
        at = [address_of(a) + n for a, n in zip(there, self.begins, strict=True)]
        return sum(at[:1]), sum(at[1:])

    def stacked(self, count: int, spacing: int) -> Pass:
        """The pass for `count` tensors, `spacing` bits from each to the next, with equal scales."""
        scales = self.scales
        if scales is not None:
            zero = scales.zero and scales.zero.stacked(count, 0)
            scales = scales._replace(scale=scales.scale.stacked(count, 0), zero=zero)
        return self._replace(layout=self.layout.stacked(count, spacing), scales=scales)

    def route(self, count: int, fresh: bool, into: Layout | None = None) -> routes.Route:
        """The Route of as many tensors, in `fresh` memory or not; `into`: not to whole bytes."""
        if self.conversion is None:
            return routes.compiled(self.layout, into=into, count=count)
        given = self.layout, self.unit, into, self.scales, routes.rounded(count)
        return routes.casts(*given, self.conversion, fresh)

    def by_numpy(self, source: int, target: int) -> None:
        """Run it by NumPy, from a byte to a byte at these bit addresses."""
        self.route(1, False).instead([source], [target], self.at)

    def run(
        self,
        sources: Addresses,
        targets: Addresses,
        fresh: bool,
        instead: Callable[[], object] | None = None,
    ) -> routes.Done | None:
        """Run it from every source to its target; these are bit addresses.

        NumPy may use `instead`. Returns what did the last ones.
        """
        if self.conversion is not None and not self.layout.size:
            return None
        operands, within_bytes, done = self.at, low_bits(targets), None
        for bit in distinct(targets & 7).tolist() if within_bytes else [0]:
            src, dst = sources, targets
            if within_bytes:
                those = targets & 7 == bit
                src, dst = sources[those], targets[those] & ~7
            into = Layout.row_major(self.layout.shape, self.unit).at(bit) if bit else None
            made = self.route(len(src), fresh, into)
            by = routes.run(made, src & ~7, dst, fresh, operands, instead)
            done = routes.Done(by, None, operands, self.operands)
        return done


def aligned(layouts: Sequence[Layout]) -> list[Layout] | None:
    """Layouts of equally many elements in row-major order, with the same dims where possible.

    None if no split divides all of them.

    >>> turned = Layout.row_major((4, 6), 8).permute((1, 0))
    >>> [x.shape for x in aligned([turned, Layout((2, 12), (800, 8), 0, 8)])]
    [(2, 3, 4), (2, 3, 4)]
    """
    if 0 in layouts[0].shape:
        return [Layout.of((0,), (x.bits,), x.offset, x.bits) for x in layouts]
    first, *others = ([size for size, _ in x.runs()] for x in layouts)
    sizes: Sequence[int] | None = first
    for x in others:
        sizes = None if sizes is None else common(sizes, x)
    if sizes is None:
        return None
    split = [x.reshape(sizes) for x in layouts]
    return [x for x in split if x is not None]  # splitting a dim is always a view
