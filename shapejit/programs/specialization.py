"""A traced function specialised to one Layout of the source: views, NumPy calls or Plans."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from operator import attrgetter, methodcaller, setitem
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays.buffers import Bytes, Lent
from ..arrays.tensor import Tensor, is_array
from ..dtypes.promotion import AnyDtype
from ..engine import outputs
from ..engine.addresses import bit_address_of, byte_of
from ..engine.calls import keep, key_of
from ..engine.copying import assign, was_met
from ..engine.numpy_fallback import arithmetic, caster
from ..engine.routes import ENTRY, FOUND
from ..kernels.constants import MAX_RANK
from ..operations.codes import memory, numpy
from ..operations.joining import stack_of_bytes
from ..runtime.cpu_caches import l2
from ..runtime.launches import Addresses, address_of
from ..runtime.lazy import cached_property
from ..runtime.ndarrays import MOST_DIMS, check_possible, concatenate
from ..shapes.layout import Layout
from ..shapes.request import Ints
from .fuse import Fused
from .passes import Pass
from .sources import rows_of

SCRATCH_MAX_BYTES = 4 * 1024 * 1024  # between two copies of many tensors: it stays in a cache

View = Callable[[NDArray[Any]], NDArray[Any]]


class Step(NamedTuple):
    """How NumPy makes results of whole bytes: by assigning views of the sources."""

    see: View
    turn: Callable[[Any], Any] | None  # what brings a result into the shape that is assigned
    convert: Callable[[Any, Any], object]
    tensors: bool

    def one(self, x: Any, into: Any) -> None:
        """Fill one result."""
        if self.tensors:
            x, into = numpy(x), numpy(into)
        seen, target = self.see(x), self.turn(into) if self.turn else into
        if self.convert is assign:
            target[...] = seen
        else:
            self.convert(seen, target)

    def each(self, items: Iterable[Any], outs: Any) -> None:
        """Fill several results; `outs` may be one array."""
        if self.tensors:
            items = map(numpy, items)
            outs = numpy(outs) if isinstance(outs, Tensor) else map(numpy, outs)
        outs = map(self.turn, outs) if self.turn else outs
        views, plain = map(self.see, items), self.convert is assign  # no Python for each
        made = map(setitem, outs, repeat(...), views) if plain else map(self.convert, views, outs)
        deque(made, 0)


@dataclass(frozen=True, eq=False)
class Specialization:
    """The passes over tensors of one Layout, whose offset counts from the first element's byte.

    The results are of `kind`, a DType (Tensors) or NumPy's. `of` returns the Specialization for
    another Layout: that of a stack of the tensors.
    """

    fused: Fused
    source: Layout
    kind: AnyDtype
    of: Callable[[Layout], Specialization]

    @property
    def shape(self) -> Ints:
        """The shape of a result."""
        return self.fused.result.shape

    @property
    def result(self) -> tuple[AnyDtype, Ints]:
        """The dtype and shape of a result."""
        return self.kind, self.shape

    @property
    def weight(self) -> int:
        """A bound on the bytes of its passes and of their scales."""
        held = (x.nbytes for step in self.fused.fills for x in step.operands if x is not None)
        return ENTRY * (1 + len(self.fused.fills)) + sum(held)

    def one_pass(self, new: bool) -> Pass | None:
        """The pass that makes all of a `new` result, or fills an `out`, if that is one."""
        one, *others = self.fused.fills
        return None if others or (new and not self.fused.whole) else one

    @cached_property
    def view(self) -> Callable[[Any], Any]:
        """A function that makes the result of an array, if that is a view."""
        made: Callable[[Any], Any] = partial(_relaid, self.fused.result)
        if isinstance(self.kind, np.dtype):
            made = view_of(self.source, self.fused.result)
        return partial(_read_only, made) if self.fused.read_only else made

    def call(self, x: Any, out: Any, asked: object) -> Any:
        """The result for one array; later calls with what is `asked` have a Route.

        New results may be views, so calls with and without `out` have Routes of their own.
        """
        key, one = key_of(x, (asked, out is None)), self.one_pass(out is None)
        begin, _ = byte_of(x)
        if one is None and out is None:
            if not self.fused.fresh and key is not None:
                view = self.view
                FOUND.put(key, lambda x, _: view(x))
            (made,) = self.results((x,), [begin])
            return made
        target, fresh = outputs.target(out, self.kind, self.shape, (x,))
        addresses = np.array([begin]), np.array([bit_address_of(target)[0]])
        if one is None:
            self.fill(*addresses)
        elif target.size:
            step = self.step
            done = one.run(*addresses, fresh, step and partial(step.one, x, target))
            if done is not None:
                new = self.one_pass(True) is not None
                if step is not None and not step.tensors:
                    done = done._replace(move=step.one)
                    if new:
                        FOUND.put((x.dtype, asked), (self._maker(x, step), done.way.kind))
                keep(key, done, x, target, fresh, asked, new)
        return target if out is None else out

    def _maker(self, x: NDArray[Any], step: Step) -> Callable[[Any], Any] | None:
        """What makes a new result of an ndarray like `x` by NumPy, see `small_calls.run`."""
        copy: Callable[[Any], Any] | None = np.ndarray.copy
        conversion = self.fused.fills[0].conversion
        if conversion is not None and isinstance(self.kind, np.dtype):
            copy = caster(conversion, self.kind)
        if copy is None:
            return None
        see, shape, strides = step.see, x.shape, x.strides
        target = self.shape if step.turn else None

        def make(x: Any) -> Any:
            if x.shape != shape or x.strides != strides:
                raise ValueError
            made = copy(see(x))
            return made if target is None else made.reshape(target)

        return make

    def results(self, items: Sequence[Any], sources: Sequence[int] | Addresses) -> list[Any]:
        """The results for `items` at `sources`: views, or new arrays."""
        if not self.fused.fresh:
            return list(map(self.view, items))
        addresses, last = np.asarray(sources, np.int64), self.fused.copies[-1]
        slab, fresh = outputs.new_bytes(last.layout.size * last.unit, len(addresses))
        targets = 8 * (address_of(slab) + slab.shape[1] * np.arange(len(slab)))
        kind, whole = self.kind, self.fused.whole and slab.size and len(self.shape) <= MOST_DIMS
        if whole and isinstance(kind, np.dtype):
            # A fifth of the time of `array_over`.
            made = [row.reshape(self.shape) for row in slab.view(kind)]
        else:
            given = kind, self.fused.result, self.fused.read_only
            made = [outputs.array_over(row, *given) for row in slab]
        outs: Any = None
        if self.one_pass(True):
            rows = Layout.row_major((len(slab), *self.shape), self.fused.result.bits)
            outs = outputs.array_over(slab.reshape(-1), kind, rows) if self.stacked else made
        self._copy(addresses, targets, self.fused.copies, fresh, items, outs)
        return made

    def fill(
        self, sources: Addresses, targets: Addresses, items: Sequence[Any] = (), outs: Any = None
    ) -> None:
        """Write the results for the tensors at these addresses to `targets`.

        If given, `items` and `outs` are the arrays there; `outs` may be one array.
        """
        self._copy(sources, targets, self.fused.fills, False, items, outs)

    @cached_property
    def stacked(self) -> int:
        """How many small tensors NumPy copies or converts as one stack; 0 if it cannot.

        500 of 32 x 24 int4 take a tenth of the time.
        """
        one, *others = self.fused.fills
        low, high = self.source.span
        nbits = self.source.size * self.source.bits
        if isinstance(self.kind, np.dtype):  # ndarrays are stacked element by element
            high = low + nbits
        gaps = high - low > 2 * nbits
        bits = one.layout.size * one.unit % 8  # else each result begins on a byte
        if others or gaps or bits or not self.source.ndim:
            return 0
        # Both take a half of the L2 cache, at most.
        most = l2() // 4 // max(1, (high - low + 7) // 8, one.nbytes)
        stackable = max(len(self.shape), self.source.ndim) < MOST_DIMS
        return most if stackable and most > 1 else 0

    def by_numpy(self, items: Sequence[Any], outs: Any) -> Callable[[], object] | None:
        """A function that writes the results of several tensors to `outs` by NumPy, or None.

        `outs` is one array or a list, as in `fill`.
        """
        if self.stacked and len(items) > 1 and (is_array(outs) or not self.step):
            return partial(self._by_stacks, items, outs)
        rows = rows_of(outs) if is_array(outs) and outs.ndim == 1 else outs  # else scalars
        return self.step and partial(self.step.each, items, rows)

    def _by_stacks(self, items: Sequence[Any], outs: Any) -> None:
        """Fill `outs` with the results of stacks; see `_stack` for errors."""
        begin, count, arrays = 0, len(items), self.step and not self.step.tensors
        while begin < count:
            size = min(self.stacked, count - begin)
            if not arrays and size < self.stacked and not was_met((self, size)):
                size = 1 << size.bit_length() - 1  # or each length had a Specialization
            stack = _stack(items[begin : begin + size], self.source)
            into = outs[begin : begin + size]
            begin += size
            if arrays:
                self._move_stack(stack, into)
                continue
            source, layout = byte_of(stack)
            special = self.of(layout)
            target = into if is_array(into) else outputs.new_array(self.kind, special.shape)[0]
            if special.step:
                special.step.one(stack, target)
            else:
                special.fused.fills[0].by_numpy(source, bit_address_of(target)[0])
            if target is not into:
                for out, made in zip(into, _bytes(target).reshape(len(into), -1), strict=True):
                    _bytes(out)[...] = made

    @cached_property
    def _move_stack(self) -> Callable[[Any, Any], object]:
        """What `step` does to a stack of any length, of ndarrays that are row-major there."""
        assert self.step is not None
        convert, source = self.step.convert, Layout.row_major(self.source.shape, self.source.bits)
        seen = self.of(source).fused.fills[0].layout
        strides, shape, offset = [n // 8 for n in seen.strides], seen.shape, seen.offset // 8

        def move(stack: Any, outs: Any) -> None:
            rows = len(stack), *shape
            view = np.ndarray(rows, stack.dtype, stack, offset, (stack.strides[0], *strides))
            convert(view, outs.reshape(rows))

        return move

    @cached_property
    def step(self) -> Step | None:
        """What NumPy does to arrays and results of whole bytes; None if no assignment does it."""
        one, *others = self.fused.fills
        most = max(one.layout.ndim, self.source.ndim, len(self.shape))
        if (
            others
            or one.scales is not None
            or one.unit % 8
            or self.source.bits % 8
            or most > MAX_RANK
        ):
            return None
        convert = assign
        if one.conversion is not None:
            own = arithmetic(one.conversion)
            if own is None or one.layout.bits != self.source.bits:  # the parts of complex numbers
                return None
            convert = own.do
        see, shape = view_of(self.source, one.layout), one.layout.shape
        turn = None if shape == self.shape else methodcaller("reshape", shape)
        return Step(see, turn, convert, not isinstance(self.kind, np.dtype))

    def _copy(
        self,
        sources: Addresses,
        targets: Addresses,
        steps: Sequence[Pass],
        fresh: bool,
        items: Sequence[Any] = (),
        outs: Any = None,
    ) -> None:
        """Run `steps` from every source to its target; a step of many tensors is one launch."""
        if len(steps) == 1:
            instead = None if outs is None else self.by_numpy(items, outs)
            steps[0].run(sources, targets, fresh, instead)
            return
        count, most = len(sources), max(step.nbytes for step in steps[:-1])
        chunk = max(1, min(count, SCRATCH_MAX_BYTES // max(most, 1)))
        memory, _ = outputs.new_bytes(8 * chunk * most * min(2, len(steps) - 1))
        rows = 8 * (address_of(memory) + most * np.arange(2 * chunk)).reshape(2, chunk)
        for start in range(0, count, chunk):
            src = sources[start : start + chunk]
            for k, step in enumerate(steps[:-1]):
                dst = rows[k % 2][: len(src)]
                step.run(src, dst, fresh=False)
                src = dst
            steps[-1].run(src, targets[start : start + chunk], fresh)


def _stack(items: Sequence[Any], source: Layout) -> NDArray[Any] | Tensor:
    """Tensors of one Layout, or ndarrays of one shape and dtype, copied to a new dim 0.

    Raises ValueError or TypeError if ndarrays differ in shape or dtype, but for the size of dim 0.
    """
    if isinstance(items[0], Tensor):
        return stack_of_bytes(items)
    count, shape = len(items), source.shape
    made = np.empty((count * shape[0], *shape[1:]), items[0].dtype)  # else its order is theirs
    concatenate(items, 0, made, casting="no")  # a sixth of the time of a loop
    return made.reshape(count, *shape)


def _bytes(x: NDArray[Any] | Tensor) -> Bytes:
    """The bytes of a contiguous array, which begins on a byte."""
    return memory(x) if isinstance(x, Tensor) else x.reshape(-1).view(np.uint8)


def view_of(source: Layout, seen: Layout) -> View:
    """A function that turns ndarrays at `source`, of whole bytes, into the view `seen`."""
    check_possible(seen.shape, seen.bits // 8)
    axes = None if source.ndim > MOST_DIMS else _axes(source, seen)
    if axes is not None:  # these take a quarter of the time of np.ndarray
        return attrgetter("T") if axes == (1, 0) else methodcaller("transpose", axes)
    strides = tuple([stride // 8 for stride in seen.strides])
    return partial(_view, seen.shape, (seen.offset - source.offset) // 8, strides)


def _relaid(view: Layout, x: Tensor) -> Tensor:
    return x.with_layout(view.at(view.offset + x.offset // 8 * 8))


def _read_only(see: Callable[[Any], Any], x: Any) -> Any:
    made = see(x)
    if isinstance(made, Tensor):
        return made.readonly()
    made.flags.writeable = False
    return made


def _axes(made: Layout, seen: Layout) -> Ints | None:
    """The axes by which one Layout becomes the other by permutation; None if there are none."""
    own, dims = ([*zip(x.shape, x.strides, strict=True)] for x in (made, seen))
    axes = tuple(own.index(dim) for dim in dims if dim in own)
    found = sorted(axes) == [*range(made.ndim)] and made.permute(axes) == seen
    return axes if found else None


def _view(shape: Ints, offset: int, strides: Ints, x: NDArray[Any]) -> NDArray[Any]:
    """A view of the elements `offset` bytes after the first one of `x`."""
    if x.flags.c_contiguous:
        return np.ndarray(shape, x.dtype, x, offset, strides)
    at, writeable = address_of(x) + offset, x.flags.writeable
    lent = Lent(at, shape, strides, f"|V{x.itemsize}", owner=x, writeable=writeable)
    return np.asarray(lent).view(x.dtype)
