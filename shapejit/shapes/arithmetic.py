"""The integer arithmetic of shapes that Python and kernels share.

It uses the subset of Python that numba compiles, and imports nothing from the package: `kernels`
compiles these very functions, so an edit of this module makes all kernels recompile.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence

# What a dim of a request may be instead of a size: the one -1, the size of the source dim of
# the same index, an error in every dialect.
INFER = -1
COPY_DIM = -2
INVALID = -3

MAX_SIZE = 2**63 - 1

# The status codes of `resolve_dims`.
OK = 0
BAD_SOURCE = 1
BAD_SIZE = 2
SECOND_INFER = 3
NOTHING_TO_COPY = 4
SOURCE_OVERFLOW = 5
TARGET_OVERFLOW = 6
INFER_UNDEFINED = 7
INFER_NOT_WHOLE = 8
COUNTS_DIFFER = 9


def resolve_dims(
    source: Sequence[int], dims: Sequence[int], cancel: bool, target: MutableSequence[int]
) -> tuple[int, int]:
    """Write the target shape for `dims` into `target`; return (status, dim concerned or -1).

    Products are of non-zero sizes, and zeros are counted separately, so that overflow does not
    depend on the order of the dims.
    """
    count, zeros, known, known_zeros, infer = 1, 0, 1, 0, -1
    for i, size in enumerate(source):
        if size < 0:
            return BAD_SOURCE, i
        if size == 0:
            zeros += 1
        elif count > MAX_SIZE // size:
            return SOURCE_OVERFLOW, i
        else:
            count *= size
    for i, asked in enumerate(dims):
        size = asked
        if size == INFER:
            if infer >= 0:
                return SECOND_INFER, i
            infer = i
            target[i] = 1
            continue
        if size == COPY_DIM:
            if i >= len(source):
                return NOTHING_TO_COPY, i
            size = source[i]
        elif size < 0:
            return BAD_SIZE, i
        target[i] = size
        if size == 0:
            known_zeros += 1
        elif known > MAX_SIZE // size:
            return TARGET_OVERFLOW, i
        else:
            known *= size

    if infer < 0:
        empty = zeros > 0 and known_zeros > 0
        same = empty or (count == known and zeros == known_zeros)
        return (OK, -1) if same else (COUNTS_DIFFER, -1)

    if cancel:
        # A copied dim is on both sides, so its zero cancels. A non-zero size c may stay
        # in both products: (count * c) / (known * c) is the same quotient.
        for i in range(len(dims)):
            if dims[i] == COPY_DIM and source[i] == 0:
                zeros -= 1
                known_zeros -= 1
        if known_zeros > 0 and zeros > 0:
            return OK, -1
    if known_zeros > 0:
        return INFER_UNDEFINED, infer
    if zeros == 0 and count % known != 0:
        return INFER_NOT_WHOLE, infer
    target[infer] = 0 if zeros > 0 else count // known
    return OK, -1


def view_strides(
    sizes: Sequence[int],
    strides: Sequence[int],
    kept: int,
    bits: int,
    target: Sequence[int],
    made: MutableSequence[int],
) -> bool:
    """Write the strides of a view of shape `target` of merged dims; False if there is none.

    `target` has as many elements, and at least one; a dim of size 1 may get any stride.
    """
    left, stride = 1, bits
    for k in range(len(target) - 1, -1, -1):
        if target[k] > 1 and left == 1:
            kept -= 1
            left, stride = sizes[kept], strides[kept]
        if left % target[k] != 0:
            return False
        made[k] = stride
        left //= target[k]
        stride *= target[k]
    return True


def merge(sizes: MutableSequence[int], sides: Sequence[MutableSequence[int]], rank: int) -> int:
    """Merge neighbouring dims in place that are evenly spaced on every side, and drop size 1.

    `sides` holds the strides of the dims, for one or several sides. Returns the number of dims
    left; entries after these are unspecified.
    """
    kept = 0
    for k in range(rank):
        size = sizes[k]
        if size == 1:
            continue
        joins = kept > 0
        for strides in sides:
            joins = joins and strides[kept - 1] == size * strides[k]
        if joins:
            kept -= 1
            size *= sizes[kept]
        sizes[kept] = size
        for strides in sides:
            strides[kept] = strides[k]
        kept += 1
    return kept
