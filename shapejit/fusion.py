"""View operations one after the other as one view: a dim may have several strides.

A Chain is a Layout whose elements follow one another along *factors*, (size,
stride) pairs that stand in row-major order but need not be the dims. A reshape
that no Layout has as a view only changes where the dims end; what moves a dim
cuts the factors at its ends. Only where an end falls inside a factor that it
does not divide, a copy must come between.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from .errors import FormatError, ReshapeError, ShapeJitError, shape_text
from .layout import Layout, checked_shape
from .request import MAX_SIZE

Factor = tuple[int, int]  # size, stride in bits

# A view operation as a value: the name of a method of Layout and Chain, its arguments.
Op = tuple[str, tuple[Any, ...]]

COPY: Op = ("copy", ())  # never the source's own memory
CONTIGUOUS: Op = ("contiguous", ())  # row-major, from a byte on
VIEW = "view"  # the name of a reshape that must not copy


@dataclass(frozen=True, slots=True)
class Chain:
    """Elements of `bits` in `shape`, found along `factors` from the bit `offset` on.

    >>> chain = Chain.of(Layout.row_major((4, 6), 8)).permute((1, 0)).reshape((3, 2, 4))
    >>> chain.factors
    ((6, 8), (4, 48))
    >>> chain.permute((1, 0, 2)).factors
    ((2, 8), (3, 16), (4, 48))
    >>> chain.reshape((8, 3)).permute((1, 0)) is None
    True
    """

    shape: tuple[int, ...]
    factors: tuple[Factor, ...]
    offset: int
    bits: int

    @staticmethod
    def of(layout: Layout) -> Chain:
        """The Chain of a Layout."""
        return Chain(layout.shape, tuple(layout.runs()), layout.offset, layout.bits)

    @property
    def layout(self) -> Layout:
        """The elements in row-major order, one dim a factor."""
        sizes = [size for size, _ in self.factors]
        if 0 in self.shape:
            sizes, strides = [0], [self.bits]
        else:
            strides = [stride for _, stride in self.factors]
        return Layout.of(sizes, strides, self.offset, self.bits)

    def permute(self, axes: Sequence[int]) -> Chain | None:
        """Dim i of the result is dim axes[i]; None: a copy must come first."""
        # Neighbours that stay neighbours move together: nothing is cut between them.
        heads = [i for k, i in enumerate(axes) if k == 0 or i != axes[k - 1] + 1]
        blocks = self._blocks(heads)
        if blocks is None:
            return None
        order = dict(zip(sorted({0, *heads}), blocks, strict=True))
        moved = [factor for head in heads for factor in order[head]]
        return self._with([self.shape[i] for i in axes], moved)

    def flip(self, axes: Sequence[int]) -> Chain | None:
        """The order reversed along `axes`."""
        cuts = sorted({i for a in axes for i in (a, a + 1) if ((i - 1) in axes) != (i in axes)})
        blocks = self._blocks(cuts)
        if blocks is None:
            return None
        offset, factors = self.offset, []
        for first, block in zip(sorted({0, *cuts}), blocks, strict=True):
            if first in axes:
                offset += sum((size - 1) * stride for size, stride in block)
                block = [(size, -stride) for size, stride in block]
            factors += block
        return self._with(self.shape, factors, offset)

    def narrow(self, axis: int, start: int, size: int, step: int) -> Chain | None:
        """`size` elements along `axis`, from `start` in steps of `step`."""
        shape = [*self.shape[:axis], size, *self.shape[axis + 1 :]]
        if 0 in shape:
            return self._with(shape, [])
        blocks = self._around(axis)
        if blocks is None:
            return None
        before, own, behind = blocks
        kept = _narrowed(own, start, size, step)
        if kept is None:
            return None
        factors, offset = kept
        return self._with(shape, [*before, *factors, *behind], self.offset + offset)

    def select(self, axis: int, index: int) -> Chain | None:
        """The elements at `index` of `axis`, which is dropped."""
        shape = [*self.shape[:axis], *self.shape[axis + 1 :]]
        blocks = self._around(axis)
        if blocks is None:
            return None
        before, own, behind = blocks
        return self._with(shape, [*before, *behind], self.offset + _offset(own, index))

    def broadcast_to(self, shape: Sequence[int]) -> Chain | None:
        """Dims of size 1, and dims put in front, repeated by a stride of zero."""
        lead = len(shape) - len(self.shape)
        grown = [k for k, size in enumerate(shape) if k < lead or size != self.shape[k - lead]]
        cuts = sorted({max(k - lead, 0) for k in grown})
        blocks = self._blocks(cuts)
        if blocks is None:
            return None
        order = dict(zip(sorted({0, *cuts}), blocks, strict=True))
        factors: list[Factor] = []
        for k in range(len(shape) + 1):
            if k in grown and shape[k] != 1:
                # A dim of size 1 has no factors: the block behind its start follows.
                factors.append((shape[k], 0))
            if k >= lead:
                factors += order.pop(k - lead, [])
        return self._with(shape, factors)

    def reshape(self, shape: Sequence[int]) -> Chain:
        """The same elements in the same order, in as many of `shape`."""
        return self._with(shape, self.factors)

    def then(self, op: Op) -> Chain | None:
        """What an operation makes of this Chain; None: a copy must come first."""
        name, given = op
        made: Chain | None = getattr(self, "reshape" if name == VIEW else name)(*given)
        return made

    def once(self) -> tuple[Layout, Layout | None]:
        """What to copy if repeated elements are copied once, and the view of that; None: no use.

        >>> Chain.of(Layout.row_major((3, 1), 8)).broadcast_to((3, 99)).once()[0].shape
        (3,)
        """
        factors = [factor for factor in self.factors if factor[1] != 0]
        if len(factors) == len(self.factors) or 0 in self.shape:
            return self.layout, None
        stride, strides = self.bits, []
        for size, apart in reversed(self.factors):
            strides.append(stride if apart else 0)
            stride *= size if apart else 1
        sizes = [size for size, _ in self.factors]
        kept = Chain(tuple(n for n, _ in factors), tuple(factors), self.offset, self.bits)
        return kept.layout, Layout.of(sizes, strides[::-1], 0, self.bits).reshape(self.shape)

    def _with(
        self, shape: Sequence[int], factors: Sequence[Factor], offset: int | None = None
    ) -> Chain:
        """Another Chain over the same memory, evenly spaced neighbours merged."""
        if 0 in shape:
            return Chain(tuple(shape), (), 0, self.bits)
        merged: list[Factor] = []
        for size, stride in factors:
            if size == 1:
                continue
            if merged and merged[-1][1] == size * stride:
                merged[-1] = (merged[-1][0] * size, stride)
            else:
                merged.append((size, stride))
        at = self.offset if offset is None else offset
        return Chain(tuple(shape), tuple(merged), at, self.bits)

    def _around(self, axis: int) -> tuple[list[Factor], list[Factor], list[Factor]] | None:
        """The factors before, of and behind a dim."""
        blocks = self._blocks(sorted({axis, axis + 1}))
        if blocks is None:
            return None
        order = dict(zip(sorted({0, axis, axis + 1}), blocks, strict=True))
        return (order[0] if axis else []), order[axis], order[axis + 1]

    def _blocks(self, cuts: Sequence[int]) -> list[list[Factor]] | None:
        """The factors cut before each of the dims `cuts` (and before dim 0), in order."""
        starts = sorted({0, *cuts})
        if 0 in self.shape:
            return [[] for _ in starts]
        blocks: list[list[Factor]] = []
        left = list(self.factors)
        for start in reversed(starts[1:]):
            behind = _taken(left, prod(self.shape[start:]) // _size(blocks))
            if behind is None:
                return None
            blocks.insert(0, behind)
        return [left, *blocks]


def _size(blocks: Sequence[Sequence[Factor]]) -> int:
    return prod(size for block in blocks for size, _ in block)


def _taken(factors: list[Factor], count: int) -> list[Factor] | None:
    """The last factors, `count` elements together, taken off the list; None: they do not divide."""
    taken: list[Factor] = []
    while count > 1:
        size, stride = factors.pop()
        if count % size == 0:
            taken.insert(0, (size, stride))
            count //= size
        elif size % count == 0:
            taken.insert(0, (count, stride))
            factors.append((size // count, stride * count))
            count = 1
        else:
            return None
    return taken


def _offset(factors: Sequence[Factor], index: int) -> int:
    """Bits from the first element of a block to its element `index`."""
    offset = 0
    for size, stride in reversed(factors):
        index, digit = divmod(index, size)
        offset += digit * stride
    return offset


def _narrowed(
    factors: list[Factor], start: int, size: int, step: int
) -> tuple[list[Factor], int] | None:
    """The factors of elements `start`, `start` + `step` ... of a block, and where they begin."""
    if size == 1:
        return [], _offset(factors, start)
    if step < 0:
        turned = _narrowed(factors, start + (size - 1) * step, size, -step)
        if turned is None:
            return None
        kept, offset = turned
        offset += sum((n - 1) * stride for n, stride in kept)
        return [(n, -stride) for n, stride in kept], offset
    (_, stride), *inner = factors
    if not inner:
        return [(size, stride * step)], start * stride
    block = prod(n for n, _ in inner)
    first, rest = divmod(start, block)
    if start + (size - 1) * step < (first + 1) * block:
        found = _narrowed(inner, rest, size, step)
        return None if found is None else (found[0], first * stride + found[1])
    if step % block == 0:
        return [(size, stride * (step // block))], first * stride + _offset(inner, rest)
    each = block // step
    if block % step == 0 and rest < step and size % each == 0:
        found = _narrowed(inner, rest, each, step)
        if found is not None:
            return [(size // each, stride), *found[0]], first * stride + found[1]
    return None


@dataclass(frozen=True, slots=True)
class Route:
    """What operations come to on one source.

    `copies` are Layouts that become row-major in turn, the first of the source,
    each other one of the memory of the last. `view` is the result as a view of
    the last copy, or of the source if there is none; None if it is the last copy
    itself. `fills` are the copies if the result goes, row-major, into memory
    that is given. `fresh` says that it shares none with the source, `locked`
    that it is a read-only view.
    """

    shape: tuple[int, ...]
    copies: tuple[Layout, ...]
    view: Layout | None
    fills: tuple[Layout, ...]
    fresh: bool
    locked: bool


def route(ops: Sequence[Op], source: Layout) -> Route:
    """The fewest copies that do `ops`; the result shares memory where step by step it would.

    Raises ReshapeError where a VIEW is asked for that does not exist.

    >>> ops = (("permute", ((1, 0),)), ("reshape", ((24,),)), ("reshape", ((2, 12),)))
    >>> len(route(ops, Layout.row_major((4, 6), 8)).copies)
    1
    """
    seen, chain = source, Chain.of(source)
    fresh = locked = False
    copies: list[Layout] = []
    for op in ops:
        name, given = op
        if op == COPY or (op == CONTIGUOUS and not (seen.contiguous and seen.offset % 8 == 0)):
            view = None
        elif op == CONTIGUOUS:
            view = seen
        else:
            # A reshape without a view is a copy for whoever goes step by step.
            view = getattr(seen, "reshape" if name == VIEW else name)(*given)
            if view is None and name == VIEW:
                note = f"strides {seen.strides} need a copy, which copy=False forbids"
                raise ReshapeError("cannot view", seen.shape, given[0], (note,), "reshape")
            following = chain.then(op)
            if following is None:
                copies.append(chain.layout)
                chain = Chain.of(Layout.row_major(chain.shape, chain.bits))
                following = chain.then(op)
                assert following is not None  # a row-major array has every view
            chain = following
        fresh = fresh or view is None
        locked = view is not None and (locked or name == "broadcast_to")
        seen = Layout.row_major(chain.shape, chain.bits) if view is None else view
    if not fresh:
        return Route(seen.shape, (), seen, (seen,), False, locked)
    fills = (*copies, chain.layout)
    if copies:
        # What is left to do may be a view of the last copy, or nothing at all.
        left = chain.layout.reshape(chain.shape)
        if left == Layout.row_major(chain.shape, chain.bits) and left.size == copies[-1].size:
            return Route(seen.shape, tuple(copies), None, tuple(copies), True, False)
        apart = locked or left is None or not _repeats(left)
        if left is not None and apart and (left.contiguous or not seen.contiguous):
            return Route(seen.shape, tuple(copies), left, fills, True, locked)
    # What may be written has no element twice.
    once, view = chain.once()
    if view is not None and locked and not seen.contiguous:
        return Route(seen.shape, (*copies, once), view, fills, True, locked)
    return Route(seen.shape, fills, None, fills, True, False)


def _repeats(layout: Layout) -> bool:
    """Whether an element stands in more than one place."""
    return any(s == 0 and n > 1 for n, s in zip(layout.shape, layout.strides, strict=True))


def batched(ops: Sequence[Op], shape: Sequence[int], count: int) -> tuple[Op, ...]:
    """What does `ops` to each of `count` arrays of `shape` that are stacked along a new dim 0.

    >>> batched((("permute", ((1, 0),)), ("reshape", ((6,),))), (2, 3), 5)
    (('permute', ((0, 2, 1),)), ('reshape', ((5, 6),)))
    """
    seen, made = Layout.row_major(shape, 8), list[Op]()
    for op in ops:
        name, given = op
        if op in (COPY, CONTIGUOUS):
            made.append(op)
            continue
        if name in ("reshape", VIEW):
            made.append((name, ((count, *given[0]),)))
            seen = Layout.row_major(given[0], 8)
            continue
        if name == "broadcast_to":
            lead = len(given[0]) - seen.ndim
            made.append(("reshape", ((count, *(1,) * lead, *seen.shape),)))
            batched_given: tuple[Any, ...] = ((count, *given[0]),)
        elif name == "permute":
            batched_given = ((0, *(1 + axis for axis in given[0])),)
        elif name == "flip":
            batched_given = (tuple(1 + axis for axis in given[0]),)
        else:
            batched_given = (1 + given[0], *given[1:])
        made.append((name, batched_given))
        seen = getattr(seen, name)(*given)
    return tuple(made)


Shape = tuple[int, ...]


def checked_ops(ops: object, shape: Shape) -> Shape:
    """The shape that `ops`, done to an array of `shape`, result in.

    Raises FormatError, which names the operation, for anything that tracing does
    not write: an unknown name, arguments other than tuples of ints, and elements
    that the array does not have at that point.

    >>> checked_ops((("permute", ((1, 0),)), ("narrow", (0, 2, 2, -2))), (2, 3))
    (2, 2)
    >>> checked_ops((("select", (0, 2)),), (2, 3))
    Traceback (most recent call last):
        ...
    shapejit.errors.FormatError: operation 0 (select) of shape (2, 3): index 2 is out of bounds
    """
    if type(ops) is not tuple:
        raise FormatError(f"operations are a tuple, not {type(ops).__name__}")
    for i, op in enumerate(ops):
        if type(op) is not tuple or list(map(type, op)) != [str, tuple]:
            raise FormatError(f"operation {i} is not a pair of a name and a tuple of arguments")
        name, given = op
        if name not in CHECKS:
            raise FormatError(f"operation {i} is unknown: {reprlib.repr(name)}")
        try:
            shape = CHECKS[name](shape, *given)
        except TypeError:
            raise FormatError(f"operation {i} ({name}) takes another number of arguments") from None
        except ShapeJitError as fault:
            where = f"operation {i} ({name}) of shape {shape_text(shape)}"
            raise FormatError(f"{where}: {fault}") from None
    return shape


def _check_permute(shape: Shape, axes: Any) -> Shape:
    _check_axes(axes, len(shape))
    if len(axes) != len(shape):
        raise FormatError(f"{len(axes)} axes for {len(shape)} dims")
    return tuple(shape[axis] for axis in axes)


def _check_flip(shape: Shape, axes: Any) -> Shape:
    _check_axes(axes, len(shape))
    return shape


def _check_narrow(shape: Shape, axis: Any, start: Any, size: Any, step: Any) -> Shape:
    _check_axes((axis,), len(shape))
    _check_ints((start, size, step))
    if size < 0 or (size > 1 and step == 0):
        raise FormatError(f"a slice cannot have {size} elements in steps of {step}")
    if size > 0:
        _check_index(start, shape[axis])
        _check_index(start + (size - 1) * step, shape[axis])
    return (*shape[:axis], size, *shape[axis + 1 :])


def _check_select(shape: Shape, axis: Any, index: Any) -> Shape:
    _check_axes((axis,), len(shape))
    _check_ints((index,))
    _check_index(index, shape[axis])
    return (*shape[:axis], *shape[axis + 1 :])


def _check_broadcast(shape: Shape, target: Any) -> Shape:
    _check_ints(target)
    checked_shape(target, "the target shape", "broadcast_to")
    lead = len(target) - len(shape)
    if lead < 0 or any(n not in (1, to) for n, to in zip(shape, target[lead:], strict=True)):
        raise FormatError("the sizes differ and are not 1")
    return Shape(target)


def _check_reshape(shape: Shape, target: Any) -> Shape:
    _check_ints(target)
    checked_shape(target, "the target shape", "reshape")
    if prod(shape) != prod(target):
        raise FormatError(f"it has {prod(shape)} elements, the target {prod(target)}")
    return Shape(target)


def _check_nothing(shape: Shape) -> Shape:
    return shape


def _check_ints(values: Any) -> None:
    if type(values) is not tuple or not set(map(type, values)) <= {int}:
        raise FormatError("the arguments are ints and tuples of ints, nothing else")
    if any(not -MAX_SIZE <= value <= MAX_SIZE for value in values):
        raise FormatError("the arguments must fit int64")


def _check_index(index: int, size: int) -> None:
    if not 0 <= index < size:
        raise FormatError(f"index {index} is out of bounds")


def _check_axes(axes: Any, ndim: int) -> None:
    """Refuse axes that are not counted from the front, or are given twice."""
    _check_ints(axes)
    if len(set(axes)) < len(axes) or not set(axes) <= set(range(ndim)):
        raise FormatError(f"the axes must be different ones of the {ndim} dims")


# Operation -> what checks its arguments against the shape before it and returns that after it.
CHECKS: dict[str, Callable[..., Shape]] = {
    "permute": _check_permute,
    "flip": _check_flip,
    "narrow": _check_narrow,
    "select": _check_select,
    "broadcast_to": _check_broadcast,
    "reshape": _check_reshape,
    VIEW: _check_reshape,
    "copy": _check_nothing,
    "contiguous": _check_nothing,
}
