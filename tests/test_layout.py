import copy
import pickle
from itertools import permutations, product
from math import prod

import numpy as np
import pytest
from hypothesis import given, strategies as st
from views import bit_positions

from shapejit import DTypeError, FormatError, ReshapeError
from shapejit.shapes.layout import Layout

SHAPES = [s for rank in range(4) for s in product(range(1, 4), repeat=rank)]


def small_layouts():
    """Row-major layouts of rank <= 3, permuted, with one dim flipped, stepped or broadcast."""
    for shape in SHAPES:
        for axes in permutations(range(len(shape))):
            yield Layout.row_major(shape, 4).permute(axes)
    for shape in SHAPES:
        base = Layout.row_major(shape, 4)
        for axis in range(len(shape)):
            yield base.flip([axis])
            yield base.narrow(axis, 0, (shape[axis] + 1) // 2, 2)
            yield base.broadcast_to((2, *shape))
        yield base.flip(range(base.ndim))


def affine(positions, shape, offset):
    """Whether some strides visit `positions` in the order of `shape`: what a view is."""
    wanted = positions.reshape(shape)
    strides = []
    for axis, size in enumerate(shape):
        index = [0] * len(shape)
        if size > 1:
            index[axis] = 1
        strides.append(int(wanted[tuple(index)]) - offset)
    tried = bit_positions(Layout(tuple(shape), tuple(strides), offset, 4))
    return np.array_equal(tried, wanted)


@pytest.mark.parametrize("layout", set(small_layouts()), ids=str)
def test_reshape_is_a_view_exactly_where_one_exists(layout):
    for shape in (s for s in [*SHAPES, (layout.size,), (1, layout.size, 1)]):
        if prod(shape) != layout.size:
            continue
        seen = layout.reshape(shape)
        positions = bit_positions(layout)
        assert (seen is not None) == affine(positions, shape, layout.offset)
        if seen is not None:
            assert np.array_equal(bit_positions(seen), positions.reshape(shape))


@given(st.data())
def test_numpy_agrees_on_views(data):
    shape = tuple(data.draw(st.lists(st.integers(0, 6), max_size=5)))
    x = np.zeros(shape, np.int32)
    if x.ndim:
        x = x.transpose(data.draw(st.permutations(range(x.ndim))))
        step = data.draw(st.sampled_from([1, 2, -1]))
        x = x[..., ::step]
    factors = data.draw(st.permutations([d for d in x.shape for d in _split(d)]))
    target = tuple(factors) if 0 not in x.shape else x.shape
    try:
        expected = x.reshape(target, copy=False)
    except ValueError:
        expected = None
    layout = Layout.of(x.shape, x.strides, 0, 4)
    seen = layout.reshape(target)
    assert (seen is None) == (expected is None)
    if expected is not None:
        assert seen == Layout.of(expected.shape, expected.strides, 0, 4)


def _split(size):
    return (2, size // 2) if size in (4, 6) else (size,)


def test_equal_where_no_element_can_tell_the_difference():
    assert Layout.of((1, 3), (999, 4), 0, 4) == Layout.of((1, 3), (-7, 4), 0, 4)
    assert Layout.of((0, 3), (5, 6), 40, 4) == Layout.row_major((0, 3), 4)
    assert Layout.of((2, 3), (16, 4), 0, 4) != Layout.row_major((2, 3), 4)


def test_span_covers_every_element():
    layout = Layout.row_major((3, 4), 6).flip([0]).narrow(1, 1, 2, 2)
    positions = bit_positions(layout)
    assert layout.span == (positions.min(), positions.max() + 6)


def test_contiguous():
    assert Layout.row_major((2, 3), 3).contiguous
    assert Layout.row_major((2, 3), 3).narrow(0, 1, 1, 1).contiguous
    assert not Layout.row_major((2, 3), 3).flip([1]).contiguous
    assert Layout.row_major((2, 0), 3).flip([0]).contiguous


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a.permute((0, 0)),
        lambda a: a.permute((0,)),
        lambda a: a.permute((0, 2)),
        lambda a: a.flip((0, -2)),
        lambda a: a.flip((2,)),
        lambda a: a.squeeze((0,)),
        lambda a: a.squeeze((5,)),
        lambda a: a.expand_dims((0, 0)),
        lambda a: a.expand_dims((4,)),
        lambda a: a.broadcast_to((3,)),
        lambda a: a.broadcast_to((3, 3)),
        lambda a: a.broadcast_to((2, -1)),
    ],
)
def test_bad_axes(view):
    with pytest.raises(ReshapeError):
        view(Layout.row_major((2, 3), 8))


BAD = [
    ((-1,), (4,), 0, 4),
    ((2, 3), (4,), 0, 4),
    ((2,), (4, 4), 0, 4),
    ((2,), (4,), 0, 0),
    ((2,), (4,), 0, -4),
    ((2**62, 2**62), (4, 4), 0, 4),
    ((2**64,), (0,), 0, 4),
    ((0, 2**40, 2**40), (4, 4, 4), 0, 4),
    ((2**62,), (4,), 0, 4),
    ((2,), (2**63,), 0, 4),
    ((2,), (-(2**63),), -1, 4),
    ((2,), (4,), 2**63, 4),
    ((2,), (4,), -(2**64), 4),
    ((2,), (4,), 0, 2**64),
    ((1,) * 1025, (4,) * 1025, 0, 4),
    ((True,), (4,), 0, 4),
    ((2,), (True,), 0, 4),
    ((2,), (4,), False, 4),
    ((2,), (4,), 0, True),
    ((2.0,), (4,), 0, 4),
    ((2,), (4.0,), 0, 4),
    ((2,), (4,), None, 4),
    ((2,), (4,), 0, "4"),
    (2, (4,), 0, 4),
    ((2,), 4, 0, 4),
    (None, None, None, None),
    ("2", "4", 0, 4),
]


@pytest.mark.parametrize("given", BAD, ids=range(len(BAD)))
def test_a_layout_is_checked_when_it_is_made(given):
    for bad in (given, tuple([*x] if isinstance(x, tuple) else x for x in given)):
        with pytest.raises((FormatError, DTypeError, ReshapeError)):
            Layout(*bad)


def test_a_pickled_layout_is_checked():
    lie = pickle.dumps(Layout((77,), (4,), 0, 4), 0).replace(b"77", b"-7")
    with pytest.raises(FormatError, match="-7"):
        pickle.loads(lie)


@pytest.mark.parametrize("layout", [Layout((2, 3), (-12, 4), 12, 4), Layout.row_major((0, 9), 8)])
def test_layouts_come_back_from_pickles_and_copies(layout):
    for duplicate in (pickle.loads(pickle.dumps(layout)), copy.copy(layout), copy.deepcopy(layout)):
        assert duplicate == layout


def test_a_layout_made_of_other_ints_is_the_same():
    given = np.array([2, 3]), [np.int32(12), 4], np.uint8(8), np.int64(4)
    layout = Layout(*given)
    assert layout == Layout((2, 3), (12, 4), 8, 4)
    assert {type(n) for n in (*layout.shape, *layout.strides, layout.offset, layout.bits)} == {int}
    assert Layout((1, 3), (10**30, 4), 0, 4) == Layout.row_major((1, 3), 4)
    assert Layout((0, 2**62), (5, 6), 7, 64) == Layout.row_major((0, 2**62), 64)
