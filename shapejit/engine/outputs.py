"""Every rule about results: which out= is accepted, that it overlaps no input, what is allocated.

An `out` has exactly the result's type (ndarray or Tensor), dtype and shape, is contiguous and
writable, begins on a byte, and shares no byte with the elements of an operand. Only the bits of its
elements are written: the other bits of its last byte keep their values. In new memory they are
zero.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.buffers import Bytes
from ..arrays.tensor import Tensor, is_array
from ..dtypes.promotion import AnyDtype
from ..dtypes.table import DType
from ..errors import DTypeError, ReshapeError, about, shape_text, type_name
from ..planning import thresholds
from ..runtime import result_memory
from ..runtime.ndarrays import array_of, is_a, is_sequence, plain, possible
from ..shapes.layout import Layout
from ..shapes.request import Request
from .addresses import (
    BitAddresses,
    Spans,
    bit_address_of,
    bit_addresses_of,
    meets,
    overlap,
    read_alike,
    span_of,
)

BYTE = np.dtype(np.uint8)


def wants_copy(view: object, x: Any, request: Request, copy: bool | None, out: object) -> bool:
    """Whether a copy has to be made; `view` is the view, or None if there is none.

    Raises ReshapeError if `copy` or `out` ask for something impossible.
    """
    if copy is None:
        return view is None or out is not None
    if copy is True:
        return True
    if copy is not False:
        raise DTypeError(f"copy must be None, True or False, not {copy!r}")
    if out is not None:
        raise ReshapeError("copy=False and out= exclude each other", asked_by=request.asked_by)
    if view is None:
        note = f"strides {x.strides} need a copy, which copy=False forbids"
        raise ReshapeError("cannot view", x.shape, request.tokens, (note,), request.asked_by)
    return False


def checked(out: Any, dtype: AnyDtype, shape: tuple[int, ...]) -> Any:
    """`out` as an exact ndarray or Tensor; raises if it does not fit a result of dtype and shape.

    It must be an ndarray if `dtype` is NumPy's, and a Tensor if that is a DType.
    """
    kind = Tensor if isinstance(dtype, DType) else np.ndarray
    if not is_a(out, kind):
        name = "a shapejit.Tensor" if kind is Tensor else "a numpy.ndarray"
        raise DTypeError(f"out= must be {name} like the source, not {type_name(out)}")
    # The type first: for an exact ndarray, numpy.ma need not be imported, which takes 20 ms.
    if type(out) is not np.ndarray and is_a(out, np.ma.MaskedArray):
        raise DTypeError("out= must not be a masked array, whose mask would stay as it is")
    seen: Any = out if kind is Tensor else plain(out)
    if seen.dtype != dtype:
        raise DTypeError(f"out= has dtype {seen.dtype}, the result {dtype}")
    if seen.shape != shape:
        raise ReshapeError(f"out= has shape {seen.shape}, the result {shape_text(shape)}")
    if isinstance(seen, np.ndarray):
        fit = {"C-contiguous": seen.flags.c_contiguous, "writable": seen.flags.writeable}
    else:
        fit = {"C-contiguous": seen.contiguous, "writable": seen.buffer.flags.writeable}
    if not all(fit.values()):
        raise ReshapeError(f"out= must be {' and '.join(word for word in fit if not fit[word])}")
    if isinstance(seen, Tensor) and seen.offset % 8:
        raise ReshapeError("out= must begin on a byte")
    return seen


def fits(out: Any, dtype: AnyDtype, shape: tuple[int, ...]) -> bool:
    """Whether `out` obviously fits; otherwise `checked` finds any error."""
    if type(out) is np.ndarray:
        return bool(out.dtype is dtype and out.shape == shape and out.flags.carray)
    own = type(out) is Tensor and out.dtype is dtype and out.layout.shape == shape
    return bool(own and out.layout.contiguous_bytes and out.buffer.flags.writeable)


def target(
    out: Any, dtype: AnyDtype, shape: tuple[int, ...], operands: Sequence[Any]
) -> tuple[Any, bool]:
    """The array for a result: a new one, or `out`, which is checked in every way.

    `operands` are the arguments that are read for it; those that are no arrays are ignored. Also
    returns whether the memory is fresh, that is newly allocated and never written.
    """
    if out is None:
        return new_array(dtype, shape)
    if not fits(out, dtype, shape):
        out = checked(out, dtype, shape)
    for x in operands:
        if is_array(x):
            check_apart(x, out, "the source" if x is operands[0] else "another operand")
    return out, False


def check_apart(
    x: NDArray[Any] | Tensor, out: NDArray[Any] | Tensor, what: str = "the source"
) -> None:
    """Raise for an `out` that shares a byte with an element of an operand."""
    read, written = (a.buffer if isinstance(a, Tensor) else a for a in (x, out))
    if not np.may_share_memory(read, written):
        return
    start, end = np.array([span_of(out)]).T
    if meets(*bit_address_of(x), start, end):
        raise ReshapeError(f"out= overlaps {what}")


def new_array(dtype: AnyDtype, shape: tuple[int, ...]) -> tuple[Any, bool]:
    """A new ndarray (`dtype` is NumPy's) or Tensor (a DType), and whether its memory is fresh."""
    if isinstance(dtype, DType):
        layout = Layout.row_major(shape, dtype.bits)
        memory, fresh = new_bytes(layout.size * dtype.bits)
        return Tensor.unchecked(memory, dtype, layout), fresh
    nbytes = prod(shape) * dtype.itemsize
    large = nbytes >= thresholds.RESULT_MEMORY_FROM and not dtype.hasobject
    taken = large and possible(shape, dtype.itemsize) and result_memory.kept().take(nbytes)
    buffer, fresh = taken or (None, True)
    return array_of(shape, dtype, buffer), fresh


def new_bytes(nbits: int, *rows: int) -> tuple[Bytes, bool]:
    """New memory for `nbits` bits, or for `nbits` in each of some `rows`.

    The rest of the last byte is zero.
    """
    memory, fresh = new_array(BYTE, (*rows, (nbits + 7) // 8))
    if nbits % 8:
        memory[..., -1] = 0
    return memory, fresh


def array_over(
    memory: Bytes, dtype: AnyDtype, layout: Layout, readonly: bool = False
) -> NDArray[Any] | Tensor:
    """An ndarray (`dtype` is NumPy's) or a Tensor (a DType) over this memory."""
    if isinstance(dtype, DType):
        made = Tensor.unchecked(memory, dtype, layout)
        return made.readonly() if readonly else made
    strides = tuple(stride // 8 for stride in layout.strides)
    array = array_of(layout.shape, dtype, memory.data, layout.offset // 8, strides)
    if readonly:
        array.flags.writeable = False
    return array


def given(
    out: Any, wanted: Sequence[tuple[AnyDtype, tuple[int, ...]]], names: Sequence[object]
) -> tuple[BitAddresses, Any]:
    """The addresses of results: the rows of one array, or one array for each.

    `wanted` are the dtype and shape of each, or those of all. Returns the addresses, and objects
    that must live until the results are written. Raises if `out` does not fit, or if its arrays
    share bytes with one another. `names` are used in errors.
    """
    (dtype, shape), count = wanted[0], len(names)
    kind, name = (Tensor, "Tensor") if isinstance(dtype, DType) else (np.ndarray, "array")
    bits = dtype.bits if isinstance(dtype, DType) else 8 * dtype.itemsize
    layout, alike = Layout.row_major(shape, bits), len(wanted) == 1
    if alike and is_a(out, kind):
        exact = checked(out, dtype, (count, *shape))
        begins = bit_address_of(exact)[0] + bits * prod(shape) * np.arange(count)
        return BitAddresses.alike(begins, layout), exact
    if is_a(out, kind):
        raise DTypeError(f"the results differ in shape: out= must be a sequence, not one {name}")
    if not is_sequence(out) or isinstance(out, str | bytes):
        raise DTypeError(
            f"out= must be one {name} of all results or a sequence of {name}s, "
            f"not {type(out).__name__}"
        )
    outs = list(out)
    if len(outs) != count:
        raise ReshapeError(f"out= holds {len(outs)} {name}s for {count} tensors")
    fit, addresses = 0, np.empty(0, np.int64)
    if alike and not isinstance(dtype, DType):
        strides = tuple(s // 8 for s in layout.strides)
        addresses, fit = read_alike(tuple(outs), dtype, shape, strides, to_fill=True)
    for i in range(fit, count):
        own = wanted[0 if alike else i]
        if not fits(outs[i], *own):
            with about(f"out {names[i]!r}"):
                outs[i] = checked(outs[i], *own)
    targets = bit_addresses_of(outs)
    if fit == count:
        targets = BitAddresses.alike(8 * addresses, layout)
    check_disjoint(targets.spans(), names)
    return targets, outs


def check_all_apart(
    sources: Spans,
    targets: Spans,
    locate: Callable[[int], tuple[int, Layout]],
    names: Sequence[object],
) -> None:
    """Raise for targets that share bytes with a named source; `locate` as in `overlap`."""
    found = overlap(sources, targets, locate)
    if found is not None:
        with about(f"tensor {names[found]!r}"):
            raise ReshapeError("out= overlaps the source")


def check_disjoint(targets: Spans, names: Sequence[object]) -> None:
    """Raise for outputs that share bytes with one another."""
    starts, ends = targets
    order = np.argsort(starts, kind="stable")
    order = order[ends[order] > starts[order]]
    wrong = np.flatnonzero(starts[order[1:]] < ends[order[:-1]])
    if len(wrong):
        pair = sorted(order[wrong[0] : wrong[0] + 2].tolist())
        raise ReshapeError(f"out {names[pair[1]]!r} overlaps out {names[pair[0]]!r}")


class Pending:
    """Outputs whose results were not yielded yet, and which must not be passed again."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, out: Any) -> bool:
        """Whether `out` shares no byte with those before; other objects raise later."""
        if not is_array(out):
            return True
        array = out if is_a(out, Tensor) else np.ndarray.view(out, np.ndarray)
        if array.size == 0:
            return True
        start, end = span_of(array)
        index = bisect(self._ends, start)
        if index < len(self._starts) and self._starts[index] < end:
            return False
        self._starts.insert(index, start)
        self._ends.insert(index, end)
        return True
