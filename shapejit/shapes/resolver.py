"""The resolver: Request -> target shape (by `arithmetic`), or the error that says why not."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from .. import errors
from ..errors import ReshapeError
from ..runtime.ndarrays import is_a
from .arithmetic import (
    BAD_SIZE,
    BAD_SOURCE,
    COPY_DIM,
    INFER,
    INFER_NOT_WHOLE,
    INFER_UNDEFINED,
    MAX_SIZE,
    NOTHING_TO_COPY,
    OK,
    SECOND_INFER,
    SOURCE_OVERFLOW,
    TARGET_OVERFLOW,
    resolve_dims,
)
from .request import Ints, Request, integers, plain_shape, request as requested


@lru_cache(maxsize=4096)
def target_shape(source: Ints, request: Request) -> Ints:
    """`resolve` without checks of its arguments, cached."""
    target = [0] * len(request.dims)
    status, at = resolve_dims(source, request.dims, request.cancel, target)
    if status != OK:
        raise _explain(source, request, status, at)
    return tuple(target)


def resolve(source_shape: Sequence[int], request: Request | Sequence[int] | int) -> tuple[int, ...]:
    """The target shape (sizes in elements) of `request` for a tensor of `source_shape`.

    Requests are made by `shapejit.onnx.request`, `shapejit.openvino.request` and
    `shapejit.onednn.request`; a plain shape means what the Array API says: 0 is a size, one
    -1 is inferred. Raises ReshapeError, with both shapes and a note on each dim
    concerned, if the dialect does not allow the reshape.

    >>> import shapejit as sj
    >>> sj.resolve((2, 3, 4), sj.onnx.request([0, -1])), sj.resolve((2, 6), (3, -1))
    ((2, 12), (3, 4))
    """
    if not is_a(request, Request):
        asked_by = "resolve (Array API)"
        request = requested(plain_shape(request, "the target shape", asked_by), asked_by=asked_by)
    source = integers(source_shape, "the source shape", request.asked_by or "resolve")
    for i, size in enumerate(source):
        if not 0 <= size <= MAX_SIZE:
            raise _explain(source, request, BAD_SOURCE, i)
    return target_shape(source, request)


def _explain(source: Ints, request: Request, status: int, at: int) -> ReshapeError:
    """The ReshapeError for a status of `resolve_dims`, with a note on each dim concerned."""
    dims = request.dims
    tokens = request.tokens or tuple(0 if d == COPY_DIM else d for d in dims)
    notes = [
        errors.copied(i, source[i], request.cancel and INFER in dims and source[i] == 0)
        for i, d in enumerate(dims)
        if d == COPY_DIM and i < len(source) and status >= SOURCE_OVERFLOW
    ]
    sizes = [
        source[i] if d == COPY_DIM else d for i, d in enumerate(dims) if i < len(source) or d >= 0
    ]
    known = [s for s in sizes if s >= 0]
    if status == BAD_SOURCE:
        notes.append(errors.negative_source(at, source[at]))
    elif status == BAD_SIZE:
        notes.append(errors.not_a_size(at, tokens[at]))
    elif status == SECOND_INFER:
        notes.append(errors.second_infer(at))
    elif status == NOTHING_TO_COPY:
        notes.append(errors.nothing_to_copy(at, len(source)))
    elif status in (SOURCE_OVERFLOW, TARGET_OVERFLOW):
        notes.append(errors.overflow("source" if status == SOURCE_OVERFLOW else "target"))
    elif status == INFER_UNDEFINED:
        notes.append(errors.infer_undefined(at, _product(source)))
    elif status == INFER_NOT_WHOLE:
        keep = [i for i, d in enumerate(dims) if d == COPY_DIM and source[i] == 0]
        count = _product([s for i, s in enumerate(source) if i not in keep])
        known = [s for s in known if s != 0]
        notes.append(errors.infer_not_whole(at, count, known, _product(known)))
    else:
        notes.append(errors.counts_differ(_product(source), _product(known)))
    return ReshapeError("cannot reshape", source, tokens, tuple(notes), request.asked_by)


def _product(sizes: Sequence[int]) -> int:
    """The exact product, also beyond int64."""
    product = 1
    for size in sizes:
        product *= size
    return product
