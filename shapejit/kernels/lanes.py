"""Lanes: vector registers that compute like NumPy arrays; expressions over them emit LLVM.

Lanes are the elements of a vector, or a single value. They accept operators, `astype`, `view`,
`np.where` and the functions in `_NUMPY_FUNCTIONS`, so the same code computes with arrays and with
Lanes. Python numbers have the dtype of the other operand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from llvmlite import ir

from . import llvm, pointers
from .numerics import Values

_FLOAT_TYPES = {2: ir.HalfType(), 4: ir.FloatType(), 8: ir.DoubleType()}


def type_of(dtype: Any, count: int = 0) -> Any:
    """The LLVM type of `count` elements of a dtype; 0 for a single value."""
    kind = np.dtype(dtype)
    bits = 1 if kind.kind == "b" else 8 * kind.itemsize
    one = _FLOAT_TYPES[kind.itemsize] if kind.kind == "f" else ir.IntType(bits)
    return ir.VectorType(one, count) if count else one


class Lanes(np.lib.mixins.NDArrayOperatorsMixin):
    """An LLVM vector or single value whose elements have a NumPy dtype."""

    def __init__(self, builder: Any, value: Any, dtype: Any) -> None:
        self.builder, self.value, self.dtype = builder, value, np.dtype(dtype)

    @property
    def count(self) -> int:
        """The number of elements; 0 for a single value."""
        return self.value.type.count if isinstance(self.value.type, ir.VectorType) else 0

    def of(self, value: Any, dtype: Any = None) -> Values:
        """A value like these Lanes, in their dtype or the given one."""
        return Lanes(self.builder, value, self.dtype if dtype is None else dtype)

    def constant(self, value: Any, dtype: Any = None) -> Values:
        """A number, repeated for all elements, or a vector of a list of them."""
        made, listed = self.of(None, dtype), isinstance(value, list)
        mask = (1 << 8 * made.dtype.itemsize) - 1

        def number(each: Any) -> Any:
            return float(each) if made.dtype.kind == "f" else int(each) & mask

        kind = type_of(made.dtype, len(value) if listed else self.count)
        made.value = ir.Constant(kind, [*map(number, value)] if listed else number(value))
        return made

    def astype(self, dtype: Any, copy: bool = False) -> Values:
        """Numbers as those of another dtype."""
        before, after = self.dtype, np.dtype(dtype)
        if before == after:
            return self
        if after.kind == "f" and before.kind in "iu" and before.itemsize < 4:
            return self.astype("i4").astype(after)
        size = after.itemsize - (0 if before.kind == "b" else before.itemsize)
        if before.kind == "f":
            name = {"f": "fpext" if size > 0 else "fptrunc", "i": "fptosi", "u": "fptoui"}
            step = name[after.kind]
        elif after.kind == "f":
            step = "sitofp" if before.kind == "i" else "uitofp"
        elif size == 0:
            return self.of(self.value, after)
        else:
            step = "trunc" if size < 0 else "sext" if before.kind == "i" else "zext"
        return self.of(getattr(self.builder, step)(self.value, type_of(after, self.count)), after)

    def view(self, dtype: Any) -> Values:
        """The same bits as another dtype; as many elements if these are as wide."""
        after = np.dtype(dtype)
        if self.dtype.kind == "b":  # a byte in arrays
            return self.astype(after)
        kind = type_of(after, self.count * self.dtype.itemsize // after.itemsize)
        same = kind == self.value.type
        return self.of(self.value if same else self.builder.bitcast(self.value, kind), after)

    def chosen(self, order: list[int], other: Values | None = None) -> Values:
        """The elements at these indices; indices beyond the end select from `other`."""
        if other is None and order == list(range(self.count)):
            return self
        second = self if other is None else other
        return self.of(llvm.shuffle(self.builder, self.value, second.value, order))

    def parts(self, size: int) -> list[Any]:
        """The vectors of `size` elements that they consist of."""
        starts = range(0, self.count, size)
        return [self.chosen(list(range(k, k + size))).value for k in starts]

    def spread(self, count: int) -> Values:
        """A single value, repeated `count` times."""
        return self.of(llvm.splat(self.builder, self.value, count))

    def __array_ufunc__(self, function: Any, method: str, *given: Any) -> Any:
        assert method == "__call__"
        return _NUMPY_FUNCTIONS[function](*_alike(given))

    def __array_function__(self, function: Any, _: Any, given: Any, named: Any) -> Any:
        assert not named
        if function is np.clip:
            values, low, high = given
            return np.minimum(np.maximum(values, low), high)
        assert function is np.where
        test, *both = given
        one, other = _alike(both)
        return one.of(self.builder.select(test.value, one.value, other.value))


def _alike(given: Sequence[Any]) -> list[Values]:
    """Python's numbers and bools as Lanes like the other operands."""
    lanes: list[Values] = [each for each in given if isinstance(each, Lanes)]
    like = max(lanes, key=lambda each: each.dtype.kind != "b")
    assert all(each.dtype in (like.dtype, np.bool) for each in lanes), lanes
    return [
        each.astype(like.dtype) if isinstance(each, Lanes) else like.constant(each)
        for each in given
    ]


def _added(a: Values, b: Values) -> Values:
    """A sum, or an address plus an offset."""
    if isinstance(a.value.type, ir.PointerType):
        return a.of(pointers.moved(a.builder, a.value, b.value))
    return _operation("add", floats="fadd")(a, b)


def load(place: Values, dtype: Any, count: int = 0) -> Values:
    """`count` elements at an address, which need not be aligned."""
    return place.of(llvm.load(place.builder, place.value, type_of(dtype, count)), dtype)


@contextmanager
def loop(count: Values, step: int = 1) -> Iterator[Values]:
    """A loop over `count` elements, `step` at a time."""
    with llvm.counted(count.builder, count.value, llvm.number(step)) as index:
        yield count.of(index)


def by_vectors(
    begin: Values, end: Values, least: Values, lanes: int, step: Callable[[Values, int], None]
) -> None:
    """Run `step(index, lanes)` for the elements [begin, end), by vectors or single elements.

    The last vector reaches back, but not before `least`.
    """
    with begin.builder.if_else((end - least < lanes).value) as (few, many):
        with few, loop(end - begin) as index:
            step(begin + index, 1)
        with many, loop(end - begin, lanes) as index:
            step(np.minimum(begin + index, end - lanes), lanes)


def called(builder: Any, name: str, returns: Any, *given: Any) -> Any:
    """The result of an LLVM function, called by its full name."""
    module = builder.module
    kind = ir.FunctionType(returns, [each.type for each in given])
    return builder.call(module.globals.get(name) or ir.Function(module, kind, name), given)


def _operation(name: str, signed: str = "", floats: str = "") -> Callable[..., Values]:
    """An operation by a method of the builder, which may depend on the dtype."""

    def write(a: Values, b: Values) -> Values:
        step = {"f": floats, "i": signed}.get(a.dtype.kind) or name
        return a.of(getattr(a.builder, step)(a.value, b.value))

    return write


def _comparison(sign: str) -> Callable[..., Values]:
    def write(a: Values, b: Values) -> Values:
        floats = "fcmp_unordered" if sign in ("!=", "uno") else "fcmp_ordered"
        step = {"f": floats, "i": "icmp_signed"}.get(a.dtype.kind, "icmp_unsigned")
        return a.of(getattr(a.builder, step)(sign, a.value, b.value), "?")

    return write


def _called(name: str) -> Callable[..., Values]:
    """The result of an LLVM function of floats."""

    def write(a: Values) -> Values:
        full = f"llvm.{name}.v{a.count}f{8 * a.dtype.itemsize}"
        return a.of(called(a.builder, full, a.value.type, a.value))

    return write


_uno = _comparison("uno")
_NUMPY_FUNCTIONS: dict[Any, Callable[..., Values]] = {
    np.add: _added,
    np.subtract: _operation("sub", floats="fsub"),
    np.multiply: _operation("mul", floats="fmul"),
    np.true_divide: _operation("fdiv", floats="fdiv"),
    np.bitwise_and: _operation("and_"),
    np.bitwise_or: _operation("or_"),
    np.bitwise_xor: _operation("xor"),
    np.left_shift: _operation("shl"),
    np.right_shift: _operation("lshr", "ashr"),
    np.invert: lambda a: a.of(a.builder.not_(a.value)),
    np.less: _comparison("<"),
    np.less_equal: _comparison("<="),
    np.greater: _comparison(">"),
    np.greater_equal: _comparison(">="),
    np.equal: _comparison("=="),
    np.not_equal: _comparison("!="),
    np.isnan: lambda a: _uno(a, a),
    np.negative: lambda a: a.of(
        a.builder.fneg(a.value)
        if a.dtype.kind == "f"
        else a.builder.neg(pointers.number(a.builder, a.value) if a.count == 0 else a.value)
    ),
    np.rint: _called("rint"),
    np.absolute: _called("fabs"),
    np.maximum: lambda a, b: np.where(a > b, a, b),
    np.minimum: lambda a, b: np.where(a < b, a, b),
    np.floor_divide: _operation("udiv"),
    np.remainder: _operation("urem"),
}
