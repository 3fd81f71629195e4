"""Request: a target shape as a dialect passes it to the resolver, before any arithmetic."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from ..errors import DTypeError, ReshapeError
from ..runtime.ndarrays import is_a, is_sequence, plain
from .arithmetic import COPY_DIM, INFER, INVALID, MAX_SIZE

MAX_INTS = 1024  # at most: a huge range or stride-0 array must not fill the memory

# Not np.integer, which includes timedelta64.
_INTEGERS = frozenset(np.dtype(code).type for code in np.typecodes["AllInteger"])
_INT = {int}
Ints = tuple[int, ...]  # sizes, strides or axes

_BYTES = str | bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Request:
    """A target shape as the resolver understands it.

    `dims` holds for each dim a size in elements, `INFER` (the one -1), `COPY_DIM` (the size of the
    source dim of the same index), or `INVALID` (an error in every dialect). `cancel` is the rule
    for tensors without elements: if False, a -1 beside a zero is an error; if True, copied dims
    cancel on both sides before the -1 is computed, and 0 / 0 is 1. `tokens` is the shape as it was
    given and `asked_by` the operation, both only for messages: comparisons ignore them.

    >>> Request((2, INFER)) == Request((2, INFER), asked_by="onnx.Reshape-25")
    True
    """

    dims: tuple[int, ...]
    cancel: bool = False
    tokens: tuple[int, ...] = field(default=(), compare=False)
    asked_by: str = field(default="", compare=False)
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        # A Request is a cache key of every call, so its hash is computed once.
        object.__setattr__(self, "_hash", hash((self.dims, self.cancel)))

    def __hash__(self) -> int:
        return self._hash


def request(
    shape: Any, *, copy_zeros: bool = False, cancel: bool = False, asked_by: str
) -> Request:
    """The Request for a shape in which a 0 copies (`copy_zeros`) or is a size.

    The defaults are the Array API's: 0 is a size, one -1 is inferred.

    >>> request([0, -1], copy_zeros=True, asked_by="doctest").dims
    (-2, -1)
    """
    tokens = integers(shape, "the target shape", asked_by)
    zero = COPY_DIM if copy_zeros else 0
    dims = tuple(zero if t == 0 else int(t) if INFER <= t <= MAX_SIZE else INVALID for t in tokens)
    return Request(dims, cancel, tokens, asked_by)


def integers(values: Any, what: str, asked_by: object) -> Ints:
    """The ints of a sequence or of a 1-D integer array, with their values unchanged.

    Bools are refused, NumPy's integers accepted.

    >>> integers(np.array([2, -1]), "the shape", "doctest")
    (2, -1)
    """
    # is_sequence(x) takes longer than a view operation: skipped for these two.
    if type(values) is not tuple and type(values) is not list:
        values = _elements(values, what, asked_by)
    if len(values) > MAX_INTS:
        raise ReshapeError(f"{what} may have {MAX_INTS} dims at most", asked_by=asked_by)
    if set(map(type, values)) <= _INT:
        return tuple(values)
    return tuple([integer(v, what, asked_by) for v in values])


def plain_shape(shape: Any, what: str, asked_by: str) -> Ints:
    """`integers`, where an int is a shape of one dim."""
    if type(shape) is not tuple and isinstance(shape, int | np.integer):
        shape = (shape,)
    return integers(shape, what, asked_by)


def one_or_several(values: Any, what: str, asked_by: str) -> Ints:
    """The ints of a sequence or 1-D integer array of any length, or of a single int.

    >>> one_or_several(3, "repeats", "doctest"), one_or_several([1, 2], "repeats", "doctest")
    ((3,), (1, 2))
    """
    if not are_several(values):
        return (integer(values, what, asked_by),)
    try:
        long = len(values) > MAX_INTS
    except OverflowError:  # of range(2**64)
        raise ReshapeError(f"{what} has too many items", asked_by=asked_by) from None
    if is_a(values, np.ndarray) or long:
        many = np.asarray(values)
        if many.ndim != 1 or many.dtype.kind not in "iu":
            found = f"{many.dtype} of shape {many.shape}"
            raise DTypeError(f"{what} must hold integers, not {found} ({asked_by})")
        return tuple(many.tolist())
    return integers(values, what, asked_by)


def are_several(values: Any) -> bool:
    """Whether it is a sequence, or an array with dims."""
    return is_sequence(values) or (is_a(values, np.ndarray) and values.ndim > 0)


def are_sizes(shape: Any) -> bool:
    """Whether a shape is a tuple of sizes and -1: a fast test."""
    if type(shape) is not tuple:
        return False
    for size in shape:  # for up to ten dims faster than `map`, `set` and `min`
        if type(size) is not int or size < INFER:
            return False
    return len(shape) > 0


def integer(value: Any, what: str, asked_by: object) -> int:
    """The value as an exact int: enums that equal it do not get into messages and caches."""
    try:
        if not isinstance(value, bool):
            return int(operator.index(value))
    except TypeError:
        pass
    raise DTypeError(f"{what} must hold ints only, not {value!r} ({asked_by})")


def _elements(values: Any, what: str, asked_by: object) -> Sequence[Any]:
    """The items of a sequence or a 1-D integer array, at most one more than MAX_INTS."""
    if is_a(values, np.ndarray):
        array = plain(values)
        if array.ndim != 1:
            raise ReshapeError(f"{what} must be 1-D, not {array.ndim}-D", asked_by=asked_by)
        if array.dtype.type not in _INTEGERS:
            raise DTypeError(f"{what} must hold integers, not {array.dtype} ({asked_by})")
        return list(array[: MAX_INTS + 1].tolist())
    if isinstance(values, Request):
        raise DTypeError(
            f"{what} must be ints, not a Request ({asked_by}): pass resolve(x.shape, request), "
            f"or use the reshape of its specification, such as onnx.reshape"
        )
    if not is_sequence(values) or isinstance(values, _BYTES):
        raise DTypeError(
            f"{what} must be a sequence of ints or a 1-D integer array, "
            f"not {type(values).__name__} ({asked_by})"
        )
    return list(islice(values, MAX_INTS + 1))
