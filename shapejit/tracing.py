"""A function of one Tensor, run without data: what it does to the dims is written down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from . import outputs
from .dtypes import DType
from .errors import TraceError
from .fusion import CONTIGUOUS, COPY, VIEW, Op, route
from .layout import Layout
from .request import Request
from .resolver import target_shape
from .tensor import Bytes, Tensor


@dataclass(frozen=True)
class Recorded(Layout):
    """A Layout that remembers in `ops` which operations on a row-major one led to it.

    Operations that change nothing are left out.
    """

    ops: tuple[Op, ...] = ()

    @staticmethod
    def start(layout: Layout) -> Recorded:
        """Nothing has been done yet."""
        return Recorded(layout.shape, layout.strides, layout.offset, layout.bits)

    def then(self, layout: Layout, *ops: Op) -> Recorded:
        """`layout`, which `ops` make of this one."""
        facts = layout.shape, layout.strides, layout.offset, layout.bits
        return Recorded(*facts, (*self.ops, *ops))

    def after(self, ops: Sequence[Op]) -> Recorded:
        """This one with what was done to another of its shape done, too."""
        made = route(ops, self)
        seen = made.view if made.view is not None and not made.fresh else None
        return self.then(seen or Layout.row_major(made.shape, self.bits), *ops)

    def permute(self, axes: Sequence[int]) -> Recorded:
        """`Layout.permute`, written down."""
        seen = Layout.permute(self, axes)
        order = tuple(axis % self.ndim for axis in axes)
        same = order == tuple(range(self.ndim))
        return self if same else self.then(seen, ("permute", (order,)))

    def flip(self, axes: Sequence[int] | None = None) -> Recorded:
        """`Layout.flip`, written down."""
        seen = Layout.flip(self, axes)
        given = range(self.ndim) if axes is None else axes
        turned = tuple(sorted(a % self.ndim for a in given if self.shape[a] > 1))
        return self.then(seen, ("flip", (turned,))) if turned else self

    def narrow(self, axis: int, start: int, size: int, step: int) -> Recorded:
        """`Layout.narrow`, written down."""
        seen = Layout.narrow(self, axis, start, size, step)
        if size == self.shape[axis] and (step == 1 or size < 2):
            return self
        return self.then(seen, ("narrow", (axis, start, size, step if size > 1 else 1)))

    def select(self, axis: int, index: int) -> Recorded:
        """`Layout.select`, written down."""
        return self.then(Layout.select(self, axis, index), ("select", (axis, index)))

    def insert(self, axis: int) -> Recorded:
        """`Layout.insert`, written down."""
        return self._reshaped(Layout.insert(self, axis))

    def squeeze(self, axis: int | Sequence[int]) -> Recorded:
        """`Layout.squeeze`, written down."""
        return self._reshaped(Layout.squeeze(self, axis))

    def broadcast_to(self, shape: Sequence[int]) -> Recorded:
        """`Layout.broadcast_to`, written down."""
        seen = Layout.broadcast_to(self, shape)
        return self.then(seen, ("broadcast_to", (tuple(shape),)))

    def reshape(self, shape: Sequence[int]) -> Recorded | None:
        """`Layout.reshape`, written down."""
        seen = Layout.reshape(self, shape)
        return None if seen is None else self._reshaped(seen)

    def _reshaped(self, seen: Layout) -> Recorded:
        if seen.shape == self.shape:
            return self
        return self.then(seen, ("reshape", (seen.shape,)))


class Traced(Tensor, traced=True):
    """A Tensor without data, in whose place a function is traced; its dims can be moved.

    Whatever reads, converts or joins elements raises TraceError.
    """

    __slots__ = ("trace",)

    layout: Recorded

    def __init__(self, dtype: DType, layout: Recorded, trace: object) -> None:
        self.dtype = dtype
        self.layout = layout
        self.trace = trace  # whoever runs the function: results of another trace are no use

    def with_layout(self, layout: Layout) -> Traced:
        """Another view of the data that will come."""
        assert isinstance(layout, Recorded)
        return Traced(self.dtype, layout, self.trace)

    def locked(self) -> Traced:
        """The same: a route knows what has to be read-only."""
        return self

    def reshaped(self, request: Request, copy: bool | None, out: object) -> Traced:
        """`operations.reshape_as`, where `copy` and `out` allow it."""
        shape = target_shape(self.shape, request)
        outputs.wants_copy(Layout.reshape(self.layout, shape), self, request, copy, out)
        _refuse(out)
        seen = Layout.row_major(shape, self.layout.bits) if copy else None
        seen = seen or Layout.reshape(self.layout, shape)
        seen = seen or Layout.row_major(shape, self.layout.bits)
        ops: list[Op] = [COPY] if copy else []
        if shape != self.shape:
            ops.append((VIEW if copy is False else "reshape", (shape,)))
        return self.with_layout(self.layout.then(seen, *ops))

    def materialized(self, out: object) -> Traced:
        """`operations.ascontiguous`."""
        _refuse(out)
        row_major = Layout.row_major(self.shape, self.layout.bits)
        return self.with_layout(self.layout.then(row_major, CONTIGUOUS))

    @property
    def buffer(self) -> Bytes:  # type: ignore[override]  # as the slot it hides, but for nothing
        """There is none."""
        self._no_data()

    def numpy(self, *_: Any, **__: Any) -> NoReturn:
        """Refused."""
        self._no_data()

    tobytes = unpack = __array__ = __reduce__ = numpy

    def __repr__(self) -> str:
        return f"Traced(shape={self.shape}, dtype={self.dtype}, no data)"

    def _no_data(self) -> NoReturn:
        raise TraceError(
            "a traced tensor has no data: plan() runs the function once, on a shape alone, and "
            "takes what moves dims (reshape, permute_dims, flip, slices, broadcast_to ...), not "
            "what reads, converts or joins elements"
        )


def _refuse(out: object) -> None:
    if out is not None:
        raise TraceError("out= within a traced function: give it to the program that plan() makes")
