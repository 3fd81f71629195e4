"""Tracing: a function is called with a Tensor without data, which records its operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, NoReturn

from ..arrays.tensor import Bytes, Tensor
from ..dtypes.table import DType
from ..engine import outputs
from ..engine.converting import Operands
from ..errors import TraceError
from ..runtime.ndarrays import is_a
from ..shapes.layout import VIEWS, Layout
from ..shapes.request import Request
from ..shapes.resolver import target_shape
from .ops import COPIED, MADE_CONTIGUOUS, OP_ROWS, RESHAPE_VIEW, Op
from .steps import scaled


@dataclass(frozen=True)
class Recorded(Layout):
    """A Layout that records how it came from a row-major one: `ops`, without those of no effect."""

    ops: tuple[Op, ...] = ()

    def then(self, layout: Layout, op: Op) -> Recorded:
        """`layout`, the result of `op` on this one."""
        where = layout.shape, layout.strides, layout.offset, layout.bits
        return Recorded(*where, (*self.ops, op))

    def transposed(self) -> Layout:
        """The result of `permute`, which is recorded."""
        return self.permute((1, 0))


def _recording(method: str) -> Callable[..., Recorded]:
    """A view method of Layout that records its calls."""
    view = getattr(Layout, method)

    @wraps(view)
    def recording(self: Recorded, *given: Any) -> Recorded:
        made = self.then(view(self, *given), (method, given))
        same = (made.shape, made.strides, made.offset) == (self.shape, self.strides, self.offset)
        return self if same and not OP_ROWS[method].read_only else made

    return recording


for _method in VIEWS:
    setattr(Recorded, _method, _recording(_method))


class Traced(Tensor, own=True):
    """A Tensor without data, with which a function is called once to record what it does.

    Views, copies, casts and scales are recorded. Operations that read or join elements raise
    TraceError.
    """

    __slots__ = ("trace",)
    _instead = (
        "a traced tensor has no {}, and no values to compare: for t / 255 write t.dequantize(1 / "
        "255), for (t - zero) * scale t.dequantize(scale, zero_point=zero), for x / scale "
        "t.quantize(scale, dtype=...)"
    )

    layout: Recorded

    def __init__(self, dtype: DType, layout: Recorded, trace: object) -> None:
        self.dtype = dtype
        self.layout = layout
        self.trace = trace  # identifies this trace: a result must not come from another one

    def with_layout(self, layout: Layout) -> Traced:
        """Another view of the future data."""
        assert isinstance(layout, Recorded)
        return Traced(self.dtype, layout, self.trace)

    def readonly(self) -> Traced:
        """The Tensor itself: `fused` determines which results are read-only."""
        return self

    def reshaped(self, request: Request, copy: bool | None, out: object) -> Traced:
        """As `operations.reshape_as`, if `copy` and `out` allow it."""
        shape = target_shape(self.shape, request)
        outputs.wants_copy(self.layout.reshape(shape), self, request, copy, out)
        ops = [COPIED] if copy else []
        if shape != self.shape:
            ops.append((RESHAPE_VIEW if copy is False else "reshape", (shape,)))
        return self.then(out, *ops)

    def then(self, out: object, *ops: Op, known: DType | None = None) -> Traced:
        """What the operations make of it, recorded; its dtype may be `known`. `out` is refused."""
        if out is not None:
            raise TraceError(
                "out= within a traced function: give it to the program that plan() makes"
            )
        kind, layout = self.dtype, self.layout
        for name, given in ops:
            row = OP_ROWS[name]
            seen = row.view(layout, *given)
            if row.convert is not None:
                kind = known or row.convert(kind, layout.shape, *given).kind
            shape = given[0] if row.reshapes else layout.shape
            layout = layout.then(seen or Layout.row_major(shape, kind.bits), (name, given))
        return Traced(kind, layout, self.trace)

    def materialized(self, out: object) -> Traced:
        """`operations.ascontiguous`."""
        return self.then(out, MADE_CONTIGUOUS)

    def converted(
        self, name: str, kind: DType, operands: Operands | None, given: tuple[Any, ...], out: object
    ) -> Traced:
        """Record a conversion of `operations.casts`."""
        scales = () if operands is None else scaled(operands, kind)
        return self.then(out, (name, (*scales, *given)), known=kind)

    @property
    def buffer(self) -> Bytes:  # type: ignore[override]  # a slot of Tensor, without memory here
        """Raises TraceError: there is no data."""
        self._no_data()

    def numpy(self, *_: Any, **__: Any) -> NoReturn:
        """Raises TraceError."""
        self._no_data()

    tobytes = unpack = __array__ = __reduce__ = numpy

    def __repr__(self) -> str:
        return f"Traced(shape={self.shape}, dtype={self.dtype}, no data)"

    def _no_data(self) -> NoReturn:
        raise TraceError(
            "a traced tensor has no data: plan() calls the function once, with a shape alone, and "
            "records views, copies, casts and scales (reshape, permute_dims, slices, "
            "broadcast_to, cast ...), not operations that read or join elements"
        )


def traced(fn: Callable[[Tensor], object], shape: Sequence[int], dtype: DType) -> tuple[Op, ...]:
    """The operations of a function on a tensor of this shape and dtype."""
    trace = object()
    whole = Layout.row_major(shape, dtype.bits)
    made = fn(Traced(dtype, Recorded(whole.shape, whole.strides, 0, dtype.bits), trace))
    if not is_a(made, Traced) or made.trace is not trace:
        raise TraceError(f"the function must return a result of its tensor, not {made!r}")
    return made.layout.ops
