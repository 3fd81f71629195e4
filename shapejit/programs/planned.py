"""sj.plan: trace a function into a Program, for one shape or for any length of dim 0."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..arrays.tensor import Tensor
from ..dtypes.table import fixed_width
from ..runtime.ndarrays import is_sequence
from ..shapes.layout import checked_shape
from .program import Program
from .trace import traced


def plan(shape: Sequence[int | None], dtype: object, fn: Callable[[Tensor], Tensor]) -> Program:
    """Trace `fn`, a function of one Tensor of `shape` and `dtype`, into a Program.

    `fn` is called once, with a Tensor that has a shape (in elements) and no data. It may use the
    shape methods of Tensor, shapejit's shape operations (also those of dialects), casts, scales and
    basic slicing; operations that read or join elements, and `out=`, raise TraceError. The Program
    returns views where possible; copies, casts and scales are fused into as few copies as possible.
    If dim 0 is None it may have any length, and `fn` is called for each new one.

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
        return Program(tuple(shape), kind, fn=fn)
    sizes = checked_shape(shape, "the shape", "plan")
    return Program(sizes, kind, traced(fn, sizes, kind))


plan.__module__ = "shapejit"  # the module named in pickles
