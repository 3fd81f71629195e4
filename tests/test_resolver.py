import copy
import enum
import itertools
import pickle
from functools import partial

import numpy as np
import oracle
import pytest
from compiled import kernel
from hypothesis import example, given, strategies as st
from oracle import check_same

import shapejit as sj
from shapejit.shapes import resolver
from shapejit.shapes.arithmetic import COPY_DIM, INFER, INVALID
from shapejit.shapes.request import MAX_INTS, Request, integers, request

HUGE = 2**62


def array_request(shape):
    return request(shape, asked_by="test")


# Every dialect and flag: a name, its request, its oracle.
MEANINGS = {
    "array": (array_request, oracle.array_api),
    "onnx": (sj.onnx.request, oracle.onnx),
    "onnx allowzero": (
        lambda shape: sj.onnx.request(shape, allowzero=1),
        lambda source, shape: oracle.onnx(source, shape, allowzero=1),
    ),
    "openvino": (
        lambda shape: sj.openvino.request(shape, special_zero=False),
        lambda source, shape: oracle.openvino(source, shape, False),
    ),
    "openvino special_zero": (
        lambda shape: sj.openvino.request(shape, special_zero=True),
        lambda source, shape: oracle.openvino(source, shape, True),
    ),
    "onednn": (
        lambda shape: sj.onednn.request(shape, special_zero=False),
        lambda source, shape: oracle.onednn(source, shape, False),
    ),
    "onednn special_zero": (
        lambda shape: sj.onednn.request(shape, special_zero=True),
        lambda source, shape: oracle.onednn(source, shape, True),
    ),
}
every_meaning = pytest.mark.parametrize("meaning", MEANINGS)


def check_resolve(meaning, source, target):
    ask, answer = MEANINGS[meaning]
    check_same(lambda: sj.resolve(source, ask(target)), lambda: answer(source, target))


@every_meaning
def test_exhaustive(meaning):
    ask, answer = MEANINGS[meaning]
    for target in oracle.TARGETS:
        asked = ask(target)
        for source in oracle.SOURCES:
            check_same(partial(sj.resolve, source, asked), partial(answer, source, target))


# What the oracle itself says, checked by eye against the text; None is an error.
BY_EYE = [
    # source, target, array, onnx, onnx allowzero, ov, ov sz, onednn, onednn sz
    ((2, 3, 4), (0, -1), None, (2, 12), None, None, (2, 12), None, (2, 12)),
    ((2, 3, 4), (6, -1), (6, 4), (6, 4), (6, 4), (6, 4), (6, 4), (6, 4), (6, 4)),
    ((2, 3, 4), (5, -1), None, None, None, None, None, None, None),
    ((2, 3), (6, 0), None, None, None, None, None, None, None),
    ((), (), (), (), (), (), (), (), ()),
    ((1, 1), (), (), (), (), (), (), (), ()),
    ((2,), (), None, None, None, None, None, None, None),
    ((), (0,), None, None, None, None, None, None, None),
    ((), (-1,), (1,), (1,), (1,), (1,), (1,), (1,), (1,)),
    ((0, 3), (0, -1), None, None, None, (0, 1), (0, 3), None, None),
    ((0,), (0, -1), None, None, None, (0, 1), (0, 1), None, None),
    ((4, 0, 2), (-1, 0), None, None, None, (1, 0), (8, 0), None, None),
    ((4, 0, 2), (5, -1), (5, 0), (5, 0), (5, 0), (5, 0), (5, 0), (5, 0), (5, 0)),
    ((4, 0, 2), (3, 0), (3, 0), (3, 0), (3, 0), (3, 0), (3, 0), (3, 0), (3, 0)),
    ((0, 2), (7, 0), (7, 0), None, (7, 0), (7, 0), None, (7, 0), None),
    ((2, 0), (0, 0, 0), (0, 0, 0), None, (0, 0, 0), (0, 0, 0), None, (0, 0, 0), None),
    ((2, 3), (-2, 3), None, None, None, None, None, None, None),
    ((2, 3), (-1, -1), None, None, None, None, None, None, None),
]


@pytest.mark.parametrize("row", BY_EYE, ids=str)
def test_by_eye(row):
    source, target, *expected = row
    for (name, (ask, answer)), shape in zip(MEANINGS.items(), expected, strict=True):
        asked = ask(target)
        if shape is None:
            with pytest.raises(ValueError, match=r"^$"):
                answer(source, target)
            with pytest.raises(sj.ReshapeError):
                sj.resolve(source, asked)
        else:
            assert answer(source, target) == sj.resolve(source, asked) == shape, name


@every_meaning
def test_overflow_in_any_order(meaning):
    factors = [
        ((2**32, 2**32, 0), (0, 2**62, 4)),
        ((2**32, 2**32), (2**32, 2**32)),
        ((2**32, 2**32), (-1,)),
        ((0, 3), (2**62, 4, 0)),
        ((0, 3), (2**62, 2, 0)),
        ((0, 3), (2**62, 4, -1)),
        ((0, 3), (2**63 - 1, 1, -1)),
        ((0, 3), (2**63 - 1, 0)),
        ((2**31, 2**32 - 1), (2**32 - 1, 2**31)),
        ((2**31, 2**32), (2**62, -1)),
        ((HUGE, 1), (0, -1)),
        ((HUGE, 2), (0, 0, 0, -1)),
    ]
    for source, target in factors:
        for s in itertools.permutations(source):
            for t in itertools.permutations(target):
                check_resolve(meaning, s, t)
    for source in itertools.permutations((2**32, 2**32, 0)):
        with pytest.raises(sj.ReshapeError, match="exceeds int64"):
            sj.resolve(source, MEANINGS[meaning][0]([0, 2]))


@every_meaning
@pytest.mark.parametrize("token", [2**63 - 1, 2**63, 2**64 - 1, 2**70, -2, -(2**63), -(2**70)])
def test_huge_tokens(meaning, token):
    for source in [(), (0,), (1,), (2, 3), (2**63 - 1,)]:
        for target in [(token,), (token, 1), (1, token), (token, -1), (-1, token), (0, token)]:
            check_resolve(meaning, source, target)


@every_meaning
@pytest.mark.parametrize("size", [-1, -2, -(2**70), 2**63, 2**70])
def test_sources_that_are_no_shape(meaning, size):
    for source in [(size,), (2, size), (size, 0), (0, size)]:
        for target in [(), (0,), (-1,), (2, -1), (0, 0)]:
            check_resolve(meaning, source, target)


def test_uint64_tokens_keep_their_value():
    shape = np.array([2**64 - 1, 2], np.uint64)  # as int64 this would be [-1, 2]
    for asked in (
        sj.openvino.request(shape, special_zero=False),
        sj.onednn.request(shape, special_zero=True),
    ):
        with pytest.raises(sj.ReshapeError, match="18446744073709551615 does not fit int64"):
            sj.resolve((2, 3), asked)
    assert sj.resolve((6,), array_request(np.array([2, 3], np.uint64))) == (2, 3)


sizes = st.one_of(st.integers(0, 6), st.integers(1, 2**21), st.sampled_from([2**31, 2**62]))
shapes = st.one_of(st.lists(sizes, max_size=6), st.lists(st.integers(0, 2), max_size=64))


@st.composite
def reshapes(draw):
    """A source and a target that often fits: its dims regrouped, some as 0 and one as -1."""
    source = draw(shapes)
    if draw(st.booleans()):
        return source, draw(st.lists(st.one_of(sizes, st.integers(-2, 0)), max_size=64))
    target = list(source)
    for _ in range(draw(st.integers(0, 3))):
        if len(target) > 1:
            at = draw(st.integers(0, len(target) - 2))
            target[at : at + 2] = [target[at] * target[at + 1]]
    for i in range(len(target)):
        if i < len(source) and source[i] == target[i] and draw(st.booleans()):
            target[i] = 0
    if target and draw(st.booleans()):
        target[draw(st.integers(0, len(target) - 1))] = -1
    return source, target


@every_meaning
@given(case=reshapes())
@example(case=([1] * 64, [0] * 63 + [-1]))
@example(case=([2] * 62, [2] * 62 + [-1]))
@example(case=([2] * 63, [-1]))
def test_large(meaning, case):
    check_resolve(meaning, *case)


def test_the_compiled_resolver_is_the_same_function():
    resolve_rows = kernel("shapes.resolve_rows", "aaait")
    marks = (0, 1, 2, 3, 6, INFER, COPY_DIM, INVALID)
    targets = [t for rank in range(4) for t in itertools.product(marks, repeat=rank)]
    sources = [(), (0,), (6,), (2, 3), (0, 3), (3, 0), (-1, 2), (2, 3, 0), (1, 6, 2)]
    cases = [*itertools.product(sources, targets)]
    cases += [
        ((2**32, 2**32, 0), (0,)),
        ((2**62, 2), (-1,)),
        ((2**62, 1), (COPY_DIM, -1)),
        ((0, 1), (2**62, 4, -1)),
        ((2**63 - 1,), (1, -1)),
    ]
    statuses = set()
    for source, dims in cases:
        for cancel in (False, True):
            here = [0] * len(dims)
            answer = resolver.resolve_dims(source, dims, cancel, here)
            there = np.zeros((1, len(dims)), np.int64)
            given = (source, (0, len(source)), dims)
            given = tuple(np.array(sizes, np.int64) for sizes in given)
            resolved = answer[0] == resolver.OK
            assert resolve_rows(*given, cancel, there) == resolved, (source, dims, cancel)
            statuses.add(answer[0])
            if resolved:
                assert there[0].tolist() == here
    assert statuses == set(range(10)), "a status that no case reaches"


# Messages -----------------------------------------------------------------------------


def refusal(source, asked):
    with pytest.raises(sj.ReshapeError) as caught:
        sj.resolve(source, asked)
    return caught.value


MESSAGES = [
    (
        (2, 3, 4), sj.onnx.request([0, -1, 5], opset=14),
        "cannot reshape (2, 3, 4) into [0, -1, 5]\n"
        "  dim 0:  0 copies source dim 0 -> 2\n"
        "  dim 1: -1 would have to be 24 / (2*5) = 2.4\n"
        "  asked by onnx.Reshape-14 (allowzero=0)",
    ),
    (
        (1000001,), array_request([-1, 2]),
        "cannot reshape (1000001,) into [-1, 2]\n"
        "  dim 0: -1 would have to be 1000001 / 2 = 500000 remainder 1\n"
        "  asked by test",
    ),
    (
        (0, 3), sj.onnx.request([0, -1], opset=5),
        "cannot reshape (0, 3) into [0, -1]\n"
        "  dim 0:  0 copies source dim 0 -> 0\n"
        "  dim 1: -1 is undefined where the other sizes multiply to 0 (0 / 0)\n"
        "  asked by onnx.Reshape-5",
    ),
    (
        (0, 3), sj.openvino.request([0, 2, -1], special_zero=True),
        "cannot reshape (0, 3) into [0, 2, -1]\n"
        "  dim 0:  0 copies source dim 0 -> 0, cancelled on both sides\n"
        "  dim 2: -1 would have to be 3 / 2 = 1.5\n"
        "  asked by openvino.Reshape-1 (special_zero=true)",
    ),
    (
        (2, 3), sj.openvino.request([2, 3, 0], special_zero=True),
        "cannot reshape (2, 3) into [2, 3, 0]\n"
        "  dim 2:  0 would copy source dim 2, but the source has rank 2\n"
        "  asked by openvino.Reshape-1 (special_zero=true)",
    ),
    (
        (6,), sj.onednn.request([-1, 2, -1], special_zero=False),
        "cannot reshape (6,) into [-1, 2, -1]\n"
        "  dim 2: a second -1; at most one is allowed\n"
        "  asked by onednn.Reshape (special_zero=false)",
    ),
    (
        (6,), array_request([-2, 3]),
        "cannot reshape (6,) into [-2, 3]\n"
        "  dim 0: invalid size -2; -1 is the only negative value allowed\n"
        "  asked by test",
    ),
    (
        (6,), array_request([2**63]),
        "cannot reshape (6,) into [9223372036854775808]\n"
        "  dim 0: 9223372036854775808 does not fit int64\n"
        "  asked by test",
    ),
    (
        (2**32, 2**32), array_request([1]),
        "cannot reshape (4294967296, 4294967296) into [1]\n"
        "  the product of the non-zero sizes of the source exceeds int64\n"
        "  asked by test",
    ),
    (
        (1,), array_request([2**62, 4, 0]),
        "cannot reshape (1,) into [4611686018427387904, 4, 0]\n"
        "  the product of the non-zero sizes of the target exceeds int64\n"
        "  asked by test",
    ),
    (
        (2, -3), array_request([6]),
        "cannot reshape (2, -3) into [6]\n"
        "  source dim 1: invalid size -3\n"
        "  asked by test",
    ),
    (
        (), array_request([0]),
        "cannot reshape () into [0]\n"
        "  the source has 1 element, the target 0\n"
        "  asked by test",
    ),
    (
        (2, 3), sj.onnx.request([0, 4], allowzero=0, opset=25),
        "cannot reshape (2, 3) into [0, 4]\n"
        "  dim 0:  0 copies source dim 0 -> 2\n"
        "  the source has 6 elements, the target 8\n"
        "  asked by onnx.Reshape-25 (allowzero=0)",
    ),
    (
        (2, 3), sj.onnx.request([0, -1], allowzero=1, opset=19),
        "cannot reshape (2, 3) into [0, -1]\n"
        "  dim 1: -1 is undefined where the other sizes multiply to 0 (6 / 0)\n"
        "  asked by onnx.Reshape-19 (allowzero=1)",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("source", "asked", "text"), MESSAGES, ids=range(len(MESSAGES)))
def test_message(source, asked, text):
    error = refusal(source, asked)
    assert str(error) == text
    assert (error.source, tuple(error.target)) == (source, asked.tokens)
    assert error.asked_by == asked.asked_by


@pytest.mark.parametrize(("source", "asked", "text"), MESSAGES[:3], ids=range(3))
def test_errors_pickle_and_copy(source, asked, text):
    error = refusal(source, asked)
    for duplicate in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(duplicate) is sj.ReshapeError
        assert str(duplicate) == text
        assert (duplicate.source, duplicate.notes) == (error.source, error.notes)


def test_an_error_of_an_equal_request_names_its_own_asker():
    asked = [sj.onnx.request([4], opset=14), sj.onednn.request([4], special_zero=True)]
    assert asked[0] == asked[1]
    for one in asked:
        assert f"asked by {one.asked_by}" in str(refusal((3,), one))


# Arguments ----------------------------------------------------------------------------

NO_SHAPES = [
    None, 3, 1.5, "ab", b"ab", bytearray(b"a"), memoryview(b"a"), {1, 2}, {1: 2}, iter([1]),
    [1.0], [2, 1.5], ["1"], [None], [[1]], [1 + 0j], object(), ...,
    np.zeros((1, 1), np.int64), np.zeros((), np.int64), np.zeros(1), np.zeros(1, bool),
    np.zeros(1, object), np.array(["1"]), np.zeros(1, "m8[ns]"), np.zeros(1, "M8[ns]"),
    np.ma.array([1, 2], mask=[0, 1]), np.ma.array([1, 2]), memoryview(np.zeros((2, 2), np.int64)),
    range(10**9), range(10**30), np.broadcast_to(np.int64(1), 10**9),
]  # fmt: skip


@pytest.mark.parametrize("shape", NO_SHAPES, ids=lambda s: str(type(s)))
def test_bad_shape_arguments(shape):
    for ask, _ in MEANINGS.values():
        with pytest.raises(sj.ShapeJitError):
            ask(shape)
    with pytest.raises(sj.ShapeJitError):
        sj.resolve(shape, array_request([1]))


@pytest.mark.parametrize("asked", [None, "6", {6: 1}, [6.0], [True]])
def test_resolve_wants_a_request_or_a_shape(asked):
    with pytest.raises(sj.DTypeError, match=r"the target shape must .*resolve \(Array API\)"):
        sj.resolve((6,), asked)


@pytest.mark.parametrize("asked", [(3, -1), [-1, 4], np.array([3, 4]), (0, 0), 12, -1, (5, -1)])
def test_a_plain_shape_means_what_the_array_api_says(asked):
    source = np.zeros((2, 6))
    try:
        expected = source.reshape(asked).shape
    except ValueError:
        with pytest.raises(sj.ReshapeError, match=r"asked by resolve \(Array API\)"):
            sj.resolve((2, 6), asked)
        return
    assert sj.resolve((2, 6), asked) == expected


@pytest.mark.parametrize("code", np.typecodes["AllInteger"])
def test_every_integer_type_is_a_shape(code):
    for order in "<>":
        shape = np.array([2, 3], np.dtype(code).newbyteorder(order))
        assert integers(shape, "it", "test") == (2, 3)
        assert sj.resolve((6,), sj.openvino.request(shape, special_zero=True)) == (2, 3)


class Dim(enum.IntEnum):
    SEVEN = 7


def test_ints_are_plain_ints():
    """An enum or a NumPy integer must not come back, from a cache, where a 7 was asked for."""
    assert sj.resolve((1, Dim.SEVEN), array_request([np.uint64(1), Dim.SEVEN])) == (1, 7)
    assert sj.resolve((1, np.int16(7)), array_request([1, np.int8(7)])) == (1, 7)
    for size in sj.resolve((1, 7), array_request([1, 7])):
        assert type(size) is int


@pytest.mark.parametrize("true", [True, np.True_], ids=["bool", "numpy"])
@pytest.mark.parametrize(
    "ask",
    [
        lambda true: sj.reshape(np.zeros(1), (true,)),
        lambda true: sj.reshape(np.zeros(1), [1, true]),
        lambda true: sj.reshape_batch([np.zeros(1)], (true,)),
        lambda true: sj.reshape_batch([np.zeros(1)], [(1, true)]),
        lambda true: sj.resolve((true,), sj.onnx.request([1])),
        lambda true: sj.onnx.request([true]),
        lambda true: sj.openvino.request([true], special_zero=True),
        lambda true: sj.onednn.request([true], special_zero=True),
        lambda true: sj.onnx.shape_of((true,)),
        lambda true: sj.Tensor.frombuffer(b"a", "int8", (true,)),
        lambda true: sj.broadcast_to(np.zeros(1), (true,)),
        lambda true: sj.plan((true,), "int8", lambda t: t),
        lambda true: sj.permute_dims(np.zeros((1, 1)), (0, true)),
        lambda true: sj.flip(np.zeros((1, 1)), axis=true),
        lambda true: sj.flip(np.zeros((1, 1)), axis=(true,)),
        lambda true: sj.squeeze(np.zeros((1, 1)), axis=true),
        lambda true: sj.expand_dims(np.zeros((1, 1)), axis=true),
        lambda true: sj.concat([np.zeros((1, 1))], axis=true),
        lambda true: sj.stack([np.zeros((1, 1))], axis=true),
    ],
)
def test_a_bool_is_neither_a_size_nor_an_axis(ask, true):
    with pytest.raises(sj.DTypeError, match="must hold ints only, not"):
        ask(true)


def test_long_shapes():
    ones = [1] * MAX_INTS
    assert sj.resolve(ones, array_request([-1])) == (1,)
    assert sj.resolve((1,), array_request(ones)) == tuple(ones)
    with pytest.raises(sj.ReshapeError, match="1024 dims"):
        array_request([*ones, 1])


def test_requests_are_values():
    assert Request((2, INFER)) == sj.onnx.request([2, -1])
    assert hash(Request((2, INFER))) == hash(sj.onnx.request([2, -1]))
    assert sj.onnx.request([0, 2]) != sj.onnx.request([0, 2], allowzero=1)
    assert sj.openvino.request([0], special_zero=True) != sj.onednn.request([0], special_zero=True)
    assert pickle.loads(pickle.dumps(sj.onnx.request([0, -1]))) == sj.onnx.request([0, -1])
