"""Batches of different tensors: equal to one call each, and refused as a whole."""

import os
import subprocess
import sys
from functools import partial
from itertools import pairwise
from math import prod
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from compiled import COMPILED, kernel, takes_no_kernels
from hypothesis import HealthCheck, given, settings, strategies as st
from views import arrays, readonly

import shapejit as sj
from shapejit.engine import array_structs
from shapejit.kernels.small_plans import (
    AHEAD,
    END,
    NEAR_BYTES,
    PLANE_MOVER,
    SCRATCH_WORDS,
    row_major,
    write_plan,
)
from shapejit.programs import batch
from shapejit.runtime import kernels
from shapejit.runtime.launches import address_of
from shapejit.shapes.arithmetic import COPY_DIM, INFER, merge

DTYPES = [
    np.uint8, np.float16, ml_dtypes.bfloat16, ml_dtypes.int4, np.float32, ">f4", np.float64,
    np.complex128, np.bool_, "V3", "V24", "S5", "U2", "M8[s]", object,
]  # fmt: skip


def value(x):
    """What a result is, bit for bit, with its kind, shape and dtype."""
    raw = x.tobytes() if isinstance(x, sj.Tensor) or x.dtype != object else x.tolist()
    return type(x), x.dtype, x.shape, raw


@st.composite
def tensors(draw):
    """An ndarray of any kind, or a Tensor, packed ones too."""
    kind = draw(st.sampled_from(["array", "array", "array", "tensor", "packed", "own"]))
    if kind == "own":
        x = np.empty((2, 3), draw(st.sampled_from(["S5", "U2", object])))
        x[...] = "abc"
        return draw(st.sampled_from([x, x.T, x[:, ::2]]))
    if kind == "packed":
        dtype = sj.dtype(draw(st.sampled_from(["int4", "uint1", "float6_e2m3fn"])))
        codes = draw(arrays(st.just(np.uint8), max_rank=3, max_side=5)) & ((1 << dtype.bits) - 1)
        t = sj.pack(np.array(codes), dtype)
        return t.permute_dims(range(t.ndim)[::-1]) if draw(st.booleans()) else t
    plain = [d for d in DTYPES if d not in (object, "S5", "U2")]
    x = draw(arrays(st.sampled_from(plain), max_rank=4, max_side=6))
    if kind == "tensor" and x.dtype.kind not in "VM" and x.dtype.isnative:
        return sj.asarray(x)
    return x


@st.composite
def asks(draw, x):
    """A shape that fits, as people write them."""
    sizes = [n for n in x.shape if n != 1] if draw(st.booleans()) else [x.size]
    sizes = list(draw(st.permutations(sizes)))
    if draw(st.booleans()):
        sizes.insert(0, 1)
    if x.size and sizes and draw(st.booleans()):
        sizes[draw(st.integers(0, len(sizes) - 1))] = -1
    as_array = partial(np.array, dtype=np.int64)
    return draw(st.sampled_from([tuple, list, as_array]))(sizes)


def one_by_one(xs, shapes, **how):
    return [sj.reshape(x, shape, **how) for x, shape in zip(xs, shapes, strict=True)]


@settings(max_examples=60 if COMPILED else 40, suppress_health_check=list(HealthCheck))
@given(data=st.data(), count=st.sampled_from([0, 1, 5, 40]), copy=st.sampled_from([None, True]))
def test_batches_are_what_calls_are(data, count, copy, kernels):
    few = data.draw(st.lists(tensors(), min_size=min(count, 6), max_size=min(count, 6)))
    xs = [few[i % len(few)] for i in range(count)]
    shapes = [data.draw(asks(x)) for x in few]
    shapes = [shapes[i % len(few)] for i in range(count)]
    want = one_by_one(xs, shapes, copy=copy)
    made = sj.reshape_batch(xs, shapes, copy=copy)
    assert [value(x) for x in made] == [value(x) for x in want]
    for x, ours, theirs in zip(xs, made, want, strict=True):
        assert shares(ours, x) == shares(theirs, x)
        assert copy is None or contiguous(ours)
    keyed = sj.reshape_batch(dict(enumerate(xs)), dict(enumerate(shapes)), copy=copy)
    assert list(keyed) == list(range(count))
    assert [value(x) for x in keyed.values()] == [value(x) for x in want]
    outs = [empty(x) for x in want]
    assert sj.reshape_batch(xs, shapes, out=outs) is outs
    assert [value(x) for x in outs] == [value(x) for x in want]


def shares(a, b):
    a, b = (x.buffer if isinstance(x, sj.Tensor) else x for x in (a, b))
    return a.size > 0 and np.shares_memory(a, b)


def contiguous(x):
    return x.contiguous if isinstance(x, sj.Tensor) else x.flags.c_contiguous


def empty(x):
    if isinstance(x, sj.Tensor):
        return sj.Tensor.frombuffer(bytearray(x.nbytes), x.dtype, x.shape)
    return np.empty(x.shape, x.dtype)


def unlike(count, dtype=np.float32, seed=0):
    """Transposed matrices of many sizes."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        rows, columns = rng.integers(1, 70, 2)
        made.append(rng.integers(0, 99, (rows, columns)).astype(dtype).T)
    return made


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32, np.float64, np.complex128])
def test_transposed_matrices(dtype, kernels):
    xs = unlike(300 if COMPILED else 10, dtype)
    for made in (
        sj.reshape_batch(xs, -1),
        sj.reshape_batch(xs, (-1,)),
        sj.reshape_batch(xs, [-1]),
        sj.reshape_batch(xs, np.array([-1])),
        sj.reshape_batch(xs, [(x.size,) for x in xs]),
        sj.reshape_batch(tuple(xs), [[x.size] for x in xs], copy=True),
        sj.reshape_batch(iter(xs), (-1,)),
    ):
        assert all(
            a.tobytes() == x.tobytes() and a.shape == (x.size,)
            for a, x in zip(made, xs, strict=True)
        )
    shaped = sj.reshape_batch(xs, [(1, *x.shape[::-1]) for x in xs])
    assert all(
        a.tobytes() == x.tobytes() and a.shape == (1, *x.shape[::-1])
        for a, x in zip(shaped, xs, strict=True)
    )


def test_large_tensors_among_small_ones(kernels):
    side = 700 if COMPILED else 20
    xs = unlike(40)
    xs[3] = np.arange(side * side, dtype=np.float32).reshape(side, side).T
    xs[20] = np.arange(side * side * 3, dtype=np.uint8).reshape(side, side, 3).transpose(1, 0, 2)
    for made in (sj.reshape_batch(xs, (-1,)), sj.reshape_batch(xs, (-1,), copy=True)):
        assert all(a.tobytes() == x.tobytes() for a, x in zip(made, xs, strict=True))
    outs = [np.empty(x.size, x.dtype) for x in xs]
    sj.reshape_batch(xs, (-1,), out=outs)
    assert all(a.tobytes() == x.tobytes() for a, x in zip(outs, xs, strict=True))


def test_results_share_slabs_but_no_bytes(monkeypatch):
    monkeypatch.setattr(batch, "SLAB", 10_000)
    xs = unlike(200, np.uint8)
    made = sj.reshape_batch(xs, (-1,), copy=True)
    spans = sorted((a.__array_interface__["data"][0], a.nbytes) for a in made)
    assert all(a + n <= b for (a, n), (b, _) in pairwise(spans))
    if COMPILED:
        assert all(a % 64 == 0 for a, _ in spans)
        owners = {id(a.base) for a in made}
        assert 10 < len(owners) < 150
        assert all(a.base.nbytes <= 10_000 + 64 for a in made if a.nbytes < 10_000)


# Errors


def good(count=40):
    return [np.arange(6, dtype=np.float32).reshape(2, 3).T for _ in range(count)]


@pytest.mark.parametrize(
    ("bad", "shape", "fault", "text"),
    [
        (np.zeros((2, 3)), (4, -1), sj.ReshapeError, "6 / 4 = 1.5"),
        (np.zeros((2, 3)), (4, 2), sj.ReshapeError, "the source has 6 elements, the target 8"),
        (np.zeros((2, 3)), (-1, -1), sj.ReshapeError, "a second -1"),
        (np.zeros((2, 3)), (-2, 3), sj.ReshapeError, "invalid size -2"),
        (np.zeros((2, 3)), (2**70, 3), sj.ReshapeError, "does not fit int64"),
        (np.zeros((2, 3)), (2**62, 3), sj.ReshapeError, "exceeds int64"),
        (np.zeros((0, 3)), (0, -1), sj.ReshapeError, "undefined"),
        (np.zeros((2, 3)), (1.5, 4), sj.DTypeError, "must hold ints only"),
        (np.zeros((2, 3)), "23", sj.DTypeError, "must be a sequence of ints"),
        ([[1, 2, 3]], (3,), sj.DTypeError, "expected a numpy.ndarray, a shapejit"),
        (None, (3,), sj.DTypeError, "expected a numpy.ndarray, a shapejit"),
        (np.ma.masked_array([1, 2]), (2,), sj.DTypeError, "masked"),
        (sj.asarray(np.zeros(6)), (5,), sj.ReshapeError, "6 elements"),
    ],
)
@pytest.mark.parametrize("count", [3, 40])
def test_a_bad_tensor_is_named(bad, shape, fault, text, count):
    for at in (0, count - 1):
        xs, shapes = good(count), [(6,)] * count
        xs[at], shapes[at] = bad, shape
        outs = [np.full(6, 7, np.float32) for _ in xs]
        for out in (None, outs):
            with pytest.raises(fault) as raised:
                sj.reshape_batch(xs, shapes, out=out)
            assert f"tensor {at}" in str(raised.value)
            assert text in str(raised.value)
        assert all((o == 7).all() for o in outs)
        names = [f"w{i}" for i in range(count)]
        with pytest.raises(fault, match=f"tensor 'w{at}'"):
            sj.reshape_batch(
                dict(zip(names, xs, strict=True)), dict(zip(names, shapes, strict=True))
            )


def test_the_first_bad_tensor_is_named():
    xs, shapes = good(), [(6,)] * 40
    xs[30], shapes[20], xs[35] = None, (7,), sj.asarray(np.zeros(9))
    with pytest.raises(sj.ReshapeError, match="tensor 20"):
        sj.reshape_batch(xs, shapes)
    xs[10] = "text"
    with pytest.raises(sj.DTypeError, match="tensor 10"):
        sj.reshape_batch(xs, shapes)


@pytest.mark.parametrize(
    ("out", "fault"),
    [
        (np.zeros(5, np.float32), sj.ReshapeError),
        (np.zeros((6, 1), np.float32), sj.ReshapeError),
        (np.zeros(6, np.float64), sj.DTypeError),
        (np.zeros(12, np.float32)[::2], sj.ReshapeError),
        (readonly(np.zeros(6, np.float32)), sj.ReshapeError),
        (sj.asarray(np.zeros(6, np.float32)), sj.DTypeError),
        (None, sj.DTypeError),
    ],
)
@pytest.mark.parametrize("count", [3, 40])
def test_a_bad_out_is_named(out, fault, count):
    xs, outs = good(count), [np.full(6, 7, np.float32) for _ in range(count)]
    outs[2] = out
    with pytest.raises(fault, match="tensor 2"):
        sj.reshape_batch(xs, (6,), out=outs)
    assert all((o == 7).all() for i, o in enumerate(outs) if i != 2)


@pytest.mark.parametrize("count", [4, 40])
def test_outs_lie_apart(count):
    xs, outs = good(count), [np.full(6, 7, np.float32) for _ in range(count)]
    outs[3] = outs[1]
    with pytest.raises(sj.ReshapeError, match="out 3 overlaps out 1"):
        sj.reshape_batch(xs, (6,), out=outs)
    outs[3] = xs[2].base.reshape(6) if xs[2].base.ndim == 2 else xs[2].base
    with pytest.raises(sj.ReshapeError, match="tensor 2: out= overlaps the source"):
        sj.reshape_batch(xs, (6,), out=outs)
    outs[3] = xs[3].T.reshape(6)
    with pytest.raises(sj.ReshapeError, match="tensor 3: out= overlaps the source"):
        sj.reshape_batch(xs, (6,), out=outs)
    assert all((o == 7).all() for i, o in enumerate(outs) if i != 3)


def test_packed_outs_lie_apart():
    ts = [sj.pack(np.arange(8, dtype=np.uint8).reshape(2, 4), "uint4").T for _ in range(3)]
    outs = [sj.Tensor.frombuffer(bytearray(4), "uint4", (8,)) for _ in ts]
    assert [t.tobytes() for t in sj.reshape_batch(ts, (8,), out=outs)] == [
        t.tobytes() for t in one_by_one(ts, [(8,)] * 3)
    ]
    outs[2] = outs[0]
    with pytest.raises(sj.ReshapeError, match="out 2 overlaps out 0"):
        sj.reshape_batch(ts, (8,), out=outs)


def test_packed_tensors_of_any_layouts():
    shape, count = ((301, 203), 70) if COMPILED else ((31, 23), 10)
    codes = [np.random.default_rng(i).integers(0, 16, shape, np.uint8) for i in range(count)]
    packed = [sj.pack(x, "uint4") for x in codes]
    seen = [t[:, i % 2 :: 2].T for i, t in enumerate(packed)]  # 101 or 102 columns, 11 or 12
    want = [sj.pack(x[:, i % 2 :: 2].T.reshape(-1), "uint4") for i, x in enumerate(codes)]
    outs = [sj.Tensor.frombuffer(bytearray(b"\xff" * t.nbytes), "uint4", t.shape) for t in want]
    made = sj.reshape_batch(seen, (-1,))
    assert sj.reshape_batch(seen, (-1,), out=outs) is outs
    assert [t.tobytes() for t in made] == [t.tobytes() for t in want]
    assert [t.tobytes() for t in outs] == [t.tobytes() for t in want]


def test_tensors_of_whole_bytes_beside_ndarrays():
    xs = [np.arange(6, dtype=np.float32).reshape(2, 3).T + i for i in range(40)]
    mixed = [sj.asarray(x) if i % 3 else x for i, x in enumerate(xs)]
    made = sj.reshape_batch(mixed, (-1,))
    assert [type(x) for x in made] == [type(x) for x in mixed]
    assert [x.tobytes() for x in made] == [x.reshape(-1).tobytes() for x in xs]
    outs = [
        sj.asarray(np.zeros(6, np.float32)) if i % 3 else np.zeros(6, np.float32) for i in range(40)
    ]
    assert sj.reshape_batch(mixed, (-1,), out=outs) is outs
    assert [x.tobytes() for x in outs] == [x.reshape(-1).tobytes() for x in xs]
    outs[4] = np.zeros(6, np.float32)
    with pytest.raises(sj.DTypeError, match="tensor 4: out= must be a shapejit"):
        sj.reshape_batch(mixed, (-1,), out=outs)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fnuz"])
def test_tensors_of_whole_bytes_fill_outputs(dtype):
    nbytes = sj.dtype(dtype).bits // 8
    codes = [np.full((9, 8 * nbytes), i, np.uint8) + np.arange(9, dtype="u1")[:, None]
             for i in range(40)]  # fmt: skip
    xs = [sj.Tensor.frombuffer(bytearray(x.tobytes()), dtype, (9, 8)).T for x in codes]
    want = [x.tobytes() for x in one_by_one(xs, [(72,)] * 40)]
    outs = [sj.Tensor.frombuffer(bytearray(72 * nbytes), dtype, (72,)) for _ in xs]
    assert sj.reshape_batch(xs, (-1,), out=outs) is outs
    assert [x.tobytes() for x in outs] == want
    other = "uint8" if nbytes == 1 else "float16" if nbytes == 2 else "int32"  # of as many bytes
    for wrong, fault in (
        (sj.Tensor.frombuffer(bytearray(72 * nbytes), other, (72,)), sj.DTypeError),
        (sj.Tensor.frombuffer(bytearray(72 * nbytes), dtype, (9, 8)), sj.ReshapeError),
        (sj.Tensor.frombuffer(bytearray(72 * nbytes), dtype, (72,) + (1,) * 69), sj.ReshapeError),
        (sj.Tensor.frombuffer(bytes(72 * nbytes), dtype, (72,)), sj.ReshapeError),
        (xs[20].T.reshape((72,)), sj.ReshapeError),
    ):
        for x in outs:
            x.buffer[...] = 0
        with pytest.raises(fault, match="tensor 20"):
            sj.reshape_batch(xs, (-1,), out=[*outs[:20], wrong, *outs[21:]])
        assert not any(x.buffer.any() for x in outs)


def test_the_first_shape_may_come_again_as_the_last():
    first, xs = (), [np.full((), i, np.float32) for i in range(3)]
    made = sj.reshape_batch(xs, [first, np.array([1]), first])
    assert [x.shape for x in made] == [(), (1,), ()]
    with pytest.raises(sj.DTypeError, match="tensor 1"):
        sj.reshape_batch(xs, [(1,), (1.0,), (1,)])


def test_tensors_of_more_dims_than_numpy_has():
    t = sj.asarray(np.arange(6, dtype=np.float32))
    many = (1,) * 69 + (6,)
    (made,) = sj.reshape_batch([t], [many])
    assert made.shape == many
    for again in (sj.reshape_batch([made], [(2, 3)], copy=True)[0], sj.reshape(made, (2, 3))):
        assert again.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    turned = made.flip().reshape(many, copy=True)
    assert turned.reshape((6,)).tobytes() == np.arange(6, dtype=np.float32)[::-1].tobytes()
    out = sj.asarray(np.zeros(6, np.float32)).reshape(many)
    assert sj.reshape(made.flip(), many, out=out) is out
    assert out.reshape((6,)).tobytes() == turned.reshape((6,)).tobytes()


@pytest.mark.parametrize("rows", [(6, 8), [(6,), 8], np.array([6, 8]), [np.int64(6)]])
def test_a_size_is_no_source_shape(rows):
    with pytest.raises(sj.DTypeError, match="source shape"):
        sj.resolve_batch(rows, sj.onnx.request([-1]))


def test_a_read_only_array_of_shapes():
    rows = np.array([[2, 3], [4, 5]])
    rows.setflags(write=False)
    assert sj.resolve_batch(rows, sj.onnx.request([-1])).tolist() == [[6], [20]]


def test_copy_false():
    xs = [np.arange(6).reshape(2, 3) for _ in range(40)]
    made = sj.reshape_batch(xs, (6,), copy=False)
    assert all(np.shares_memory(a, x) for a, x in zip(made, xs, strict=True))
    xs[17] = xs[17].T
    with pytest.raises(sj.ReshapeError, match="tensor 17: cannot view"):
        sj.reshape_batch(xs, (6,), copy=False)
    with pytest.raises(sj.ReshapeError, match="exclude each other"):
        sj.reshape_batch(xs, (6,), copy=False, out=[np.zeros(6)] * 40)
    with pytest.raises(sj.DTypeError, match="copy must be"):
        sj.reshape_batch(xs, (6,), copy="yes")


@pytest.mark.parametrize(
    ("tensors", "shapes", "out"),
    [
        (good(3), [(6,)] * 2, None),
        (good(3), {0: (6,), 1: (6,), 2: (6,)}, None),
        ({"a": good(1)[0]}, {"b": (6,)}, None),
        ({"a": good(1)[0]}, {"a": (6,), "b": (6,)}, None),
        ({"a": good(1)[0]}, [(6,)], None),
        (good(3), (6,), [np.zeros(6, np.float32)] * 2),
        (good(3), (6,), {}),
        (good(3), (6,), 3),
        (good(3), None, None),
        (good(3), {6}, None),
        (good(3), sj.asarray(np.zeros(3)), None),
    ],
)
def test_arrangements_agree(tensors, shapes, out):
    with pytest.raises(sj.ShapeJitError):
        sj.reshape_batch(tensors, shapes, out=out)


def test_one_shape_or_one_each():
    xs = [np.zeros(6), np.zeros((3, 2))]
    assert [x.shape for x in sj.reshape_batch(xs, (2, 3))] == [(2, 3)] * 2
    assert [x.shape for x in sj.reshape_batch(xs, [(2, 3), [6]])] == [(2, 3), (6,)]
    assert [x.shape for x in sj.reshape_batch(xs, np.array([[2, 3], [3, 2]]))] == [(2, 3), (3, 2)]
    assert [x.shape for x in sj.reshape_batch(xs, [(2, 3), 6])] == [(2, 3), (6,)]
    assert [x.shape for x in sj.reshape_batch([np.zeros(1)] * 2, ())] == [(), ()]
    assert sj.reshape_batch([], (2, 3)) == []
    assert sj.reshape_batch({}, {}) == {}


def test_views_alone_take_no_kernels():
    code = """
import numpy, shapejit as sj
sj.reshape_batch([numpy.zeros((2, 3)), sj.asarray(numpy.zeros((3, 2)))], (6,))
"""
    assert takes_no_kernels(code)


def test_without_array_structs_all_is_the_same(monkeypatch):
    monkeypatch.setattr(array_structs, "verified", lambda: False)
    xs = unlike(50)
    assert [a.tobytes() for a in sj.reshape_batch(xs, (-1,))] == [x.tobytes() for x in xs]
    outs = [np.empty(x.size, np.float32) for x in xs]
    sj.reshape_batch(xs, [(x.size,) for x in xs], out=outs)
    assert [a.tobytes() for a in outs] == [x.tobytes() for x in xs]
    with pytest.raises(sj.ReshapeError, match="tensor 9"):
        sj.reshape_batch(xs, [(x.size + (i == 9),) for i, x in enumerate(xs)])


# Kernels


@pytest.mark.skipif(not COMPILED, reason="nothing is read with the JIT off")
def test_array_structs_are_read_as_they_are():
    read_alike = array_structs.kernel(array_structs.READ_ALIKE)
    assert array_structs.verified()
    a = np.arange(60, dtype=np.int16).reshape(3, 4, 5)
    for x in (a, a.T, a[::-1, :, ::-2], a[1:, None], np.zeros(()), np.zeros((0, 7))):
        one, address = (x,), np.zeros(1, np.int64)
        kind = array_structs.kind_of(x.dtype, x.shape, x.strides)
        flags = 0x0001 * x.flags.c_contiguous | 0x0400
        assert read_alike(one, 1, kind, flags, address) == 1
        assert address[0] == x.__array_interface__["data"][0]
        wrong = array_structs.kind_of(x.dtype, x.shape, tuple(s + 1 for s in x.strides))
        expected = int(max(x.shape, default=1) == 1)
        assert read_alike(one, 1, wrong, flags, address) == expected
    rows = ((1, 2, 3), [4, 0, -1], (), [-(2**30) + 1, 2**30 - 1])
    tokens, starts = array_structs.read_ints(rows)
    assert tokens.tolist() == [1, 2, 3, 4, 0, -1, -(2**30) + 1, 2**30 - 1]
    assert starts.tolist() == [0, 3, 6, 6, 8]
    for other in ((1, 2.0), (True,), (2**30,), "ab", {1}, (np.int64(3),), 5):
        assert array_structs.read_ints(((1,), other)) is None


@pytest.mark.skipif(not COMPILED, reason="nothing is read with the JIT off")
@pytest.mark.parametrize("field", ["DATA", "RANK", "DESCR", "TYPE"])
def test_another_layout_is_not_assumed(field):
    """As an interpreter or a NumPy that keeps its objects differently would have it."""
    code = f"""
import sys
from shapejit.engine import array_structs
array_structs.{field} += 4
sys.exit(array_structs.verified())
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@settings(max_examples=300)
@given(data=st.data(), x=arrays(st.just(np.uint16), max_rank=5, max_side=6))
def test_views_exist_where_numpy_has_them(data, x):
    if not x.size:
        return
    shape = [n for n in np.array(data.draw(asks(x))).tolist() if n != -1]
    shape.append(x.size // prod(shape))
    (made,) = sj.reshape_batch([x], shape)
    assert np.shares_memory(made, x) == np.shares_memory(x.reshape(shape), x)


def put(*words):
    """Copy a tensor by a small plan, as the kernel of that name does."""
    run = kernel("small.put", "iiiii")
    assert kernels.wait((PLANE_MOVER,))
    return run(*words, kernels.address(PLANE_MOVER))


@settings(max_examples=300 if COMPILED else 60)
@given(
    x=arrays(st.sampled_from(["u1", "u2", "u4", "u8", "c16", "V3", "V24"]), max_rank=6, max_side=9)
)
def test_small_plans_are_copies(x):
    if not x.size:
        return
    table, scratch = np.zeros(64, np.int64), np.zeros(SCRATCH_WORDS, np.int64)
    sizes, strides = np.array(x.shape, np.int64), np.array(x.strides, np.int64)
    kept = merge(sizes, (strides,), x.ndim)
    gaps = np.empty(x.ndim, np.int64)
    row_major(sizes, kept, x.itemsize, gaps)
    words = write_plan(sizes, strides, gaps, kept, x.itemsize, table)
    compiled = np.zeros(64, np.int64)
    write = kernel("small.write_plan", "aaaiia")
    assert write(sizes, strides, gaps, kept, x.itemsize, compiled) == words
    assert np.array_equal(compiled[:words], table[:words])
    memory = np.full(x.nbytes + 64, 0xAB, np.uint8)
    source, target, plan, place = map(address_of, (x, memory, table, scratch))
    scratch[[AHEAD, END]] = source, source + table[NEAR_BYTES]
    put(source, target + 32, plan, place)
    assert memory[32:-32].tobytes() == x.tobytes()
    assert (memory[:32] == 0xAB).all()
    assert (memory[-32:] == 0xAB).all()


@pytest.mark.skipif(not COMPILED, reason="too slow element by element")
@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8", "c16"])
def test_small_plans_at_every_edge(dtype):
    table, scratch = np.zeros(64, np.int64), np.zeros(SCRATCH_WORDS, np.int64)
    edges = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 130]
    raw = np.random.default_rng(0).integers(0, 256, 131 * 131 * 16, np.uint8).view(dtype)
    for rows in edges:
        for columns in edges:
            x = raw[: rows * columns].reshape(rows, columns)
            for view in (x.T, x[::-1].T, x.T[::-1], x[:, ::-1], x[:, ::2], x):
                sizes, strides = np.array(view.shape), np.array(view.strides)
                kept, gaps = merge(sizes, (strides,), 2), np.empty(2, np.int64)
                row_major(sizes, kept, view.itemsize, gaps)
                write_plan(sizes, strides, gaps, kept, view.itemsize, table)
                memory = np.full(view.nbytes + 64, 0xAB, np.uint8)
                source, target, plan, place = map(address_of, (view, memory, table, scratch))
                put(source, target + 32, plan, place)
                assert memory[32:-32].tobytes() == view.tobytes()
                assert (memory[:32] == 0xAB).all()
                assert (memory[-32:] == 0xAB).all()


# Shapes without data


SIZES = st.integers(0, 5) | st.sampled_from([2**31, 2**62, 2**63 - 1])


@settings(max_examples=300 if COMPILED else 60)
@given(
    rows=st.lists(st.lists(SIZES, max_size=4), max_size=6),
    dims=st.lists(st.sampled_from([COPY_DIM, INFER, -3, 0, 1, 2, 3, 2**62]), max_size=4),
    cancel=st.booleans(),
)
def test_the_resolver_says_the_same_compiled(rows, dims, cancel):
    request = sj.onnx.request([1])
    request = type(request)(tuple(dims), cancel, asked_by="test")
    want = []
    fault = None
    for i, row in enumerate(rows):
        try:
            want.append(sj.resolve(row, request))
        except sj.ReshapeError as wrong:
            fault = i, str(wrong).split("\n", 1)
            break
    if fault is None:
        made = sj.resolve_batch(rows, request)
        assert made.dtype == np.int64
        assert made.shape == (len(rows), len(dims))
        assert [tuple(row) for row in made.tolist()] == want
    else:
        with pytest.raises(sj.ReshapeError) as raised:
            sj.resolve_batch(rows, request)
        first, rest = str(raised.value).split("\n", 1)
        assert first == f"tensor {fault[0]}: {fault[1][0]}"
        assert rest == fault[1][1]


def test_resolve_batch_takes_arrays_and_sequences():
    rows = np.arange(1, 13).reshape(4, 3)
    want = [[r[0], r[1] * r[2]] for r in rows.tolist()]
    request = sj.onnx.request([0, -1])
    written = (
        rows,
        rows.astype(np.int32),
        rows[:, ::-1][:, ::-1],
        np.asfortranarray(rows),
        rows.tolist(),
        [tuple(row) for row in rows.tolist()],
        list(rows),
    )
    for sources in written:
        assert sj.resolve_batch(sources, request).tolist() == want
    ragged = [(2, 3, 4), (5,), (7, 2)]
    special = sj.openvino.request([0, -1, 1], special_zero=True)
    assert sj.resolve_batch(ragged, special).tolist() == [[2, 12, 1], [5, 1, 1], [7, 2, 1]]
    assert sj.resolve_batch([], request).shape == (0, 2)
    assert sj.resolve_batch(np.zeros((0, 5), np.int64), request).shape == (0, 2)


@pytest.mark.parametrize(
    ("rows", "request_", "fault"),
    [
        ([(2, 3)], [0, -1], sj.DTypeError),
        (5, sj.onnx.request([-1]), sj.DTypeError),
        ("23", sj.onnx.request([-1]), sj.DTypeError),
        ({(2, 3)}, sj.onnx.request([-1]), sj.DTypeError),
        ([(2, 1.5)], sj.onnx.request([-1]), sj.DTypeError),
        ([(2, 3), 4.0], sj.onnx.request([-1]), sj.DTypeError),
        (np.zeros((2, 2)), sj.onnx.request([-1]), sj.DTypeError),
        ([(2, 3), (-2, 3)], sj.onnx.request([-1]), sj.ReshapeError),
        ([(2, 3), (2**64, 3)], sj.onnx.request([-1]), sj.ReshapeError),
        (np.full((2, 2), 2**64 - 1, np.uint64), sj.onnx.request([-1]), sj.ReshapeError),
    ],
)
def test_bad_resolves(rows, request_, fault):
    with pytest.raises(fault):
        sj.resolve_batch(rows, request_)


def test_threads_reshape_batches_at_once():
    import threading

    xs = unlike(400 if COMPILED else 20)
    want = [x.tobytes() for x in xs]
    faults = []

    def work():
        made = [sj.reshape_batch(xs, (-1,)) for _ in range(5 if COMPILED else 1)]
        faults.extend([a.tobytes() for a in results] != want for results in made)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(faults) >= 8
    assert not any(faults)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
@pytest.mark.skipif(not COMPILED, reason="nothing runs in parallel with the JIT off")
def test_forked_children_run_alone():
    code = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import numpy as np, shapejit as sj
from test_batch import unlike
xs = unlike(3000)
program = sj.plan((60, 50), "float32", lambda t: t.T)
ys = [np.ones((60, 50), np.float32)] * 1000
def work():
    assert all(a.tobytes() == x.tobytes() for a, x in zip(sj.reshape_batch(xs, (-1,)), xs))
    assert len(program.map(ys)) == 1000
work()
child = os.fork()
work()
if child == 0:
    os._exit(0)
sys.exit(os.waitpid(child, 0)[1])
"""
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", code], timeout=900).returncode == 0


def test_a_shape_is_read_once():
    """What it says may be another thing the next time."""

    class Growing(list):
        def __iter__(self):
            self.append(2)
            return super().__iter__()

    with pytest.raises(sj.ReshapeError, match=r"into \[2\]"):
        sj.reshape_batch([np.arange(4)] * 3, [Growing()] * 3)
    made = sj.reshape_batch([np.arange(4)] * 3, [Growing([2]) for _ in range(3)])
    assert [x.shape for x in made] == [(2, 2)] * 3


def test_results_of_one_shape_are_contiguous_arrays_of_their_own():
    rng = np.random.default_rng(0)
    tensors = [rng.random((4, 4), np.float32).T for _ in range(50)]
    for shape in ((2, 8), (-1,), (8, 1, 2)):
        made = sj.reshape_batch(tensors, shape)
        for x, y in zip(tensors, made, strict=True):
            assert y.flags.carray
            assert (y == x.reshape(shape)).all()
        made[3][...] = 7
        assert (made[2] == tensors[2].reshape(shape)).all()
        assert (made[4] == tensors[4].reshape(shape)).all()
