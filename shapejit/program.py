"""sj.plan: a function of one Tensor, traced once, run on as many as there are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import outputs
from .arrays import is_a, plain
from .dtypes import DType
from .engine import Addresses
from .errors import DTypeError, ReshapeError, TraceError, about, shape_text
from .fusion import Op, batched, checked_ops
from .layout import Layout, checked_shape
from .places import FEW, headers, located, named, place_of
from .planning.planner import plan as planned
from .planning.plans import Plan
from .request import MAX_SIZE, integers
from .specialization import Specialization
from .tensor import Tensor, fixed_width, is_array
from .tracing import Recorded, Traced

KEPT = 16  # sources of other strides, and lengths of stacks, that a program remembers
AHEAD = 4 * 1024 * 1024  # bytes that `imap` takes from an iterator, and makes, at a time
MOST = 256  # tensors that it takes at a time
FAST = 4  # kinds of arrays whose small calls go straight to a kernel
CALLS = 3  # small calls before numba is imported for their sake


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
    1. scatter: runs in the source's order, to a few places; 128 bytes at a time, 524288 bytes
      loop 8: source +65536, target +65536 bytes
      column 4: source +128, target +16384 bytes
      row 128: source +512, target +128 bytes
      one thread
    """
    kind = fixed_width(dtype)
    sizes = checked_shape(shape, "the shape", "plan")
    trace = object()
    made = fn(Traced(kind, Recorded.start(Layout.row_major(sizes, kind.bits)), trace))
    if not is_a(made, Traced) or made.trace is not trace:
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
        # Programs come out of pickles, too: operations that leave their source are refused.
        shape = checked_shape(self.source_shape, "the source shape", "Program")
        object.__setattr__(self, "source_shape", shape)
        object.__setattr__(self, "dtype", fixed_width(self.dtype))
        checked_ops(self.ops, shape)
        straight = Specialization(self.ops, Layout.row_major(self.source_shape, self.dtype.bits))
        object.__setattr__(self, "shape", straight.route.shape)
        object.__setattr__(self, "_kept", _Kept(straight))

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
        return tuple(planned(layout) for layout in layouts)

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

    def __call__(self, x: Any, out: Any = None) -> Any:
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
            for fill, card, _ in self._kept.fast:
                if fill(id(x), id(out), card):
                    return out
        if is_a(x, Tensor):
            array: Any = x
            self._check_tensor(x)
        else:
            array = plain(x) if is_a(x, np.ndarray) else x
            self._check_array(array)
        if isinstance(array, Traced):
            return self._inlined(array, out)
        place, layout = place_of(array)
        special = self._specialized(layout.at(place & 7))
        dtype = array.dtype
        if out is None:
            if not special.route.fresh:
                return special.view(array)
            if special.small and isinstance(array, np.ndarray):
                return special.by_numpy(array)
            return special.new(np.array([place]), dtype)[0]
        target = outputs.checked(out, dtype, self.shape)
        outputs.check_apart(array, target)
        if isinstance(array, np.ndarray) and self._kept.hasten(special, array, target):
            return out
        if special.small and isinstance(array, np.ndarray):
            target[...] = special.by_numpy(array)
        else:
            special.fill(np.array([place]), np.array([place_of(target)[0]]))
        return out

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
        if is_array(tensors):
            stack = self._checked_stack(tensors)
            if out is None or is_array(out):
                return self._batched(len(stack))(stack, out)
            tensors = _rows(stack)
        try:
            items = tuple(tensors)
        except NotImplementedError as fault:  # a memoryview of several dims
            raise DTypeError(f"not a sequence of tensors: {fault}") from None
        return self._map(items, out, 0)

    def _checked_stack(self, x: NDArray[Any] | Tensor) -> Any:
        """An array of tensors for this program, without its subclass."""
        stack = x if is_a(x, Tensor) else plain(x)
        if stack.shape[1:] != self.source_shape or not stack.ndim:
            want = ", ".join(["n", *map(str, self.source_shape)])
            raise ReshapeError(f"a stack for this program has shape ({want}), not {stack.shape}")
        return stack

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
        if is_array(tensors):
            tensors = _rows(self._checked_stack(tensors))
        each = self.dtype.nbytes(prod(self.source_shape)) + self.nbytes
        most = max(1, min(MOST, AHEAD // max(each, 1)))
        if chunk is not None:
            (most,) = integers((chunk,), "chunk=", "imap")
            if not 1 <= most <= MAX_SIZE:
                raise ReshapeError(
                    f"chunk= must be at least 1, and an int64, not {chunk}", asked_by="imap"
                )
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
        filled = outputs.Pending()
        for i, x in enumerate(tensors):
            if len(taken) == most:
                yield from self._map(tuple(taken), outs, first)
                first, taken, outs, filled = i, [], [], outputs.Pending()
            into = out(i)
            if not filled.add(into):
                yield from self._map(tuple(taken), outs, first)
                first, taken, outs, filled = i, [], [], outputs.Pending()
                filled.add(into)
            taken.append(x)
            outs.append(into)
        yield from self._map(tuple(taken), outs, first)

    def _map(self, items: Sequence[Any], out: Any, first: int) -> Any:
        """`map` of a sequence whose first tensor has the number `first`."""
        tensors = is_a(items[0] if items else out, Tensor)
        # An ndarray of a dtype that NumPy lacks does not exist: the first one is refused.
        numpys = np.dtype(np.void) if self.dtype.numpy is None else self.dtype.numpy
        dtype: Any = self.dtype if tensors else numpys
        check = self._check_tensor if tensors else self._check_array
        items, sources = located(items, check, self._expected(items), first)
        groups = []
        for layout, which in sources.groups():
            with about(named(first, int(which[0]))):
                groups.append((self._specialized(layout), which))
        if out is not None:
            targets, kept = outputs.given(out, len(items), dtype, self.shape, first)
            one = is_array(out)
            outputs.check_all_apart(sources, targets, one, first)
            for special, which in groups:
                special.fill(sources.addresses[which], targets.addresses[which])
            del kept  # alive until here: a sequence may make its arrays when asked
            return out
        results: list[Any] = [None] * len(items)
        for special, which in groups:
            if special.route.fresh:
                made = special.new(sources.addresses[which], dtype)
            else:
                made = [special.view(items[i]) for i in which.tolist()]
            if len(groups) == 1:
                return made
            for i, x in zip(which.tolist(), made, strict=True):
                results[i] = x
        return results

    def _expected(self, items: Sequence[Any]) -> NDArray[Any] | None:
        """The first item, if it is a plain ndarray for this program."""
        if not items or type(items[0]) is not np.ndarray:
            return None
        x: NDArray[Any] = items[0]
        return x if x.dtype == self.dtype.numpy and x.shape == self.source_shape else None

    def _inlined(self, t: Traced, out: Any) -> Traced:
        """The operations as part of another function that is traced."""
        if out is not None:
            raise TraceError("out= within a traced function: give it to the outer program")
        return t.with_layout(t.layout.after(self.ops))

    def _check_array(self, x: Any) -> None:
        if is_a(x, Tensor):
            raise DTypeError("a Tensor among ndarrays")
        if not is_a(x, np.ndarray):
            raise DTypeError(
                f"expected a numpy.ndarray or a shapejit.Tensor, not {type(x).__name__}"
            )
        if x.dtype != self.dtype.numpy:
            raise DTypeError(f"the dtype is {x.dtype}, the program's {self.dtype}")
        self._check_shape(x.shape)

    def _check_tensor(self, t: Any) -> None:
        if not is_a(t, Tensor):
            raise DTypeError(f"{type(t).__name__} among Tensors")
        if t.dtype is not self.dtype:
            raise DTypeError(f"the dtype is {t.dtype}, the program's {self.dtype}")
        self._check_shape(t.shape)

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        if shape != self.source_shape:
            raise ReshapeError(
                f"the shape is {shape_text(shape)}, the program's {shape_text(self.source_shape)}"
            )

    def _specialized(self, layout: Layout) -> Specialization:
        """What the program comes to on tensors of this Layout."""
        known = self._kept.specializations
        special = known.get(layout)
        if special is None:
            special = Specialization(self.ops, layout)
            if len(known) >= KEPT:
                known.clear()
            known[layout] = special
        return special

    def _batched(self, count: int) -> Program:
        """The program of stacks of `count` tensors."""
        programs = self._kept.batched
        program = programs.get(count)
        if program is None:
            ops = batched(self.ops, self.source_shape, count)
            program = Program((count, *self.source_shape), self.dtype, ops)
            if len(programs) >= KEPT:
                programs.clear()
            programs[count] = program
        return program


def _rows(stack: Any) -> Iterator[Any]:
    """The tensors of a stack, those without dims as arrays, too."""
    return (stack[i, ...] for i in range(len(stack)))


class FastCall(NamedTuple):
    """A kernel that does a whole call, if both arrays are as its `key` says."""

    fill: Callable[[int, int, Addresses], bool]
    key: Addresses
    dtypes: tuple[np.dtype[Any], ...]  # the kernel knows them by their address


class _Kept:
    """What a program finds out as it runs; threads may find the same at once."""

    def __init__(self, straight: Specialization) -> None:
        self.straight = straight  # of a row-major Tensor
        self.specializations: dict[Layout, Specialization] = {}
        self.batched: dict[int, Program] = {}
        self.fast: tuple[FastCall, ...] = ()
        self._calls = 0

    def hasten(self, special: Specialization, x: NDArray[Any], out: NDArray[Any]) -> bool:
        """Let later small calls with such arrays go straight to a kernel; whether one did this."""
        self._calls += 1
        # numba is only imported for the sake of whoever calls several times.
        made = _fast_call(special, x, out, FEW if self._calls >= CALLS else 1)
        if made is not None:
            self.fast = (made, *self.fast[: FAST - 1])
        return made is not None


def _fast_call(
    special: Specialization, x: NDArray[Any], out: NDArray[Any], calls: int
) -> FastCall | None:
    """How calls with arrays like these go straight to a kernel, if they may."""
    kernels = headers(calls)
    if kernels is None or special.small_plan is None:
        return None
    low, high = special.source.span
    keys = [kernels.facts_of(a.dtype, a.shape, a.strides) for a in (x, out)]
    key = kernels.card_of(*keys, special.small_plan, low // 8, high // 8, out.nbytes)
    fill = kernels.fill
    done = fill(id(x), id(out), key)
    return FastCall(fill, key, (x.dtype, out.dtype)) if done else None
