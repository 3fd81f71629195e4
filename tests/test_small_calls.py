"""Small calls, which compiled code runs by itself once it knows their kind, and what it refuses."""

import sys
import threading

import ml_dtypes
import numpy as np
import pytest
from compiled import COMPILED

import shapejit as sj
from shapejit.engine import small_calls
from shapejit.runtime.recent import Recent

CALLS = {
    "ascontiguous": lambda x, out: sj.ascontiguous(x, out=out),
    "reshape": lambda x, out: sj.reshape(x, (6, 4), copy=True, out=out),
    "cast": lambda x, out: sj.cast(x, "float64", out=out),
    "program": sj.plan((6, 4), "float32", lambda t: t.ascontiguous()),
}


def source(shape=(4, 6)):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape).T


def wanted(name, x):
    return np.ascontiguousarray(x, np.float64 if name == "cast" else np.float32)


@pytest.fixture(params=CALLS)
def known(request):
    """A call whose kind of arrays was met a few times, with `out` and without, and its name."""
    call, x = CALLS[request.param], source()
    for _ in range(4):
        out = np.empty_like(wanted(request.param, x))
        assert call(x, out) is out
        assert out.tobytes() == wanted(request.param, x).tobytes() == call(x, None).tobytes()
    return call, request.param


class Named(np.ndarray):
    """A subclass that says that it is something else."""

    shape = (2, 2)
    __array_interface__ = None


def test_subclasses_and_other_objects(known):
    call, name = known
    x = source()
    assert call(x.view(Named), None).tobytes() == wanted(name, x).tobytes()
    out = np.empty_like(wanted(name, x))
    kept = out.view(Named)
    assert call(x, kept) is kept
    assert out.tobytes() == wanted(name, x).tobytes()
    for wrong in (None, 3, "x", [x], object(), np.float32, (1, 2)):
        with pytest.raises((sj.ShapeJitError, TypeError)):
            call(wrong, None)
    for wrong in (3, "x", [out], object(), (1, 2)):
        with pytest.raises((sj.ShapeJitError, TypeError)):
            call(x, wrong)


def test_out_that_says_something_else_of_itself(known):
    class Short(np.ndarray):
        shape = (7,)

    call, name = known
    x = source((5, 3)) if name in ("ascontiguous", "cast") else source()
    for _ in range(4):
        out = np.empty_like(wanted(name, x)).view(Short)
        call(x, out)
        assert np.ndarray.tobytes(out) == wanted(name, x).tobytes()


def test_out_that_is_not_fit_stays_as_it_is(known):
    call, name = known
    x = source()
    like = np.full_like(wanted(name, x), 7)
    readonly = like.copy()
    readonly.flags.writeable = False
    wide = np.full((6, 8), 7, like.dtype)
    for out in (like.T, like[:, :3], like.astype(np.int16), readonly, wide[:, ::2], like[::-1]):
        before = out.copy()
        with pytest.raises(sj.ShapeJitError):
            call(x, out)
        assert out.tobytes() == before.tobytes()


@pytest.mark.parametrize("shift", range(-3, 4))
def test_out_that_overlaps(shift):
    memory = np.arange(80, dtype=np.float32)
    for _ in range(4):
        sj.ascontiguous(source(), out=np.empty((6, 4), np.float32))
    x, out = memory[30:54].reshape(4, 6).T, memory[30 + 8 * shift : 54 + 8 * shift].reshape(6, 4)
    before = memory.copy()
    if abs(shift) == 3:
        assert (sj.ascontiguous(x, out=out) == before[30:54].reshape(4, 6).T).all()
        return
    with pytest.raises(sj.ReshapeError, match="overlaps"):
        sj.ascontiguous(x, out=out)
    assert memory.tobytes() == before.tobytes()


def test_kinds_that_differ_in_one_thing():
    """Hundreds of them, more than are known at once, in turn: none is taken for another."""
    kinds = []
    for dtype in ("f4", ">f4", "i4", "i2", ml_dtypes.bfloat16, "c16", "M8[s]", "S4", object):
        for shape in ((3, 5), (5, 3), (3, 5, 1), (1, 3, 5), (15, 1), (2, 2, 2, 2)):
            values = np.arange(np.prod(shape)).astype(np.int64).astype(dtype).reshape(shape)
            kinds += [values.T, values[::-1], values[..., ::-1], np.repeat(values, 2, 0)[::2]]
    for _ in range(4):
        for x in kinds:
            made, out = sj.ascontiguous(x), np.empty(x.shape, x.dtype)
            sj.ascontiguous(x, out=out)
            assert made.dtype == out.dtype == x.dtype
            assert made.shape == x.shape
            assert made.tolist() == out.tolist() == x.tolist()
            assert made.flags.c_contiguous
            assert made is x if x.flags.c_contiguous else not np.shares_memory(made, x)


def test_new_results_own_their_memory_and_are_freed(known):
    call, _ = known
    x, dtype = source(), call(source(), None).dtype
    results = [call(x, None) for _ in range(100)]
    assert all(made.flags.owndata and made.flags.writeable for made in results)
    assert len({made.ctypes.data for made in results}) == 100
    before = sys.getrefcount(None), sys.getrefcount(dtype), sys.getrefcount(x)
    for _ in range(5000):
        call(x, None)
        call(x if call in (CALLS["program"], CALLS["reshape"]) else source((2, 3)), None)
    after = sys.getrefcount(None), sys.getrefcount(dtype), sys.getrefcount(x)
    assert all(abs(a - b) < 1000 for a, b in zip(before, after, strict=True))


def test_every_kind_is_met_again_whatever_its_hash():
    """It was copied once: the second time its Route is kept, the third call follows that."""
    kinds = [np.zeros((2, 1 + size)).T for size in range(200)]
    for _ in range(2):
        for x in kinds:
            sj.ascontiguous(x)
    known = [small_calls.run(x, None, None, small_calls.TABLE, None) for x in kinds]
    assert sum(x is not None for x in known) > 150 or not COMPILED


def test_many_dims_and_huge_strides():
    x = np.arange(2**4, dtype=np.uint8).reshape((2,) * 4 + (1,) * 60).transpose(range(63, -1, -1))
    wide = np.lib.stride_tricks.as_strided(np.arange(6, dtype=np.int8), (1, 3, 2), (2**62, 1, 3))
    for _ in range(4):
        for one in (x, wide, np.broadcast_to(np.int16(3), (4, 5)), np.zeros((0, 2**40)).T):
            made = sj.ascontiguous(one)
            assert made.shape == one.shape
            assert made.tobytes() == one.tobytes()


def test_threads_share_what_is_known():
    kinds = [source((a, b)) for a in range(2, 8) for b in range(2, 8)]
    wrong = []

    def work(first):
        for k in range(3000):
            x = kinds[(first + 7 * k) % len(kinds)]
            if sj.ascontiguous(x).tobytes() != x.tobytes():
                wrong.append(x.shape)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_memory_stays_bounded_with_shapes_that_never_come_again():
    import tracemalloc

    memory = np.zeros(1 << 16, np.uint8)

    def copies(first, count):
        for k in range(first, first + count):
            rows, columns = 2 + k % 250, 2 + k // 250 % 250
            x = memory[: rows * columns].reshape(rows, columns).T
            sj.ascontiguous(x, out=None)
            sj.ascontiguous(x)
            sj.reshape(x, (2, -1) if x.size % 2 == 0 else (-1,), copy=True)
            sj.reshape(x, (rows, columns), copy=True)
            sj.reshape(x, (rows, columns), copy=True)

    copies(0, 3000)
    tracemalloc.start()
    copies(3000, 3000)
    grown = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert grown < 8 << 20


def test_copies_of_one_array_in_several_shapes():
    for x in (source(), source((300, 70)), np.arange(48.0)[::2].reshape(4, 6)):
        flat, size = x.tobytes(), x.size
        for _ in range(4):
            for shape in (-1, size, (2, -1), (size // 2, 2), (1, size)):
                made, wanted = sj.reshape(x, shape, copy=True), x.reshape(shape)
                out = np.empty_like(wanted, order="C")
                assert sj.reshape(x, shape, out=out) is out
                assert sj.reshape(x, shape).tobytes() == flat
                assert made.shape == wanted.shape
                assert not np.shares_memory(made, x)
                assert made.tobytes() == out.tobytes() == flat
                before = out.tobytes()
                for wrong in ((True, size), (1.0, size), (2, size), (-2, size)):
                    with pytest.raises((sj.DTypeError, sj.ReshapeError)):
                        sj.reshape(x, wrong, out=out)
                with pytest.raises(sj.DTypeError):
                    sj.reshape(x, shape, copy="yes", out=out)
                with pytest.raises(sj.ReshapeError):
                    sj.reshape(x, (size, 1, 1), out=out)
                with pytest.raises(sj.ReshapeError):
                    sj.reshape(x, shape, copy=False, out=out)
                assert out.tobytes() == before
    seen = np.arange(48.0)[::2]
    for shape in (-1, (4, 6), (4, -1)):  # there is a view, which no Route for copies takes away
        for _ in range(4):
            sj.reshape(seen, shape, copy=True)
        assert np.shares_memory(sj.reshape(seen, shape), seen)


def test_what_calls_find_is_bounded_whatever_shapes_come():
    """There is one cache, which weighs what it keeps, in bytes."""
    memory = np.zeros(1 << 16, np.uint8)
    rows = sj.plan((None, 3), "uint8", lambda t: t.T.ascontiguous())
    for k in range(1500 if COMPILED else 300):
        x = memory[: (2 + k % 50) * (2 + k // 50) * 3].reshape(3, 2 + k % 50, -1).T
        sj.ascontiguous(x)
        sj.reshape(x, (*x.shape, 1), copy=True)
        sj.cast(x, "float16")
        sj.concat([x, x])
        sj.reshape_batch([x, x], (-1,))
        rows.map(np.zeros((2, 1 + k, 3), np.uint8))
    modules = [module for name, module in sys.modules.items() if name.startswith("shapejit.")]
    caches = [x for module in modules for x in vars(module).values() if type(x) is Recent]
    (known,) = {id(one): one for one in caches}.values()
    assert 0 < known.weight() <= known.size <= 16 << 20


@pytest.mark.parametrize("dtype", ["bfloat16", "int8", "bool", "complex64"])
def test_small_casts_of_any_view(dtype):
    kind = sj.dtype(dtype).numpy
    x = (np.arange(60) - 30).astype(np.complex128 if dtype == "complex64" else np.float32)
    x = x.reshape(3, 4, 5)
    views = x, x.T, x[::-1, :, ::-2], x[:, 1:2], x[0, 0, 0], np.broadcast_to(x[0], (2, 4, 5))
    for _ in range(4):
        for view in views:
            made, out = sj.cast(view, dtype), np.empty(view.shape, kind)
            assert sj.cast(view, dtype, out=out) is out
            assert made.dtype == kind
            assert made.flags.c_contiguous
            assert made.tobytes() == out.tobytes() == view.astype(kind).tobytes()


LARGE = {
    "cast": lambda x, out=None: sj.cast(x, "float64", out=out),
    "transposed": lambda x, out=None: sj.ascontiguous(x.reshape(600, -1).T, out=out),
}


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("size", [600 * 100, 600 * 220, 600 * 500, 600 * 1100])
def test_large_arrays_again_and_again(name, size):
    """From 0.3 to 5 MiB: new results, kept ones and `out`, which overlaps or is not fit."""
    call, x = LARGE[name], np.arange(size, dtype=np.float32)
    right = x.astype(np.float64) if name == "cast" else np.ascontiguousarray(x.reshape(600, -1).T)
    kept = [call(x) for _ in range(4)]
    for _ in range(4):
        x += 1
        right += 1
        out = np.empty_like(right)
        assert call(x, out=out) is out
        assert out.tobytes() == right.tobytes() == call(x).tobytes()
    assert all(made.tobytes() == (right - 4).tobytes() for made in kept)
    before = out.copy()
    for wrong in (out.T if out.ndim > 1 else out[::-1], out[:-1], out.astype(np.int64)):
        with pytest.raises(sj.ShapeJitError):
            call(x, out=wrong)
    assert out.tobytes() == before.tobytes()
    memory = np.zeros(right.nbytes + 64, np.uint8)
    over, source = memory[64:].view(right.dtype), memory[: x.nbytes].view(x.dtype)
    with pytest.raises(sj.ReshapeError, match="overlaps"):
        call(source, out=over.reshape(right.shape))


@pytest.mark.parametrize("name", LARGE)
def test_threads_share_large_kinds(name):
    call, wrong, size = LARGE[name], [], 600 * 220

    def work(first):
        x = np.arange(first, first + size, dtype=np.float32)
        right = np.ascontiguousarray(x.reshape(600, -1).T)
        right = x.astype(np.float64) if name == "cast" else right
        out = np.empty_like(right)
        for k in range(60):
            made = call(x, out=out) if k % 2 else call(x)
            if made.tobytes() != right.tobytes():
                wrong.append(first)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_names_of_dtypes_that_were_made_at_run_time():
    x = source()
    for _ in range(6):
        made = sj.cast(x, "".join(["flo", "at64"]))
        assert made.dtype == np.float64
        assert made.tobytes() == x.astype(np.float64).tobytes()


@pytest.mark.parametrize("pair", ["float32 float64", "int8 int16", "float64 float32", "int32 int8"])
def test_casts_to_any_byte_of_a_line_write_nothing_beside(pair):
    dtype, to = pair.split()
    kind = np.dtype(to)
    for size in (*range(1, 40), 63, 64, 65, 127, 128, 129, 191, 192, 193, 300, 1000, 20000):
        x = (np.arange(size) % 100).astype(dtype)
        for shift in (0, 1, 8, 16, 24, 56, 63) if size < 1000 else (0, 8, 17):
            memory = np.full(size * kind.itemsize + 256, 0xA5, np.uint8)
            begin = -memory.ctypes.data % 64 + 64 + shift
            out = memory[begin : begin + size * kind.itemsize].view(kind)
            for _ in range(2):
                sj.cast(x, to, out=out)
            assert out.tobytes() == x.astype(kind).tobytes()
            assert (memory[:begin] == 0xA5).all()
            assert (memory[begin + out.nbytes :] == 0xA5).all()
