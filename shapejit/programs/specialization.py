"""A traced function specialised to one Layout of the source: views, NumPy calls or Plans."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import attrgetter, methodcaller
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.buffers import Lent
from ..arrays.tensor import Bytes, Tensor
from ..dtypes.promotion import AnyDtype
from ..engine import outputs
from ..engine.numpy_fallback import STACKED_MAX_BYTES
from ..engine.routes import ENTRY
from ..kernels.constants import MAX_RANK
from ..runtime.launches import Addresses, address_of
from ..runtime.lazy import cached_property
from ..runtime.ndarrays import MOST_DIMS, check_possible, possible
from ..shapes.layout import Layout
from .fuse import Route
from .passes import Pass

SCRATCH_MAX_BYTES = 4 * 1024 * 1024  # between two copies of many tensors: it stays in a cache

View = Callable[[NDArray[Any]], NDArray[Any]]

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

    @property
    def converts(self) -> bool:
        """Whether elements are converted."""
        return any(step.conversion is not None for step in self.route.fills)

    @cached_property
    def one_view(self) -> View | None:
        """What NumPy copies, if all there is to do for ndarrays is one copy."""
        steps = self.route.fills
        one = isinstance(self.kind, np.dtype) and self.numpys and len(steps) == 1
        kept = one and steps[0].layout.ndim <= MAX_RANK
        return view_of(self.source, steps[0].layout) if kept else None

    def one_pass(self, new: bool) -> Pass | None:
        """The pass that makes all of a `new` result, or fills an `out`, if that is one."""
        steps = self.route.copies if new else self.route.fills
        whole = self.route.whole and not self.route.read_only
        return steps[0] if len(steps) == 1 and (whole or not new) else None

    @cached_property
    def view(self) -> Callable[[Any], Any]:
        """What makes an array its result, if that is a view."""
        made: Callable[[Any], Any] = partial(_relaid, self.route.result)
        if isinstance(self.kind, np.dtype):
            made = view_of(self.source, self.route.result)
        return partial(_locked, made) if self.route.read_only else made

    def results(self, items: Iterable[Any], sources: Sequence[int] | Addresses) -> list[Any]:
        """The results for `items` at `sources`: views, or new arrays."""
        if self.route.fresh:
            return self._new(items, np.asarray(sources, np.int64))
        return list(map(self.view, items))

    def _new(self, items: Iterable[Any], sources: Addresses) -> list[Any]:
        """The results for the tensors at these places, in new memory."""
        last = self.route.copies[-1]
        nbits = last.layout.size * last.unit
        if len(sources) == 1:
            memory, fresh = outputs.new_bytes(nbits)
            self._copy(sources, 8 * np.array([address_of(memory)]), self.route.copies, fresh)
            return [self._result(memory)]
        slab, fresh = outputs.new_bytes(nbits, len(sources))
        targets = 8 * (address_of(slab) + slab.shape[1] * np.arange(len(slab)))
        plain = self.route.whole and len(self.shape) < MOST_DIMS and slab.size
        if isinstance(self.kind, np.dtype) and plain:
            made = rows(slab.view(self.kind).reshape(len(slab), *self.shape))
            self._copy(sources, targets, self.route.copies, fresh, self._each(items, made))
            return made
        self._copy(sources, targets, self.route.copies, fresh)
        return [self._result(row) for row in slab]

    def _result(self, memory: Bytes) -> Any:
        """The result array over the memory of the last copy."""
        return outputs.array_over(memory, self.kind, self.route.result, self.route.read_only)

    def fill(
        self, sources: Addresses, targets: Addresses, items: Iterable[Any] = (), outs: Any = None
    ) -> None:
        """Write the results for the tensors at these places to `targets`.

        If `items` and `outs` are given, these are the arrays there.
        """
        instead = None
        if outs is not None:
            instead = self._each(items, outs)
        self._copy(sources, targets, self.route.fills, False, instead)

    def _each(self, items: Iterable[Any], outs: Any) -> Callable[[], object] | None:
        """What NumPy does to arrays one by one; None if it does better with many at a time."""
        view = self.one_view
        if view is None or self.route.fills[0].nbytes <= STACKED_MAX_BYTES:
            return None

        shape = self.route.fills[0].layout.shape

        def each() -> None:
            targets = outs if shape == self.shape else (into.reshape(shape) for into in outs)
            for x, into in zip(items, targets, strict=True):
                into[...] = view(x)

        return each

    def _copy(
        self,
        sources: Addresses,
        targets: Addresses,
        steps: Sequence[Pass],
        fresh: bool,
        instead: Callable[[], object] | None = None,
    ) -> None:
        """Run `steps` from every source to its target; a step of many tensors is one launch."""
        if len(steps) == 1:
            steps[0].run(sources, targets, fresh, instead)
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


def view_of(source: Layout, seen: Layout) -> View:
    """What makes ndarrays at `source`, of whole bytes, the view `seen`."""
    check_possible(seen.shape, seen.bits // 8)
    order = sorted(range(seen.ndim), key=lambda axis: -abs(seen.strides[axis]))
    sizes = [seen.shape[axis] for axis in order]
    for made in (source, source.reshape(sizes) if source.size == seen.size else None):
        axes = None if made is None or made.ndim > MOST_DIMS else _axes(made, seen)
        if made is None or axes is None:
            continue
        # These take a quarter of the time of np.ndarray.
        turn: View = methodcaller("transpose", axes)
        if axes == (1, 0):
            turn = attrgetter("T")  # half of that
        split = methodcaller("reshape", made.shape)
        if made.shape == source.shape:
            return turn
        return split if axes == (*range(made.ndim),) else partial(_both, split, turn)
    strides = tuple([stride // 8 for stride in seen.strides])
    return partial(_view, seen.shape, (seen.offset - source.offset) // 8, strides)


def _relaid(view: Layout, x: Tensor) -> Tensor:
    return x.with_layout(view.at(view.offset + x.offset // 8 * 8))


def _locked(see: Callable[[Any], Any], x: Any) -> Any:
    made = see(x)
    if isinstance(made, Tensor):
        return made.readonly()
    made.flags.writeable = False
    return made


def _both(first: View, second: View, x: NDArray[Any]) -> NDArray[Any]:
    return second(first(x))


def _axes(made: Layout, seen: Layout) -> tuple[int, ...] | None:
    """The axes by which one Layout becomes the other by permutation; None if there are none."""
    free, axes = list(range(made.ndim)), list[int]()
    for size, stride in zip(seen.shape, seen.strides, strict=True):
        for axis in free:
            if made.shape[axis] == size and (size == 1 or made.strides[axis] == stride):
                free.remove(axis)
                axes.append(axis)
                break
    found = len(axes) == seen.ndim and not free and made.permute(axes) == seen
    return tuple(axes) if found else None


def _view(
    shape: tuple[int, ...], offset: int, strides: tuple[int, ...], x: NDArray[Any]
) -> NDArray[Any]:
    """A view of the elements `offset` bytes after the first one of `x`."""
    if x.flags.c_contiguous:
        return np.ndarray(shape, x.dtype, x, offset, strides)
    at, writeable = address_of(x) + offset, x.flags.writeable
    lent = Lent(at, shape, strides, f"|V{x.itemsize}", owner=x, writeable=writeable)
    return np.asarray(lent).view(x.dtype)


def rows(stack: NDArray[Any]) -> list[NDArray[Any]]:
    """The arrays of a stack; 0-D ones as arrays, too."""
    return list(stack) if stack.ndim > 1 else [stack[i, ...] for i in range(len(stack))]


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
