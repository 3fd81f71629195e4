"""sj.plan: a function of one Tensor, traced once, run on as many as there are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import mapping, operations
from .dtypes import DType
from .errors import DTypeError, FormatError, ReshapeError, TraceError, about, shape_text
from .fusion import Op, lifted
from .layout import Layout, overflows
from .planner import Plan
from .planner import plan as planned
from .request import integers
from .tensor import Array, Tensor, asarray, fixed_width, plain
from .tracing import Recorded, Traced
from .ways import Quick, Way

KEPT = 256  # sources of other strides, and lengths of stacks, that a program remembers
AHEAD = 4 * 1024 * 1024  # bytes that `imap` takes from an iterator, and makes, at a time
MOST = 256  # tensors that it takes at a time
CARDS = 4  # ways of lying that small calls are known by
PATIENCE = 3  # small calls before numba is imported for their sake


def plan(shape: Sequence[int], dtype: object, fn: Callable[[Tensor], Tensor]) -> Program:
    """The Program of `fn`, a function that moves the dims of one Tensor of `shape` and `dtype`.

    `fn` is called once, with a Tensor that has a shape (in elements) and no
    data: it may use the shape methods of Tensor, shapejit's shape operations
    (those of the dialects too) and basic slicing. What reads, converts or joins
    elements, and `out=`, raises TraceError. Whatever can be a view is one, and
    copies are fused into as few as possible.

    >>> print(plan((8, 128, 4, 64), "bfloat16", lambda t: t.permute_dims((0, 2, 1, 3))))
    (8, 128, 4, 64) -> (8, 4, 128, 64) bfloat16: a view, nothing is moved
    >>> heads = plan((8, 128, 256), "bfloat16", lambda t:
    ...     t.reshape((8, 128, 4, 64)).permute_dims((0, 2, 1, 3)).reshape((32, 128, 64)))
    >>> print(heads)
    (8, 128, 256) -> (32, 128, 64) bfloat16: 1 copy, 524288 bytes read, 524288 written
    1. scatter: runs in the source's order, dealt to a few places; 128 bytes at a time, 524288 bytes
      loop 8: source +65536, target +65536 bytes
      column 4: source +128, target +16384 bytes
      row 128: source +512, target +128 bytes
      one thread
    """
    kind = fixed_width(dtype)
    sizes = integers(shape, "the shape", "plan")
    if any(size < 0 for size in sizes) or overflows(sizes):
        raise FormatError(f"{shape_text(sizes)} is no shape")
    trace = object()
    made = fn(Traced(kind, Recorded.start(Layout.row_major(sizes, kind.bits)), trace))
    if not isinstance(made, Traced) or made.trace is not trace:
        raise TraceError(f"the function must return what it makes of its tensor, not {made!r}")
    return Program(sizes, kind, made.layout.ops)


@dataclass(frozen=True)
class Program:
    """A traced function: which operations, in order, it does to one tensor.

    Programs are equal if they do the same operations to the same shape and
    dtype. `source_shape` and `shape` are in elements, `nbytes` is the bytes of
    one result (packed). Made by `plan`; see there.

    >>> turn = plan((2, 3), "int4", lambda t: t.T)
    >>> turn.shape, turn.dtype, turn.nbytes, turn == plan((2, 3), "int4", lambda t: t.mT)
    ((3, 2), shapejit.dtype('int4'), 3, True)
    >>> turn(np.array([[1, 2, 3], [4, 5, 6]], turn.dtype.numpy))
    array([[1, 4],
           [2, 5],
           [3, 6]], dtype=int4)
    """

    source_shape: tuple[int, ...]
    dtype: DType
    ops: tuple[Op, ...]
    shape: tuple[int, ...] = field(init=False, compare=False)
    _kept: _Kept = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        way = Way(self.ops, Layout.row_major(self.source_shape, self.dtype.bits))
        object.__setattr__(self, "shape", way.route.shape)
        object.__setattr__(self, "_kept", _Kept(way))

    def __reduce__(self) -> tuple[Any, ...]:
        # What is kept is compiled, or soon found again.
        return Program, (self.source_shape, self.dtype, self.ops)

    @property
    def nbytes(self) -> int:
        """Bytes of one result, packed.

        >>> plan((3, 5), "uint4", lambda t: t.T).nbytes
        8
        """
        return self.dtype.nbytes(prod(self.shape))

    @property
    def is_view(self) -> bool:
        """Whether the result of a row-major tensor is a view of it.

        >>> plan((3, 5), "uint4", lambda t: t.T.reshape((15,))).is_view
        False
        """
        return not self._kept.straight.route.fresh

    @property
    def steps(self) -> tuple[Plan, ...]:
        """The copies of a row-major tensor, in order, as the planner sees them.

        >>> plan((3, 5), "uint4", lambda t: t.T).steps
        ()
        """
        layouts = self._kept.straight.route.copies
        return tuple(planned(layout, layout.bits) for layout in layouts)

    def __str__(self) -> str:
        route, steps = self._kept.straight.route, self.steps
        head = f"{shape_text(self.source_shape)} -> {shape_text(self.shape)} {self.dtype}: "
        if not steps:
            return head + "a view, nothing is moved"
        copies = "1 copy" if len(steps) == 1 else f"{len(steps)} copies"
        moved = [self.dtype.nbytes(layout.size) for layout in route.copies]
        head += f"{copies}, {sum(moved)} bytes read, {sum(moved)} written"
        if route.view is not None:
            head += ", and a view of the last"
        return "\n".join([head, *(f"{i}. {step}" for i, step in enumerate(steps, 1))])

    def __call__(self, x: Array, out: Array | None = None) -> Array:
        """What the function makes of `x`: an ndarray or a Tensor of exactly the planned facts.

        The result is of the same kind; without `out` it is a view of `x` where
        the function's own result would be one. `x` may have any strides. `out`
        (the result's shape and dtype, contiguous, apart from `x`) is filled and
        returned. Raises ReshapeError, DTypeError.

        >>> columns = plan((2, 3), "float32", lambda t: t.T.reshape((6,)))
        >>> columns(np.arange(6, dtype=np.float32).reshape(2, 3))
        array([0., 3., 1., 4., 2., 5.], dtype=float32)
        """
        if out is not None:
            for fill, card, _ in self._kept.quick:
                if fill(id(x), id(out), card):
                    return out
        if isinstance(x, Tensor):
            self._check_tensor(x)
            if isinstance(x, Traced):
                return self._inlined(x, out)
            if out is None:
                return self._tensor(x)
            self._tensor_into(x, out)
            return out
        array = plain(x) if isinstance(x, np.ndarray) else x
        self._check_array(array)
        if out is not None:
            operations._check_array_out(array.dtype, self.shape, out)
            operations._check_apart(array, out)
        way = self._way(_layout_of(array))
        if out is not None and self._kept.hasten(way, array, out):
            return out
        return way.array(array, out)

    def map(self, tensors: Iterable[Any], out: Any = None) -> Any:
        """The program of many tensors, in one launch: a list of results.

        `tensors` are ndarrays or Tensors, or one array of them stacked along a
        new dim 0, which gives such an array (a view of it where the program is a
        view). `out` is one slab of shape (n, *shape), a sequence of n arrays, or
        a function that gives the array for result i; it is returned, of a
        function a list. New results are rows of one slab: it lives as long as
        any of them. Nothing is written if any tensor or `out` is refused; the
        error names it. (A function is asked as by `imap`: what was moved before
        the tensor that is refused stays moved.)

        >>> turn = plan((2, 3), "int16", lambda t: t.T.reshape((6,)))
        >>> slab = np.empty((2, 6), np.int16)
        >>> turn.map([np.arange(6, dtype=np.int16).reshape(2, 3)] * 2, out=slab)
        array([[0, 3, 1, 4, 2, 5],
               [0, 3, 1, 4, 2, 5]], dtype=int16)
        """
        if callable(out):
            return list(self.imap(tensors, out))
        if isinstance(tensors, np.ndarray | Tensor):
            rows = self._rows(tensors)
            if out is None or isinstance(out, np.ndarray | Tensor):
                stack: Any = tensors
                return self._lifted(len(stack))(stack, out)
            tensors = rows
        return self._map(tuple(tensors), out, 0)

    def _rows(self, stack: Any) -> Iterator[Any]:
        """The tensors of a stack, those without dims as arrays, too."""
        if stack.shape[1:] != self.source_shape or not stack.ndim:
            want = ", ".join(["n", *map(str, self.source_shape)])
            raise ReshapeError(f"a stack for this program has shape ({want}), not {stack.shape}")
        return (stack[i, ...] for i in range(len(stack)))

    def imap(
        self,
        tensors: Iterable[Any],
        out: Callable[[int], Any] | None = None,
        *,
        chunk: int | None = None,
    ) -> Iterator[Any]:
        """The results of an iterator's tensors, one after the other, with bounded memory.

        `chunk` tensors at a time (if not given, those of about 4 MiB, at most 256)
        are taken and moved in one launch: each in memory of its own, so that an
        iterator that fills the same array again and again needs `chunk=1`.
        `out(i)` gives the array for result i; an array may be given again once the
        result in it was yielded, and a pool of n arrays that waits for one to come
        back needs `chunk` of n at most. Without `out` the results of a chunk are
        rows of one slab.

        >>> turn = plan((2, 3), "int16", lambda t: t.T)
        >>> ring = [np.empty((3, 2), np.int16) for _ in range(4)]
        >>> tensors = (np.full((2, 3), i, np.int16) for i in range(9))
        >>> sum(int(x.sum()) for x in turn.imap(tensors, lambda i: ring[i % 4]))
        216
        """
        if out is not None and not callable(out):
            raise DTypeError(f"out= must be a function of the index, not {type(out).__name__}")
        if isinstance(tensors, np.ndarray | Tensor):
            tensors = self._rows(tensors)
        each = self.dtype.nbytes(prod(self.source_shape)) + self.nbytes
        most = max(1, min(MOST, AHEAD // max(each, 1)))
        if chunk is not None:
            (most,) = integers((chunk,), "chunk=", "imap")
            if most < 1:
                raise ReshapeError(f"chunk= must be at least 1, not {chunk}", asked_by="imap")
        return self._imap(iter(tensors), out, most)

    def _imap(self, tensors: Iterator[Any], out: Any, most: int) -> Iterator[Any]:
        first = 0
        if out is None:
            while items := tuple(islice(tensors, most)):
                results = self._map(items, None, first)
                first += len(items)
                del items
                yield from results
            return
        taken: list[Any] = []
        outs: list[Any] = []
        filled = mapping.Filled()
        for i, x in enumerate(tensors):
            if len(taken) == most:
                yield from self._map(tuple(taken), outs, first)
                first, taken, outs, filled = i, [], [], mapping.Filled()
            into = out(i)
            if not filled.add(into):
                yield from self._map(tuple(taken), outs, first)
                first, taken, outs, filled = i, [], [], mapping.Filled()
                filled.add(into)
            taken.append(x)
            outs.append(into)
        yield from self._map(tuple(taken), outs, first)

    def _map(self, items: tuple[Any, ...], out: Any, first: int) -> Any:
        """`map` of a tuple whose first tensor has the number `first`."""
        if isinstance(items[0] if items else out, Tensor):
            return self._map_tensors(items, out, first)
        # An ndarray of a dtype that NumPy lacks is none: the first one is refused.
        dtype = np.dtype(np.void) if self.dtype.numpy is None else self.dtype.numpy
        facts = items, dtype, self.source_shape, self._check_array, first
        groups = mapping.grouped(*facts)
        ways = []
        for group in groups:
            with about(mapping.named(first, int(group.which[0]))):
                ways.append(self._way(_layout_of(group.arrays[0])))
        if out is None:
            results: list[Any] = [None] * len(items)
            for way, group in zip(ways, groups, strict=True):
                made = way.new(group.arrays, group.addresses)
                if len(groups) == 1:
                    return made
                for i, x in zip(group.which, made, strict=True):
                    results[i] = x
            return results
        targets = mapping.given(out, len(items), self.shape, dtype, first)
        mapping.check_apart(groups, targets, first)
        for way, group in zip(ways, groups, strict=True):
            way.fill(group.addresses, targets.addresses[group.which])
        return out

    def _map_tensors(self, items: tuple[Tensor, ...], out: Any, first: int) -> Any:
        dtype, shape = self.dtype, self.source_shape
        for i, t in enumerate(items):
            if type(t) is Tensor and t.dtype is dtype and t.shape == shape:
                continue
            with about(mapping.named(first, i)):
                self._check_tensor(t)
        if self.dtype.packed:
            return self._map_packed(items, out, first)
        if out is None and not any(self._way(t.layout.within_byte()).route.fresh for t in items):
            return [self._tensor(t) for t in items]
        into = None if out is None else mapping.as_arrays(out, self.dtype, first)
        made = self._map(tuple(t.numpy() for t in items), into, first)
        return [asarray(x) for x in made] if out is None else out

    def _map_packed(self, items: tuple[Tensor, ...], out: Any, first: int) -> Any:
        """One launch for all tensors that lie alike, and whose results begin on the same bit."""
        sources = mapping.Places.of(items)
        lots = []
        for layout, which in sources.lots().items():
            with about(mapping.named(first, int(which[0]))):
                lots.append((self._way(layout), which))
        if out is not None:
            facts = out, items, sources, self.shape, self.dtype, first
            targets = mapping.packed_places(*facts)
            # A row of a slab may share bytes with its neighbours; nothing else does.
            shared = isinstance(out, Tensor) and self.dtype.bits * prod(self.shape) % 8 != 0
            for way, which in lots:
                way.fill_bits(
                    sources.addresses[which],
                    targets.addresses[which],
                    targets.bits[which] if shared else None,
                )
            if shared:
                operations._clear_padding(out)
            return out
        results: list[Any] = [None] * len(items)
        for way, which in lots:
            if way.route.fresh:
                made = way.new_packed(sources.addresses[which], self.dtype)
            else:
                made = [self._tensor(items[i]) for i in which.tolist()]
            for i, t in zip(which.tolist(), made, strict=True):
                results[i] = t
        return results

    def _tensor(self, t: Tensor) -> Tensor:
        """The result for a Tensor that was checked."""
        first, way = t.layout.offset // 8, self._way(t.layout.within_byte())
        if not way.route.fresh:
            view = way.route.view
            assert view is not None
            seen = t.with_layout(view.at(view.offset + 8 * first) if first else view)
            return seen.locked() if way.route.locked else seen
        if self.dtype.packed:
            return way.packed_new(t.buffer[first:], t.dtype)
        return asarray(self(t.numpy()))

    def _tensor_into(self, t: Tensor, out: Any) -> None:
        """The same in `out`, which is checked first."""
        if not self.dtype.packed:
            self(t.numpy(), mapping.written(out, self.dtype, "out="))
            return
        operations._check_tensor_out(self.dtype, self.shape, out)
        operations._check_apart(operations._reach(t), operations._reach(out))
        way = self._way(t.layout.within_byte())
        way.packed(t.buffer[t.layout.offset // 8 :], out)

    def _inlined(self, t: Traced, out: Any) -> Traced:
        """The operations as part of another function that is traced."""
        if out is not None:
            raise TraceError("out= within a traced function: give it to the outer program")
        return t.with_layout(t.layout.after(self.ops))

    def _check_array(self, x: Any) -> None:
        if isinstance(x, Tensor):
            raise DTypeError("a Tensor among ndarrays")
        if not isinstance(x, np.ndarray):
            raise DTypeError(
                f"expected a numpy.ndarray or a shapejit.Tensor, not {type(x).__name__}"
            )
        if x.dtype != self.dtype.numpy:
            raise DTypeError(f"the dtype is {x.dtype}, the program's {self.dtype}")
        self._check_shape(x.shape)

    def _check_tensor(self, t: Any) -> None:
        if not isinstance(t, Tensor):
            raise DTypeError(f"{type(t).__name__} among Tensors")
        if t.dtype is not self.dtype:
            raise DTypeError(f"the dtype is {t.dtype}, the program's {self.dtype}")
        self._check_shape(t.shape)

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        if shape != self.source_shape:
            raise ReshapeError(
                f"the shape is {shape_text(shape)}, the program's {shape_text(self.source_shape)}"
            )

    def _way(self, layout: Layout) -> Way:
        ways = self._kept.ways
        way = ways.get(layout)
        if way is None:
            way = Way(self.ops, layout)
            if len(ways) >= KEPT:
                ways.clear()
            ways[layout] = way
        return way

    def _lifted(self, count: int) -> Program:
        """The program of stacks of `count` tensors."""
        programs = self._kept.lifted
        program = programs.get(count)
        if program is None:
            ops = lifted(self.ops, self.source_shape, count)
            program = Program((count, *self.source_shape), self.dtype, ops)
            if len(programs) >= KEPT:
                programs.clear()
            programs[count] = program
        return program


class _Kept:
    """What a program finds out as it runs; threads may find the same at once."""

    def __init__(self, straight: Way) -> None:
        self.straight = straight  # of a row-major Tensor
        self.ways: dict[Layout, Way] = {}
        self.lifted: dict[int, Program] = {}
        self.quick: tuple[Quick, ...] = ()
        self._calls = 0

    def hasten(self, way: Way, x: NDArray[Any], out: NDArray[Any]) -> bool:
        """Let later small calls with such arrays go straight to a kernel; whether one did this."""
        self._calls += 1
        made = way.quick(x, out, self._calls >= PATIENCE)
        if made is not None:
            self.quick = (made, *self.quick[: CARDS - 1])
        return made is not None


def _layout_of(x: NDArray[Any]) -> Layout:
    return Layout.of(x.shape, [8 * s for s in x.strides], 0, 8 * x.itemsize)
