"""A traced function specialised to one Layout of the source: views, NumPy calls or Plans."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.buffers import Lent
from ..arrays.tensor import Bytes, Tensor
from ..dtypes.promotion import AnyDtype
from ..engine import outputs
from ..engine.addresses import place_of
from ..engine.copying import whole_plan
from ..engine.routes import ENTRY
from ..engine.small_calls import Routes
from ..kernels.constants import MAX_RANK
from ..planning import planner, thresholds
from ..runtime import result_memory
from ..runtime.launches import Addresses, address_of
from ..runtime.lazy import cached_property
from ..runtime.ndarrays import MOST_DIMS, check_possible, possible
from ..shapes.layout import Layout
from .fuse import Route
from .passes import Pass

SCRATCH_MAX_BYTES = 4 * 1024 * 1024  # between two copies of many tensors: it stays in a cache

# A shape, and the offset and strides in bytes; None: all elements of a copy, in its order.
Look = tuple[tuple[int, ...], int, tuple[int, ...] | None]

_scratch = threading.local()


class Specialization:
    """The Route of tensors of one Layout, whose offset counts from the byte of the first element.

    The results have `shape` and `kind`, a DType (Tensors) or NumPy's.
    """

    def __init__(
        self, route: Route, source: Layout, shape: tuple[int, ...], kind: AnyDtype
    ) -> None:
        self.route = route
        self.source = source
        self.shape = shape
        self.kind = kind

    @property
    def weight(self) -> int:
        """A bound on the bytes of its passes and of their scales."""
        held = (x.nbytes for step in self.route.fills for x in step.operands if x is not None)
        return ENTRY * (1 + len(self.route.fills)) + sum(held)

    @cached_property
    def numpys(self) -> bool:
        """Whether NumPy can do it: elements are not converted, and every array is possible."""
        met = [step.layout for step in (*self.route.copies, *self.route.fills)]
        met += [self.source, self.route.result]
        return not self.converts and all(possible(x.shape, x.bits // 8) for x in met)

    @cached_property
    def small(self) -> bool:
        """Whether NumPy's calls are faster than compiled ones, for one ndarray."""
        if not self.numpys:
            return False
        plans = [planner.plan(step.layout) for step in self.route.fills]
        return all(
            made.by_numpy or (made.one_run and made.nbytes < thresholds.NUMPY_BELOW)
            for made in plans
        )

    @property
    def converts(self) -> bool:
        """Whether elements are converted."""
        return any(step.conversion is not None for step in self.route.fills)

    def remember(self, routes: Routes, x: Any, out: Any) -> None:
        """Make a Route, so that compiled code does later calls with arrays like `x` and `out`."""
        if not isinstance(self.kind, np.dtype):
            return
        if not self.one_copy or not out.flags.carray or not routes.met(x):
            return
        made = self.kind if self.route.fresh and out.nbytes < result_memory.FROM else None
        routes.learn(x, out, lambda: whole_plan(self.route.fills[0].layout), made)

    @cached_property
    def one_copy(self) -> bool:
        """Whether all there is to do is one copy of whole bytes of a small array."""
        if len(self.route.fills) != 1 or self.converts:
            return False
        layout = self.route.fills[0].layout
        small = 0 < layout.size * layout.bits <= 8 * thresholds.NO_PLAN_MAX_BYTES
        return small and not (layout.bits | layout.offset) % 8 and layout.ndim <= MAX_RANK

    @cached_property
    def _looks(self) -> tuple[list[Look], list[Look]]:
        """How NumPy sees the sources of all copies, and the result; and those of all fills."""
        copies, fills = (
            [_look(step.layout) for step in way] for way in (self.route.copies, self.route.fills)
        )
        result = (self.shape, 0, None) if self.route.whole else _look(self.route.result)
        return [*copies, result], fills

    def by_numpy(self, x: NDArray[Any]) -> NDArray[Any]:
        """The result by NumPy, copy by copy."""
        made = self._seen(x, self._looks[0])
        if self.route.read_only:
            made.flags.writeable = False
        return made

    def fill_by_numpy(self, x: NDArray[Any], target: NDArray[Any]) -> None:
        """Write the result to a C-contiguous `target` by NumPy."""
        seen = self._seen(x, self._looks[1])
        target.reshape(seen.shape)[...] = seen

    def _seen(self, x: NDArray[Any], looks: Sequence[Look]) -> NDArray[Any]:
        """The last of some views: the first of a source, each other one of a copy of the last."""
        x = _view(x, *looks[0])
        for look in looks[1:]:
            x = _view(x.copy(), *look)
        return x

    def results(self, items: Iterable[Any], sources: Sequence[int] | Addresses) -> list[Any]:
        """The results for `items` at `sources`: views, or new arrays."""
        if not self.route.fresh:
            return [self._view(x) for x in items]
        return self._new(np.asarray(sources, np.int64))

    def _view(self, x: NDArray[Any] | Tensor) -> NDArray[Any] | Tensor:
        """The result as a view of the source."""
        if not isinstance(x, Tensor):
            return self.by_numpy(x)
        view = self.route.result
        made = x.with_layout(view.at(view.offset + x.offset // 8 * 8))
        return made.readonly() if self.route.read_only else made

    def _new(self, sources: Addresses) -> list[Any]:
        """The results for the tensors at these places, in new memory."""
        last = self.route.copies[-1]
        nbits = last.layout.size * last.unit
        if len(sources) == 1:
            memory, fresh = outputs.new_bytes(nbits)
            self._copy(sources, 8 * np.array([address_of(memory)]), self.route.copies, fresh)
            return [self._result(memory)]
        slab, fresh = outputs.new_bytes(nbits, len(sources))
        targets = 8 * (address_of(slab) + slab.shape[1] * np.arange(len(slab)))
        self._copy(sources, targets, self.route.copies, fresh)
        plain = self.route.whole and len(self.shape) < MOST_DIMS and slab.size
        if isinstance(self.kind, np.dtype) and plain:
            made = slab.view(self.kind).reshape(len(slab), *self.shape)
            return [made[i, ...] for i in range(len(made))]
        return [self._result(row) for row in slab]

    def _result(self, memory: Bytes) -> Any:
        """The result array over the memory of the last copy."""
        return outputs.array_over(memory, self.kind, self.route.result, self.route.read_only)

    def into(self, x: NDArray[Any] | Tensor, target: NDArray[Any] | Tensor) -> None:
        """Write the result for one array to `target`, which fits."""
        if self.small and not isinstance(x, Tensor):
            self.fill_by_numpy(x, target)  # type: ignore[arg-type]  # an ndarray, too
        else:
            self.fill(*(np.array([place_of(array)[0]]) for array in (x, target)))

    def fill(self, sources: Addresses, targets: Addresses) -> None:
        """Write the results for the tensors at these places to `targets`."""
        self._copy(sources, targets, self.route.fills, fresh=False)

    def _copy(
        self, sources: Addresses, targets: Addresses, steps: Sequence[Pass], fresh: bool
    ) -> None:
        """Run `steps` from every source to its target; a step of many tensors is one launch."""
        if len(steps) == 1:
            steps[0].run(sources, targets, fresh)
            return
        count, most = len(sources), max(step.nbytes for step in steps[:-1])
        chunk = max(1, min(count, SCRATCH_MAX_BYTES // max(most, 1)))
        with Scratch(chunk * most * min(2, len(steps) - 1)) as memory:
            rows = 8 * (address_of(memory) + most * np.arange(2 * chunk)).reshape(2, chunk)
            for start in range(0, count, chunk):
                src = sources[start : start + chunk]
                for k, step in enumerate(steps[:-1]):
                    dst = rows[k % 2][: len(src)]
                    step.run(src, dst, fresh=False)
                    src = dst
                steps[-1].run(src, targets[start : start + chunk], fresh)


def _view(
    x: NDArray[Any], shape: tuple[int, ...], offset: int, strides: tuple[int, ...] | None
) -> NDArray[Any]:
    """A view of the elements at a Look of `x`, whose offset counts from the first element."""
    try:
        if strides is None:
            return x.reshape(shape)
        if x.flags.c_contiguous:
            return np.ndarray(shape, x.dtype, x, offset, strides)
        at, writeable = address_of(x) + offset, x.flags.writeable
        lent = Lent(at, shape, strides, f"|V{x.itemsize}", owner=x, writeable=writeable)
        return np.asarray(lent).view(x.dtype)
    except (ValueError, OverflowError):
        check_possible(shape, x.itemsize)
        raise


def _look(layout: Layout) -> Look:
    """The shape, and the offset and strides in bytes, of a Layout of whole bytes."""
    return layout.shape, layout.offset // 8, tuple([stride // 8 for stride in layout.strides])


class Scratch:
    """Memory of a thread's own between two copies; it keeps `SCRATCH_MAX_BYTES` twice at most.

    A nested use, as by the handler of a signal, takes memory of its own.
    """

    def __init__(self, nbytes: int) -> None:
        memory: Bytes | None = _scratch.__dict__.pop("memory", None) if nbytes else None
        if memory is None or memory.size < nbytes:
            memory = np.empty(nbytes, np.uint8)
        self._memory = memory

    def __enter__(self) -> Bytes:
        return self._memory

    def __exit__(self, *_: object) -> None:
        if 0 < self._memory.size <= 2 * SCRATCH_MAX_BYTES:
            _scratch.memory = self._memory
