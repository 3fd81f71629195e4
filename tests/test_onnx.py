import itertools
from functools import partial

import ml_dtypes
import numpy as np
import onnx
import oracle
import pytest
from hypothesis import given, strategies as st
from oracle import check_same
from views import specimens

import shapejit as sj

OPSETS = range(1, 29)
RESHAPES = [1, 5, 13, 14, 19, 21, 23, 24, 25]
SHAPES = [1, 13, 15, 19, 21, 23, 24, 25]
every_opset = pytest.mark.parametrize("opset", OPSETS)


def counted(shape, dtype=np.int32):
    return np.arange(np.prod(shape, dtype=int)).astype(dtype).reshape(shape)


# Reshape ------------------------------------------------------------------------------


@pytest.mark.parametrize("operator", ["Reshape", "Shape"])
def test_versions_are_those_of_onnx(operator):
    since = {onnx.defs.get_schema(operator, opset).since_version for opset in OPSETS}
    ours = {sj.onnx.version(operator, opset).since for opset in OPSETS}
    assert sorted(since) == sorted(ours) == (RESHAPES if operator == "Reshape" else SHAPES)
    for opset in OPSETS:
        schema = onnx.defs.get_schema(operator, opset)
        row = sj.onnx.version(operator, opset)
        assert row.since == schema.since_version
        assert row.attributes == set(schema.attributes) - {"consumed_inputs"}


def test_later_opsets_mean_the_newest_version():
    assert str(sj.onnx.version("Reshape", 28)) == "onnx.Reshape-25"
    assert sj.onnx.shape_of((2, 3), start=1, opset=28).tolist() == [3]


def test_unknown_opsets_are_refused():
    assert onnx.defs.onnx_opset_version() <= 28
    for call in (
        lambda: sj.onnx.version("Reshape", 29),
        lambda: sj.onnx.reshape(np.zeros(3), [3], opset=29),
        lambda: sj.onnx.cast(np.zeros(3), to=1, opset=10**9),
        lambda: sj.onnx.shape_of((2, 3), opset=29),
    ):
        with pytest.raises(sj.ReshapeError, match=r"opset \d+ is newer than the newest known, 28"):
            call()


def test_every_version_asks_the_same():
    """One request a meaning of 0: test_resolver runs that one over everything."""
    for target in oracle.TARGETS:
        for allowzero in (0, 1):
            asked = {
                sj.onnx.request(target, allowzero=allowzero, opset=opset)
                for opset in OPSETS
                if opset >= 14 or not allowzero
            }
            assert len(asked) == 1


@pytest.mark.parametrize(("opset", "allowzero"), [(o, a) for o in RESHAPES for a in (0, 1)])
def test_reshape_arrays(opset, allowzero):
    """A sample of the exhaustive run through real arrays, by another offset each version."""
    dtype = np.float32 if opset < 5 else np.int32
    cases = itertools.product(oracle.SOURCES, oracle.TARGETS)
    for source, target in itertools.islice(cases, opset, None, 61):
        x = counted(source, dtype)
        shape = np.array(target, np.int64) if opset % 2 else list(target)

        def mine(x=x, shape=shape):
            y = sj.onnx.reshape(x, shape, allowzero=allowzero, opset=opset)
            assert y.dtype == dtype
            assert y.ravel().tolist() == list(range(x.size))
            return y.shape

        check_same(mine, partial(oracle.onnx, source, target, allowzero, opset))


def test_reshape_tensors():
    cases = itertools.product(oracle.SOURCES, oracle.TARGETS)
    for source, target in itertools.islice(cases, 0, None, 61):
        codes = counted(source, np.uint8) % 16
        x = sj.pack(codes, "int4")

        def mine(x=x, target=target):
            y = sj.onnx.reshape(x, target)
            assert isinstance(y, sj.Tensor)
            assert y.dtype is x.dtype
            assert y.tobytes() == x.tobytes()
            return y.shape

        check_same(mine, partial(oracle.onnx, source, target))


def test_reshape_by_eye():
    x = np.zeros((2, 3, 4), np.float32)
    assert sj.onnx.reshape(x, [0, -1]).shape == (2, 12)
    assert sj.onnx.reshape(x, (4, 0, -1)).shape == (4, 3, 2)
    empty = np.zeros((0, 3, 4), np.float32)
    assert sj.onnx.reshape(empty, [3, 4, 0], allowzero=1).shape == (3, 4, 0)
    assert sj.onnx.reshape(np.array(7, np.float32), [1, -1]).shape == (1, 1)
    assert sj.onnx.reshape(np.zeros((1,) * 64, np.float32), [0] * 64).shape == (1,) * 64
    for opset in (1, 4, 5, 13):
        assert sj.onnx.reshape(x, [0, -1], opset=opset).shape == (2, 12)
        assert sj.onnx.reshape(x, np.array([0, -1]), opset=opset).shape == (2, 12)


def test_shape_as_a_tensor():
    shape = sj.asarray(np.array([0, -1], np.int64))
    assert sj.onnx.reshape(np.zeros((2, 3), np.float32), shape[:]).shape == (2, 3)
    assert sj.resolve((2, 3), sj.onnx.request(shape[::-1])) == (2, 3)
    for wrong in (sj.asarray(np.array([6], np.int32)), sj.pack(np.array([6], np.uint8), "uint4")):
        with pytest.raises(sj.DTypeError, match="int64"):
            sj.onnx.request(wrong)


def test_reshape_copy_and_out():
    x = counted((2, 3))
    out = np.zeros((3, 2), np.int32)
    assert sj.onnx.reshape(x, [3, 0 + 2], out=out) is out
    assert out.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert np.shares_memory(sj.onnx.reshape(x, [-1]), x)
    assert not np.shares_memory(sj.onnx.reshape(x, [-1], copy=True), x)
    with pytest.raises(sj.ReshapeError, match="copy=False"):
        sj.onnx.reshape(x.T, [-1], copy=False)


@every_opset
def test_allowzero_by_opset(opset):
    assert sj.onnx.request([2], allowzero=0, opset=opset).dims == (2,)
    if opset >= 14:
        assert sj.onnx.request([0], allowzero=1, opset=opset).dims == (0,)
    else:
        with pytest.raises(sj.ReshapeError, match="no attribute allowzero"):
            sj.onnx.request([2], allowzero=1, opset=opset)


@pytest.mark.parametrize("allowzero", [2, -1, 1.0, 0.0, "1", None, "", np.float32(1)])
def test_bad_allowzero(allowzero):
    for opset in (1, 14, 25):
        with pytest.raises(sj.ReshapeError, match="allowzero must be 0 or 1"):
            sj.onnx.request([2], allowzero=allowzero, opset=opset)


@pytest.mark.parametrize(
    "opset", [0, -1, -(2**70), 1.5, 1.0, 25.0, True, "25", None, np.float64(25)]
)
def test_bad_opset(opset):
    # The good ones first: a cache must not take True for 1.
    sj.onnx.version("Reshape", 1), sj.onnx.version("Shape", 1), sj.onnx.version("Shape", 25)
    for call in (
        lambda: sj.onnx.request([2], opset=opset),
        lambda: sj.onnx.reshape(np.zeros(2, np.float32), [2], opset=opset),
        lambda: sj.onnx.shape(np.zeros(2, np.float32), opset=opset),
        lambda: sj.onnx.shape_of((2,), opset=opset),
    ):
        with pytest.raises(sj.ShapeJitError, match="opset"):
            call()


@pytest.mark.parametrize(
    "code", ["int8", "int16", "int32", "uint8", "uint16", "uint32", "uint64", "float32", "bool",
             ">i8", "m8[ns]", "object", "int4"],
)  # fmt: skip
def test_the_shape_tensor_is_int64(code):
    dtype = ml_dtypes.int4 if code == "int4" else code
    for opset in RESHAPES:
        with pytest.raises(sj.DTypeError, match="int64"):
            sj.onnx.request(np.array([1, 1]).astype(dtype), opset=opset)
    with pytest.raises(sj.ReshapeError, match="1-D"):
        sj.onnx.request(np.ones((1, 1), np.int64))


@pytest.mark.parametrize("data", [None, [1, 2], 3, 1.5, "ab", (1, 2), {1: 2}, memoryview(b"ab")])
def test_data_is_an_array(data):
    with pytest.raises(sj.DTypeError, match=r"ndarray or a shapejit\.Tensor"):
        sj.onnx.reshape(data, [2])
    with pytest.raises(sj.DTypeError, match=r"ndarray or a shapejit\.Tensor"):
        sj.onnx.shape(data)


# Shape --------------------------------------------------------------------------------

ENDS = [None, *range(-7, 8)]


def listed_by(shape, x, asked):
    return shape(x, **asked).tolist()


@every_opset
def test_shape(opset):
    for rank in range(6):
        source = (2, 0, 3, 1, 5)[:rank]
        x = np.zeros(source, np.float32)
        for start, end in itertools.product(ENDS, ENDS):
            expected = partial(oracle.shape, source, start, end, opset)
            asked = {"start": start, "end": end, "opset": opset}
            check_same(partial(listed_by, sj.onnx.shape, x, asked), expected)
            check_same(partial(listed_by, sj.onnx.shape_of, source, asked), expected)


def test_shape_by_eye():
    x = np.zeros((2, 3, 4), np.float32)
    for answer, options in [
        ([2, 3, 4], {}),
        ([4], {"start": -1}),
        ([2, 3], {"end": -1}),
        ([3], {"start": 1, "end": 2}),
        ([2, 3, 4], {"start": -10, "end": 10}),
        ([2, 3, 4], {"end": 3}),
        ([], {"start": 10}),
        ([], {"end": -10}),
        ([], {"start": 2, "end": 1}),
        ([4], {"start": np.int64(2), "end": np.int8(3)}),
        ([3, 4], {"start": 1, "end": 2**70}),
    ]:
        assert sj.onnx.shape(x, **options).tolist() == answer
    for y in (sj.onnx.shape(x), sj.onnx.shape(x, start=3), sj.onnx.shape_of(())):
        assert (y.dtype, y.ndim) == (np.int64, 1)
    packed = sj.pack(np.zeros((3, 5), np.uint8), "int4")
    assert sj.onnx.shape(packed[:, ::-2]).tolist() == [3, 3]
    y = sj.onnx.shape(x)
    y[0] = 9
    assert sj.onnx.shape(x).tolist() == [2, 3, 4]


def test_the_oracle_clamps_as_the_text_says():
    """The examples of the operator's text, for tensors of shape (2, 3, 4)."""
    assert oracle.shape((2, 3, 4), start=-1) == [4]
    assert oracle.shape((2, 3, 4), end=-1) == [2, 3]
    assert oracle.shape((2, 3, 4), start=1, end=2) == [3]


@pytest.mark.parametrize("opset", range(1, 15))
def test_start_and_end_came_with_15(opset):
    assert sj.onnx.shape_of((2, 3), start=0, end=None, opset=opset).tolist() == [2, 3]
    for options in ({"start": 1}, {"end": 1}, {"end": 0}, {"end": 2}, {"start": -2}):
        with pytest.raises(sj.ReshapeError, match="opset 15"):
            sj.onnx.shape_of((2, 3), **options, opset=opset)


@pytest.mark.parametrize("value", [1.0, "1", True, False, [1], np.float32(1), np.zeros(1, int)])
def test_bad_start_and_end(value):
    for name in ("start", "end"):
        with pytest.raises(sj.DTypeError, match=f"{name} must hold ints only, .*onnx.Shape-25"):
            sj.onnx.shape_of((2, 3), **{name: value})


@pytest.mark.parametrize("source", [(-1,), (2, -5), (2**63,), (2**70, 0), (0, -(2**70))])
def test_shape_of_no_shape(source):
    with pytest.raises(sj.ReshapeError, match="invalid size"):
        sj.onnx.shape_of(source)


@pytest.mark.parametrize("source", [None, 3, "23", {2}, [1.5], np.zeros((1, 1), int), b"ab"])
def test_shape_of_bad_arguments(source):
    with pytest.raises(sj.ShapeJitError):
        sj.onnx.shape_of(source)


def test_shape_of_large_sizes():
    assert sj.onnx.shape_of((2**63 - 1, 2**62)).tolist() == [2**63 - 1, 2**62]
    assert sj.onnx.shape_of(np.array([2, 3], np.uint8)).tolist() == [2, 3]


@given(
    source=st.lists(st.integers(0, 2**63 - 1), max_size=64),
    start=st.integers(-100, 100),
    end=st.one_of(st.none(), st.integers(-100, 100), st.integers()),
)
def test_shape_of_any_rank(source, start, end):
    assert sj.onnx.shape_of(source, start=start, end=end).tolist() == source[start:end]


# Types --------------------------------------------------------------------------------


def listed(operator, opset):
    """The enum values of T, as onnx's own schema has them."""
    (constraint,) = [
        c for c in onnx.defs.get_schema(operator, opset).type_constraints if c.type_param_str == "T"
    ]
    words = {f"tensor({name.lower()})": code for name, code in onnx.TensorProto.DataType.items()}
    return {words[word] for word in constraint.allowed_type_strs}


@pytest.mark.parametrize("operator", ["Reshape", "Shape"])
@every_opset
def test_types_are_those_of_onnx(operator, opset):
    types = listed(operator, opset)
    accepted, refusals = [], []
    for kind in sj.dtypes.all():
        for x in specimens(kind):
            try:
                if operator == "Reshape":
                    y = sj.onnx.reshape(x, [3, 2], opset=opset)
                    assert y.shape == (3, 2)
                    assert type(y) is type(x)
                    assert y.dtype == x.dtype
                else:
                    assert sj.onnx.shape(x, opset=opset).tolist() == [2, 3]
            except sj.DTypeError as error:
                refusals.append((kind, str(error)))
            else:
                accepted.append(kind)
    assert {kind.onnx for kind in accepted} == types
    for kind, text in refusals:
        assert kind not in accepted, "one array of a dtype is taken and another refused"
        assert f"onnx.{operator}-" in text
        assert kind.name in text


def test_how_many_types():
    """The numbers as one counts them in the operators' pages."""
    counts = {o: len(sj.onnx.version("Reshape", o).types) for o in RESHAPES}
    assert counts == {1: 3, 5: 15, 13: 16, 14: 16, 19: 20, 21: 22, 23: 23, 24: 24, 25: 26}
    counts = {o: len(sj.onnx.version("Shape", o).types) for o in SHAPES}
    assert counts == {1: 15, 13: 16, 15: 16, 19: 20, 21: 22, 23: 23, 24: 24, 25: 26}


def test_a_refused_type_names_the_opset_that_takes_it():
    with pytest.raises(sj.DTypeError, match=r"onnx\.Reshape-13 .*int4.*opset 21 does"):
        sj.onnx.reshape(np.zeros(2, ml_dtypes.int4), [2], opset=13)
    with pytest.raises(
        sj.DTypeError, match=r"onnx\.Shape-25 does not list float6_e2m3fn in its T$"
    ):
        sj.onnx.shape(np.zeros(2, ml_dtypes.float6_e2m3fn))


@pytest.mark.parametrize(
    "x",
    [
        np.array(["a", 1], object),
        np.array([None], object),
        np.zeros(2, ">f4"),
        np.zeros(2, "m8[s]"),
        np.zeros(2, [("a", "i4")]),
        np.zeros(2, "V4"),
        np.zeros(2, np.longdouble),
        np.ma.array([1.0, 2.0], mask=[0, 1]),
    ],
    ids=lambda x: str(x.dtype),
)
def test_arrays_of_no_onnx_type(x):
    with pytest.raises(sj.DTypeError):
        sj.onnx.reshape(x, [-1])
    if not isinstance(x, np.ma.MaskedArray):  # whose shape is as good as any
        with pytest.raises(sj.DTypeError):
            sj.onnx.shape(x)
