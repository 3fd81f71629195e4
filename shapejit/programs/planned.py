"""sj.plan: the Program of a function, for one shape or for any length of dim 0."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, overload

from numpy.typing import NDArray

from .. import outputs
from ..arrays import foreign
from ..arrays.foreign import Other, Out
from ..arrays.tensor import Tensor, is_array
from ..dtypes.table import DType, fixed_width
from ..errors import DTypeError, ReshapeError, about
from ..runtime.ndarrays import is_a, is_sequence, plain
from ..runtime.recent import Recent
from ..shapes.layout import checked_shape
from .columns import MapsBatches
from .program import Program
from .trace import traced

_Outs = Sequence[Any] | Callable[[int], Any] | None

KEPT = 64  # lengths whose Programs are remembered


@overload
def plan(shape: Sequence[int], dtype: object, fn: Callable[[Tensor], Tensor]) -> Program: ...
@overload
def plan(
    shape: Sequence[int | None], dtype: object, fn: Callable[[Tensor], Tensor]
) -> Program | FreeProgram: ...


def plan(
    shape: Sequence[int | None], dtype: object, fn: Callable[[Tensor], Tensor]
) -> Program | FreeProgram:
    """The Program of `fn`, a function that moves the dims of one Tensor of `shape` and `dtype`.

    `fn` is called once, with a Tensor that has a shape (in elements) and no
    data: it may use the shape methods of Tensor, shapejit's shape operations
    (those of the dialects too) and basic slicing. What reads, converts or joins
    elements, and `out=`, raises TraceError. Whatever can be a view is one, and
    copies are fused into as few as possible, casts and scales with them. Where dim 0
    is None it may have any length: the result is a FreeProgram, which calls `fn` for each
    new one.

    >>> print(plan((8, 128, 4, 64), "bfloat16", lambda t: t.permute_dims((0, 2, 1, 3))))
    (8, 128, 4, 64) -> (8, 4, 128, 64) bfloat16: a view, nothing is moved
    >>> heads = plan((128, 128, 256), "bfloat16", lambda t:
    ...     t.reshape((128, 128, 4, 64)).permute_dims((0, 2, 1, 3)).reshape((512, 128, 64)))
    >>> print(heads)
    (128, 128, 256) -> (512, 128, 64) bfloat16: 1 copy, 8388608 bytes read, 8388608 written
    1. scatter: runs in the source's order, to a few places; 128 bytes at a time, 8388608 bytes
      loop 128: source +65536, target +65536 bytes
      column 4: source +128, target +16384 bytes
      row 128: source +512, target +128 bytes
      split over the threads, whole lines streamed past the caches
    """
    kind = fixed_width(dtype)
    if is_sequence(shape) and next(iter(shape), 0) is None:
        return FreeProgram(checked_shape(tuple(shape)[1:], "the shape", "plan"), kind, fn)
    return _traced(checked_shape(shape, "the shape", "plan"), kind, fn)


def _traced(shape: tuple[int, ...], kind: DType, fn: Callable[[Tensor], Tensor]) -> Program:
    return Program(shape, kind, traced(fn, shape, kind))


plan.__module__ = "shapejit"  # where pickles look for it


@dataclass(frozen=True, eq=False)
class FreeProgram(MapsBatches):
    """What `plan` makes of a shape whose dim 0 is None; `fn` is traced for each new length.

    >>> import numpy as np
    >>> import shapejit as sj
    >>> rows = sj.plan((None, 2), "uint8", lambda t: t.T.cast("float32"))
    >>> [rows(np.ones((n, 2), np.uint8)).shape for n in (1, 3)]
    [(2, 1), (2, 3)]
    """

    shape: tuple[int, ...]  # without dim 0
    dtype: DType
    fn: Callable[[Tensor], Tensor]
    _known: Recent[int, Program] = field(default_factory=lambda: Recent(KEPT), init=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return plan, ((None, *self.shape), self.dtype, self.fn)

    def of(self, length: int) -> Program:
        """The Program for one length of dim 0 (elements)."""
        program = self._known.get(length)
        if program is None:
            program = _traced((length, *self.shape), self.dtype, self.fn)
            self._known.put(length, program)
        return program

    def fitted(self, shape: tuple[int, ...]) -> Program | None:
        """The Program for arrays of `shape`, if there is one."""
        return self.of(shape[0]) if shape and shape[1:] == self.shape else None

    @overload
    def __call__(self, x: NDArray[Any], out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Other, out: None = None) -> Other: ...
    @overload
    def __call__(self, x: Any, out: Out) -> Out: ...

    def __call__(self, x: Any, out: Any = None) -> Any:
        """As `Program.__call__`, for an array of any length. Raises ReshapeError, DTypeError."""
        if foreign.is_foreign(x):
            return foreign.call_with(self, x, out)
        return self.of(self._length(x))(x, out)

    @overload
    def map(self, tensors: Iterable[NDArray[Any]], out: _Outs = None) -> list[NDArray[Any]]: ...
    @overload
    def map(self, tensors: Iterable[Other], out: _Outs = None) -> list[Other]: ...

    def map(self, tensors: Iterable[Any], out: _Outs = None) -> list[Any]:
        """As `Program.map` of a sequence: a list of results; one launch per length.

        `out` is a sequence of as many arrays, which becomes the list, or a function that
        gives the array for result i. Nothing is written if any tensor or `out` of any length
        is refused; the error names it.
        """
        items = list(tensors)
        if callable(out):
            out = [out(i) for i in range(len(items))]
        if items and foreign.is_foreign(items[0]):
            left: list[Any] = foreign.call_each(self.map, items, out)
            return left
        outs = None if out is None else _listed(out, len(items))
        lengths: dict[int, list[int]] = {}
        for i, x in enumerate(items):
            with about(f"tensor {i}"):
                lengths.setdefault(self._length(x), []).append(i)
        jobs = []
        for length, which in lengths.items():
            targets = None if outs is None else [outs[i] for i in which]
            jobs.append(self.of(length).mapped([items[i] for i in which], targets, which))
        order = [i for which in lengths.values() for i in which]
        if jobs and outs is not None:
            into = [job.targets for job in jobs if job.targets is not None]
            outputs.check_lists_apart([job.sources for job in jobs], into, order)
        results: list[Any] = [None] * len(items)
        made = chain.from_iterable(job.results() for job in jobs)
        for i, result in zip(order, made, strict=True):
            results[i] = result
        return results

    def _length(self, x: Any) -> int:
        if not is_array(x):
            raise DTypeError(f"expected an ndarray or a Tensor, not {type(x).__name__}")
        shape = x.shape if is_a(x, Tensor) else plain(x).shape
        if shape[1:] != self.shape or not shape:
            want = ", ".join(["n", *map(str, self.shape)])
            raise ReshapeError(f"a tensor for this program has shape ({want}), not {shape}")
        return int(shape[0])


def _listed(out: Any, count: int) -> list[Any]:
    """The arrays of an out=, as many as there are results."""
    try:
        outs = list(out)
    except TypeError:
        raise DTypeError(
            f"out= must be a sequence of arrays, or a function of the index, "
            f"not {type(out).__name__}"
        ) from None
    if len(outs) != count:
        raise ReshapeError(f"out= holds {len(outs)} arrays for {count} tensors")
    return outs
