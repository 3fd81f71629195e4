"""What the specifications say, written as plainly as their text: no speed, no shared code.

An oracle returns the answer or raises ValueError (the shape is not allowed) or TypeError
(the argument is of the wrong type); `check_same` compares either with the code under test.
"""

import itertools
from fractions import Fraction
from functools import cache

import shapejit as sj

# The exhaustive run: every source of rank <= 3 with dims 0-3, every target of rank <= 3
# with entries -2..4.
SOURCES = [s for rank in range(4) for s in itertools.product(range(4), repeat=rank)]
TARGETS = [t for rank in range(4) for t in itertools.product(range(-2, 5), repeat=rank)]

INT64 = 2**63 - 1


def check_same(f, g):
    """The values of f() and g() are equal, or both raise, errors of the same kind.

    f is the code under test, which may raise nothing but shapejit's own errors; g is an oracle.
    """
    try:
        mine = f()
    except sj.ShapeJitError as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        mine = kind if str(error) else "an error without a message"
    try:
        theirs = g()
    except (TypeError, ValueError) as error:
        theirs = type(error)
    assert mine == theirs, f"{f} gives {mine}, the specification says {theirs}"


# Reshape ------------------------------------------------------------------------------


def array_api(source, shape):
    """0 is a literal size; one -1; it is undefined beside a 0."""
    return reshaped(tuple(source), tuple(shape), False, False)


def onnx(source, shape, allowzero=0, opset=25):
    """ONNX Reshape: 0 copies unless allowzero, which opset 14 brought.

    With allowzero, "it is invalid for the specified shape to contain both a zero value and
    -1"; a copied 0 beside -1 is taken the same way.
    """
    if allowzero not in (0, 1) or opset < 1 or (allowzero and opset < 14):
        raise ValueError
    return reshaped(tuple(source), tuple(shape), not allowzero, False)


def openvino(source, shape, special_zero):
    """OpenVINO Reshape-1: copied dims are taken out of both sides before -1 is worked out."""
    return reshaped(tuple(source), tuple(shape), special_zero, True)


def onednn(source, shape, special_zero):
    """oneDNN Graph StaticReshape, and DynamicReshape likewise."""
    return reshaped(tuple(source), tuple(shape), special_zero, False)


def reshaped(source, shape, zero_copies, cancels):
    target = _reshaped(source, shape, zero_copies, cancels)
    if target is None:
        raise ValueError
    return target


@cache
def _reshaped(source, shape, zero_copies, cancels):
    """The target shape, or None where the specification allows none."""
    if any(not 0 <= size <= INT64 for size in source):
        return None
    if any(not -1 <= token <= INT64 for token in shape):
        return None
    if shape.count(-1) > 1:
        return None
    copying = [i for i, token in enumerate(shape) if token == 0 and zero_copies]
    if any(i >= len(source) for i in copying):
        return None
    target = [source[i] if i in copying else token for i, token in enumerate(shape)]
    if too_large(source) or too_large(size for size in target if size != -1):
        return None
    if -1 in target:
        target[target.index(-1)] = inferred(source, target, copying, cancels)
    return tuple(target) if None not in target and product(source) == product(target) else None


def inferred(source, target, copying, cancels):
    """What -1 stands for: the elements left over, or None."""
    have, others = list(source), [size for size in target if size != -1]
    if cancels:
        for i in copying:
            have.remove(source[i])
            others.remove(source[i])
        if product(have) == product(others) == 0:
            return 1  # 0 / 0: the text is silent, the implementation gives 1
    if product(others) == 0:
        return None
    size = Fraction(product(have), product(others))
    return int(size) if size.denominator == 1 else None


def product(sizes):
    answer = 1
    for size in sizes:
        answer *= size
    return answer


def too_large(sizes):
    """Whether the sizes that are not 0 multiply to more than int64 holds."""
    return product(size for size in sizes if size != 0) > INT64


# Shape --------------------------------------------------------------------------------


def shape(source, start=None, end=None, opset=25):
    """ONNX Shape: the dims from start to end; opset 15 brought both attributes.

    "Negative values are counted from the end"; both are then clamped to [0, rank].
    """
    if opset < 1 or (opset < 15 and not (start in (None, 0) and end is None)):
        raise ValueError
    rank = len(source)
    start = 0 if start is None else start
    end = rank if end is None else end
    start = start + rank if start < 0 else start
    end = end + rank if end < 0 else end
    start = 0 if start < 0 else rank if start > rank else start
    end = 0 if end < 0 else rank if end > rank else end
    return [source[i] for i in range(start, end)]
