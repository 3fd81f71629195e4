"""shapejit.adapters.dask compared with NumPy and shapejit on whole arrays."""

import math
import pickle
import random

import ml_dtypes
import numpy as np
import pytest

import shapejit as sj
from shapejit.engine import patience

da = pytest.importorskip("dask.array")

import dask  # noqa: E402  # behind importorskip

from shapejit.adapters import dask as sd  # noqa: E402  # behind importorskip


@pytest.fixture(autouse=True)
def synchronous(monkeypatch):
    """One thread, in which NumPy does small work: what is compiled is tested elsewhere."""
    monkeypatch.setattr(patience, "patience", lambda: math.inf)
    with dask.config.set(scheduler="synchronous"):
        yield


def numbers(shape, dtype=np.int16):
    return np.arange(math.prod(shape), dtype=np.int64).astype(dtype).reshape(shape)


def chunk_bytes(x):
    return math.prod(max(sizes) for sizes in x.chunks) * x.dtype.itemsize


def check_same(made, expected):
    """An ordinary dask array with these elements, whose chunks are what it says."""
    assert isinstance(made, da.Array)
    assert (made.shape, made.dtype) == (expected.shape, expected.dtype)
    blocks = dask.get(
        dict(made.dask), [*made.__dask_keys__()] if made.ndim else made.__dask_keys__()
    )
    for at in np.ndindex(*made.numblocks):
        block = blocks if made.ndim else blocks[0]
        for i in at:
            block = block[i]
        ends = [
            (sum(sizes[:i]), sum(sizes[: i + 1])) for i, sizes in zip(at, made.chunks, strict=True)
        ]
        part = expected[tuple(slice(*end) for end in ends)]
        assert (type(block), block.shape, block.dtype) == (np.ndarray, part.shape, made.dtype)
        assert block.tobytes() == part.tobytes()


def random_shape(rng, size):
    shape = []
    while size > 1 and rng.random() < 0.8:
        factor = rng.choice([n for n in range(1, size + 1) if size % n == 0])
        shape.append(factor)
        size //= factor
    shape.append(size)
    rng.shuffle(shape)
    return tuple(shape)


def random_chunks(rng, shape):
    chunks = []
    for size in shape:
        sizes, left = [], size
        while left:
            sizes.append(rng.randint(0 if rng.random() < 0.1 else 1, left))
            left -= sizes[-1]
        chunks.append(tuple(sizes or [0]))
    return tuple(chunks)


def test_any_reshape_of_any_chunks():
    rng = random.Random(19)
    for _ in range(60):
        size = rng.choice([1, 6, 24, 60, 96])
        source, target = random_shape(rng, size), random_shape(rng, size)
        array = numbers(source)
        x = da.from_array(array, chunks=random_chunks(rng, source))
        if rng.random() < 0.3:  # chunks that are views
            x, array = x.T, array.T
        check_same(sd.reshape(x, target), array.reshape(target))


@pytest.mark.parametrize(
    ("source", "chunks", "target"),
    [
        ((6, 4), 2, (8, 3)),
        ((6, 4), (6, 1), (8, 3)),
        ((4, 1000), (4, 100), (1000, 4)),
        ((1000, 4), (100, 4), (4, 1000)),
        ((3, 5, 7), 2, (7, 15)),
        ((), (), (1, 1)),
        ((1, 1), 1, ()),
        ((0, 3), 1, (3, 0, 2)),
        ((5,), 2, (5,)),
    ],
)
def test_reshape(source, chunks, target):
    array = numbers(source)
    check_same(sd.reshape(da.from_array(array, chunks=chunks), target), array.reshape(target))


def test_neither_a_task_per_row_nor_one_giant_chunk():
    wide = da.zeros((4, 10**8), chunks=(4, 10**6), dtype="float32")  # 100 chunks of 16 MB
    tall = sd.reshape(wide, (10**8, 4))
    assert chunk_bytes(tall) <= 2**27
    assert 50 <= tall.npartitions <= 400
    assert len(tall.dask) < 20 * tall.npartitions


def test_chunks_stay_as_they_are():
    x = da.from_array(numbers((4, 6, 10)), chunks=(2, 3, 5))
    scale = np.ones((4, 1, 1), np.float32)
    for made in (sd.cast(x, "int8"), sd.dequantize(x, scale), sd.flip(x)):
        assert made.chunks == x.chunks
    assert sd.reshape(x, (2, 2, 6, 10)).chunks == ((1, 1), (2,), (3, 3), (5, 5))


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), ()])
def test_flip(axis):
    array = numbers((4, 3, 6))
    x = da.from_array(array, chunks=(3, 2, 4))
    check_same(sd.flip(x, axis=axis), sj.flip(array, axis=axis))
    octets, t = packed((4, 3, 6), "uint4")
    made = sd.flip(da.from_array(octets, chunks=(3, 2, 2)), axis=axis, packed="uint4")
    expected = sj.ascontiguous(sj.flip(t, axis=axis)).tobytes()
    check_same(made, np.frombuffer(expected, np.uint8).reshape(octets.shape))
    with pytest.raises(sj.ReshapeError, match="axis"):
        sd.flip(x, axis=3)


@pytest.mark.parametrize(
    ("source", "request_", "target"),
    [
        ((4, 6), sj.onnx.request([0, 2, -1]), (4, 2, 3)),
        ((0, 3), sj.onnx.request([3, 0], allowzero=1), (3, 0)),
        ((4, 0, 2), sj.openvino.request([-1, 0], special_zero=True), (8, 0)),
        ((4, 6), sj.openvino.request([-1, 8], special_zero=False), (3, 8)),
        ((4, 6), sj.onednn.request([0, -1], special_zero=True), (4, 6)),
        ((4, 6), (-1,), (24,)),
        ((4, 6), 24, (24,)),
    ],
)
def test_dialects(source, request_, target):
    array = numbers(source)
    check_same(sd.reshape(da.from_array(array, chunks=2), request_), array.reshape(target))


def test_what_is_refused():
    x = da.from_array(numbers((4, 6)), chunks=2)
    with pytest.raises(sj.ReshapeError, match=r"cannot reshape \(4, 6\) into \[5, -1\]"):
        sd.reshape(x, (5, -1))
    with pytest.raises(sj.ReshapeError, match="compute_chunk_sizes"):
        sd.reshape(x[x.sum(axis=1) > 2], (-1,))
    with pytest.raises(sj.DTypeError, match="dask"):
        sd.reshape(numbers((2, 3)), (-1,))
    with pytest.raises(sj.ReshapeError, match="permutation"):
        sd.permute_dims(x, (0, 0))
    octets = da.from_array(numbers((4, 6), np.uint8), chunks=2)
    with pytest.raises(sj.DTypeError, match="uint8"):
        sd.cast(x, "int8", packed="int4")
    with pytest.raises(sj.DTypeError, match="int8 is not packed"):
        sd.cast(octets, "float32", packed="int8")
    with pytest.raises(sj.FormatError, match="uint3 cross byte boundaries"):
        sd.cast(octets, "float32", packed="uint3")
    with pytest.raises(sj.FormatError, match="uint3 cross byte boundaries"):
        sd.cast(x, "uint3", pack=True)
    with pytest.raises(sj.FormatError, match="whole bytes"):
        sd.reshape(octets, (16, 3), packed="int4")
    with pytest.raises(sj.FormatError, match="whole bytes"):
        sd.permute_dims(octets[:3], (1, 0), packed="int4")
    with pytest.raises(sj.FormatError, match="whole bytes"):
        sd.cast(x[:, :5], "int4", pack=True)
    with pytest.raises(sj.ReshapeError, match="scale must have shape"):
        sd.dequantize(octets, np.ones((4, 2), np.float32), block_shape=(1, 2))
    with pytest.raises(sj.ReshapeError, match="zero_point"):
        sd.dequantize(octets, np.ones((4, 1), np.float32), zero_point=np.zeros(4, np.uint8))


def test_masked_arrays_are_refused():
    x = da.from_array(numbers((6, 4)), chunks=2)
    masked = da.ma.masked_greater(x, 3)
    for call in (
        lambda: sd.reshape(masked, (2, 12)),
        lambda: sd.reshape(masked, (6, 4)),
        lambda: sd.permute_dims(masked, (1, 0)),
        lambda: sd.cast(masked, "int8"),
        lambda: sd.dequantize(masked, 0.5),
        lambda: sd.dequantize(x, masked.astype("float32"), block_shape=(1, 1)),
        lambda: sd.dequantize(x, np.ma.masked_greater(np.ones((6, 4)), 0), block_shape=(1, 1)),
        lambda: sd.dequantize(x, 0.5, zero_point=np.ma.masked_greater(3, 0)),
        # dask does not know of these masks
        lambda: sd.cast(masked.map_blocks(lambda m: m, meta=x._meta), "int8").compute(),
    ):
        with pytest.raises(sj.DTypeError, match="lose its mask"):
            call()


def test_equal_calls_make_equal_keys_and_graphs_pickle():
    x = da.from_array(numbers((40, 6), np.uint8), chunks=(7, 3))
    calls = [
        lambda n: sd.reshape(x, (n, -1)),
        lambda n: sd.permute_dims(x, (1, 0) if n == 2 else (0, 1), packed="int4"),
        lambda n: sd.flip(x, axis=n // 4, packed="int4"),
        lambda n: sd.cast(x, f"int{8 * n}"),
        lambda n: sd.dequantize(x, np.float32(n)),
    ]
    for call in calls:
        made, again, other = call(2), call(2), call(4)
        assert made.__dask_keys__() == again.__dask_keys__()
        assert set(made.dask) == set(again.dask)
        assert made.name != other.name
        graph = pickle.loads(pickle.dumps(made))
        assert graph.compute(scheduler="threads").tobytes() == made.compute().tobytes()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn", "complex128", "bool"])
def test_dtypes_keep_their_bytes(dtype):
    array = numbers((6, 10)).astype(sj.dtype(dtype).numpy)
    x = da.from_array(array, chunks=(4, 3))
    check_same(sd.reshape(x, (4, 15)), array.reshape(4, 15))
    check_same(sd.permute_dims(x, (1, 0)), array.T)


def packed(shape, dtype):
    """Bytes whose last dim is packed, and a Tensor over them."""
    kind = sj.dtype(dtype)
    rng = np.random.default_rng(1)
    octets = rng.integers(0, 256, (*shape[:-1], shape[-1] * kind.bits // 8), np.uint8)
    return octets, sj.Tensor.frombuffer(octets, kind, shape)


@pytest.mark.parametrize("dtype", ["int4", "uint2", "uint1", "float4_e2m1fn", "nf4"])
def test_packed(dtype):
    octets, t = packed((6, 32, 8), dtype)
    x = da.from_array(octets, chunks=(4, 5, 1))

    def check_packed(made, expected):
        shape = (*expected.shape[:-1], expected.shape[-1] * t.dtype.bits // 8)
        check_same(made, np.frombuffer(expected.tobytes(), np.uint8).reshape(shape))

    check_packed(sd.reshape(x, (-1, 24), packed=dtype), t.reshape((-1, 24)))
    for axes in [(2, 0, 1), (1, 0, 2)]:
        expected = sj.ascontiguous(t.permute_dims(axes))
        check_packed(sd.permute_dims(x, axes, packed=dtype), expected)
    made = sd.cast(x, "float32", packed=dtype)
    check_same(made, t.cast("float32").numpy())
    if dtype != "nf4":  # no cast makes one
        check_packed(sd.cast(made, dtype, pack=True), t)
    check_packed(sd.flip(x, packed=dtype), sj.ascontiguous(sj.flip(t)))
    scale = np.linspace(1, 2, 24, dtype=np.float64).reshape(6, 4, 1)
    for given in (scale, scale.astype(ml_dtypes.bfloat16)):
        how = {"zero_point": given * 3, "block_shape": (1, 8, 8)}
        made = sd.dequantize(x, given, packed=dtype, **how)
        check_same(made, sj.dequantize(t, given, **how))


def test_permuted_packed_chunks_end_at_bytes():
    octets, t = packed((6, 10), "int4")
    made = sd.permute_dims(da.from_array(octets, chunks=(3, 2)), (1, 0), packed="int4")
    assert made.chunks == ((4, 4, 2), (2, 1))
    expected = np.frombuffer(sj.ascontiguous(t.T).tobytes(), np.uint8).reshape(10, 3)
    check_same(made, expected)


@pytest.mark.parametrize(
    "move",
    [
        lambda x, **how: sd.reshape(x, (2, 3, -1), **how),
        lambda x, **how: sd.permute_dims(x, (1, 0, 2), **how),
        lambda x, **how: sd.flip(x, axis=(0, 1), **how),
    ],
    ids=["reshape", "permute_dims", "flip"],
)
def test_bytes_that_stay_whole_are_not_unpacked(move):
    octets, _ = packed((6, 4, 8), "int4")
    x = da.from_array(octets, chunks=(3, 2, 4))
    made = move(x, packed="int4")
    assert len(made.dask) == len(move(x).dask)
    check_same(made, move(x).compute())


def test_cast():
    array = np.random.default_rng(2).normal(0, 200, (6, 8)).astype(np.float32)
    x = da.from_array(array, chunks=(4, 3))
    for dtype in ["bfloat16", "float8_e4m3fn", "int8", "float64", "int4"]:
        made = sd.cast(x, dtype)
        check_same(made, sj.cast(array, dtype))
    check_same(
        sd.cast(x, "float8_e4m3fn", saturate=False), sj.cast(array, "float8_e4m3fn", saturate=False)
    )
    check_same(sd.cast(x[0, 0], "int8"), sj.cast(array[0, 0, ...], "int8"))
    check_same(sd.cast(x[:0], "int8"), sj.cast(array[:0], "int8"))


@pytest.mark.parametrize("blocks", [(1, 4), (3, 8), (6, 24), (1, 1), (4, 3), (2, 24)])
@pytest.mark.parametrize("chunks", [(4, 5), (1, 24), (6, 2)])
def test_dequantize(blocks, chunks):
    rng = np.random.default_rng(3)
    array = rng.integers(-128, 128, (6, 24), np.int8)
    shape = tuple(-(-n // b) for n, b in zip(array.shape, blocks, strict=True))
    scale = rng.normal(0, 1, shape).astype(np.float32)
    zero = rng.integers(-9, 9, shape, np.int8)
    settings = {"block_shape": blocks, "dtype": "bfloat16"}
    expected = sj.dequantize(array, scale, zero_point=zero, **settings)
    x = da.from_array(array, chunks=chunks)
    made = sd.dequantize(x, scale, zero_point=zero, **settings)
    check_same(made, expected)
    lazy = da.from_array(scale, chunks=1), da.from_array(zero, chunks=2)
    check_same(sd.dequantize(x, lazy[0], zero_point=lazy[1], **settings), expected)
    octets, t = packed((6, 24), "uint4")
    expected = sj.dequantize(t, scale, **settings).numpy()
    made = sd.dequantize(da.from_array(octets, chunks=(4, 5)), scale, packed="uint4", **settings)
    check_same(made, expected)


def test_dequantize_by_one_scale():
    array = numbers((5, 7), np.int8)
    x = da.from_array(array, chunks=3)
    for scale in (0.5, 2, -(2**100)):
        check_same(sd.dequantize(x, scale), sj.dequantize(array, scale))
    for scale, error in ((True, sj.DTypeError), (10**400, sj.FormatError)):
        with pytest.raises(error):
            sd.dequantize(x, scale)
    check_same(
        sd.dequantize(x, np.float64(0.1), zero_point=0.3),
        sj.dequantize(array, np.float64(0.1), zero_point=0.3),
    )
    check_same(
        sd.dequantize(x, np.float64(0.5), zero_point=3),
        sj.dequantize(array, np.float64(0.5), zero_point=3),
    )
    column = np.ones((5, 1), ml_dtypes.bfloat16)
    check_same(sd.dequantize(x, column, zero_point=2), sj.dequantize(array, column, zero_point=2))
    check_same(sd.dequantize(x[0, 0], 0.5), sj.dequantize(array[0, 0, ...], 0.5))
    check_same(sd.dequantize(x[:0], column[:1]), sj.dequantize(array[:0], column[:1]))
