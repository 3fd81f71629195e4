"""Traced functions: against NumPy and against the function itself, copies counted."""

import pickle
import pickletools
import queue
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from contextlib import nullcontext
from math import prod

import loops
import ml_dtypes
import numpy as np
import pytest
from compiled import COMPILED, takes_no_kernels
from hypothesis import HealthCheck, given, settings, strategies as st
from views import readonly

import shapejit as sj
from shapejit.engine import array_structs, copying, outputs, patience, routes
from shapejit.errors import TraceError
from shapejit.programs import mapped as maps
from shapejit.programs.fuse import fused
from shapejit.shapes.layout import Layout

WHOLE = ["uint8", "bfloat16", "float32", "complex64", "complex128"]
PACKED = ["int4", "uint1", "float6_e2m3fn", "uint3"]
SHAPE = st.lists(st.integers(1, 6), min_size=0, max_size=4).map(tuple)


def values(shape, dtype, seed=0):
    """Random bits as an ndarray of a dtype of whole bytes."""
    kind = np.dtype(sj.dtype(dtype).codes)
    raw = np.random.default_rng(seed).integers(0, 256, prod(shape) * kind.itemsize, np.uint8)
    return raw.view(kind).reshape(shape)


def packed(shape, dtype, seed=0):
    """Random codes, one byte each, and the packed Tensor of them."""
    bits = sj.dtype(dtype).bits
    codes = np.array(np.random.default_rng(seed).integers(0, 1 << bits, shape, np.uint8))
    return codes, sj.pack(codes, dtype)


# Chains of operations, each as NumPy does it and as a function of shapejit


@st.composite
def chains(draw, shape, most=6):
    """Operations that fit one after the other on an array of `shape`."""
    ops, seen = [], np.broadcast_to(np.uint8(0), shape)
    for _ in range(draw(st.integers(0, most))):
        kinds = ["reshape", "expand", "copy", "contiguous"]
        kinds += ["permute", "flip", "slice", "pick"] if seen.ndim else []
        kinds += ["broadcast"] if seen.size < 200 else []
        kind = draw(st.sampled_from(kinds))
        if kind == "reshape":
            given = draw(st.permutations(draw(factors(seen.size))))
        elif kind == "expand":
            given = draw(st.integers(0, seen.ndim))
        elif kind == "permute":
            given = draw(st.permutations(range(seen.ndim)))
        elif kind == "flip":
            given = draw(st.integers(0, seen.ndim - 1))
        elif kind == "slice":
            axis = draw(st.integers(0, seen.ndim - 1))
            bounds = st.integers(-8, 8) | st.none()
            step = draw(st.sampled_from([1, 1, 2, 3, 4, 6, -1, -2, -3]))
            given = axis, slice(draw(bounds), draw(bounds), step)
        elif kind == "pick":
            axis = draw(st.integers(0, seen.ndim - 1))
            if not seen.shape[axis]:
                continue
            given = axis, draw(st.integers(-seen.shape[axis], seen.shape[axis] - 1))
        elif kind == "broadcast":
            given = draw(st.sampled_from([(2,), (3, 1), (1,)]))
            seen_shape = [3 if n == 1 and draw(st.booleans()) else n for n in seen.shape]
            given = (*given, *seen_shape)
        else:
            given = None
        ops.append((kind, given))
        seen = by_numpy(seen, ops[-1:])
    return ops


@st.composite
def factors(draw, size):
    """Sizes that multiply to `size`."""
    if size == 0:
        return [0, draw(st.integers(1, 3))]
    sizes = []
    while size > 1:
        divisors = [n for n in range(2, size + 1) if size % n == 0]
        sizes.append(draw(st.sampled_from(divisors)))
        size //= sizes[-1]
    return sizes + [1] * draw(st.integers(0, 1))


def index(axis, at):
    return (slice(None),) * axis + (at, Ellipsis)


def by_numpy(x, ops):
    for kind, how in ops:
        if kind == "reshape":
            x = np.reshape(x, how)
        elif kind == "expand":
            x = np.expand_dims(x, how)
        elif kind == "permute":
            x = np.transpose(x, how)
        elif kind == "flip":
            x = np.flip(x, how)
        elif kind in ("slice", "pick"):
            x = x[index(*how)]
        elif kind == "broadcast":
            x = np.broadcast_to(x, how)
    return x


def by_shapejit(t, ops):
    for kind, how in ops:
        if kind == "reshape":
            t = sj.reshape(t, how)
        elif kind == "expand":
            t = sj.expand_dims(t, how)
        elif kind == "permute":
            t = sj.permute_dims(t, how)
        elif kind == "flip":
            t = sj.flip(t, axis=how)
        elif kind in ("slice", "pick"):
            t = t[index(*how)]
        elif kind == "broadcast":
            t = sj.broadcast_to(t, how)
        elif kind == "copy":
            t = sj.reshape(t, t.shape, copy=True)
        else:
            t = sj.ascontiguous(t)
    return t


def eager_copies(ops, shape):
    """How many copies a row-major Tensor takes if every operation is done on its own."""
    count, t = 0, sj.asarray(np.zeros(shape, np.uint8))
    for op in ops:
        made = by_shapejit(t, [op])
        count += made.size > 0 and not np.shares_memory(made.buffer, t.buffer)
        t = made
    return count


def strided(x, how):
    """The same values at other strides."""
    if how == "row-major" or not x.ndim:
        return x
    if how == "reversed":
        return np.array(x[::-1], copy=True)[::-1]
    if how == "fortran":
        return np.array(x, order="F")
    spread = np.zeros((*x.shape[:-1], 2 * x.shape[-1] + 1), x.dtype)
    spread[..., 1::2] = x
    return spread[..., 1::2]


HOW = ["row-major", "fortran", "spread", "reversed"]


@settings(max_examples=400 if COMPILED else 60)
@given(data=st.data(), shape=SHAPE, dtype=st.sampled_from(WHOLE), how=st.sampled_from(HOW))
def test_chains_are_what_numpy_makes(data, shape, dtype, how):
    ops = data.draw(chains(shape))
    program = sj.plan(shape, dtype, lambda t: by_shapejit(t, ops))
    x = strided(values(shape, dtype), how)
    want = by_numpy(x, ops)
    made = program(x)
    assert program.shape == made.shape == want.shape
    assert made.tobytes() == want.tobytes()
    assert program.nbytes == want.nbytes
    own = by_shapejit(sj.asarray(x), ops).numpy()
    assert np.shares_memory(made, x) == np.shares_memory(own, x)
    assert made.flags.writeable or not own.flags.writeable
    out = np.empty(want.nbytes + 3, np.uint8)[3:].view(want.dtype).reshape(want.shape)
    assert program(x, out=out) is out
    assert out.tobytes() == want.tobytes()
    t = sj.asarray(x)
    assert program(t).tobytes() == want.tobytes()
    assert program(t, out=sj.asarray(np.zeros_like(out))).tobytes() == want.tobytes()


@settings(max_examples=150 if COMPILED else 30)
@given(data=st.data(), shape=SHAPE, dtype=st.sampled_from(PACKED))
def test_chains_of_packed_tensors(data, shape, dtype):
    ops = data.draw(chains(shape))
    program = sj.plan(shape, dtype, lambda t: by_shapejit(t, ops))
    codes, t = packed(shape, dtype)
    want = sj.pack(np.array(by_numpy(codes, ops)), dtype).tobytes()
    made = program(t)
    assert made.tobytes() == want
    assert (
        np.shares_memory(made.buffer, t.buffer)
        == np.shares_memory(by_shapejit(t, ops).buffer, t.buffer)
        or not made.size
    )
    out = sj.Tensor.frombuffer(bytearray(program.nbytes), dtype, program.shape)
    assert program(t, out).tobytes() == want


@settings(max_examples=300 if COMPILED else 60)
@given(data=st.data(), shape=SHAPE)
def test_fewer_copies_than_step_by_step(data, shape):
    ops = data.draw(chains(shape, 9))
    program = sj.plan(shape, "uint8", lambda t: by_shapejit(t, ops))
    assert len(program.steps) <= max(eager_copies(ops, shape), int(not program.is_view))
    assert program.is_view == (len(program.steps) == 0)


@settings(max_examples=60 if COMPILED else 15, suppress_health_check=list(HealthCheck))
@given(data=st.data(), shape=SHAPE, dtype=st.sampled_from(WHOLE), how=st.sampled_from(HOW))
def test_maps_are_what_calls_are(data, shape, dtype, how, kernels):
    ops = data.draw(chains(shape))
    count = data.draw(st.sampled_from([0, 1, 3, 40]))
    program = sj.plan(shape, dtype, lambda t: by_shapejit(t, ops))
    xs = [strided(values(shape, dtype, i), how) for i in range(count)]
    if count == 40:
        xs[7] = strided(xs[7], "fortran")
    want = [program(x).tobytes() for x in xs]
    kind = np.dtype(sj.dtype(dtype).codes)
    assert [x.tobytes() for x in program.map(xs)] == want
    assert [x.tobytes() for x in program.map(iter(xs))] == want
    assert [x.tobytes() for x in program.imap(iter(xs), chunk=7)] == want
    slab = np.zeros((count, *program.shape), kind)
    assert program.map(xs, slab) is slab
    assert slab.tobytes() == b"".join(want)
    outs = [np.zeros(program.shape, kind) for _ in xs]
    assert program.map(tuple(xs), out=outs) is outs
    assert [x.tobytes() for x in outs] == want
    ring = [np.zeros(program.shape, kind) for _ in range(3)]
    found = [x.tobytes() for x in program.imap(iter(xs), lambda i: ring[i % 3])]
    assert found == want
    stacked = np.stack(xs) if xs else np.zeros((0, *shape), kind)
    made = program.map(stacked)
    assert made.shape == (count, *program.shape)
    assert made.tobytes() == b"".join(want)
    assert program.map(stacked, np.zeros_like(slab)).tobytes() == b"".join(want)
    tensors = [sj.asarray(x) for x in xs]
    assert [t.tobytes() for t in program.map(tensors)] == want
    assert program.map(tensors, sj.asarray(np.zeros_like(slab))).tobytes() == b"".join(want)


@pytest.mark.parametrize("dtype", PACKED)
@pytest.mark.parametrize("shape", [(3, 5), (2, 4, 8), (), (0, 3)])
def test_maps_of_packed_tensors(dtype, shape):
    program = sj.plan(shape, dtype, lambda t: t.flip().reshape((-1,) if t.size else (0,)))
    made = [packed(shape, dtype, i) for i in range(5)]
    tensors = [t for _, t in made]
    want = [sj.pack(codes.reshape(-1)[::-1].copy(), dtype).tobytes() for codes, _ in made]
    assert [t.tobytes() for t in program.map(tensors)] == want
    outs = [sj.pack(np.zeros(program.shape, np.uint8), dtype) for _ in tensors]
    assert program.map(tensors, out=outs) is outs
    assert [t.tobytes() for t in outs] == want
    slab = sj.pack(np.zeros((5, *program.shape), np.uint8), dtype)
    assert program.map(tensors, out=slab) is slab
    assert [slab[i].tobytes() for i in range(5)] == want
    stacked = sj.stack(tensors)
    assert [program.map(stacked)[i].tobytes() for i in range(5)] == want
    assert [t.tobytes() for t in program.imap(iter(tensors))] == want


def turned(t):
    return t.T.reshape((-1,))


def twice(t):
    """Two copies: 7 divides nothing that the transposition moved."""
    return t.T.reshape((-1,))[3:10503:7].reshape((10, 150)).T.reshape((-1,))


@pytest.mark.parametrize("dtype", PACKED)
@pytest.mark.parametrize("fn", [turned, twice])
def test_packed_tensors_of_all_threads_that_begin_on_any_bit(dtype, fn):
    """More than PARALLEL_FROM at once; rows of the slab begin within bytes, as tensors do."""
    shape, count = (111, 113), 100 if fn is twice else 300
    if not COMPILED:
        count = 9  # element by element
    program = sj.plan(shape, dtype, fn)
    tensors, want = [], []
    for i in range(7):
        codes, t = packed((shape[0], shape[1] + 3), dtype, i)
        first = i % 4
        seen = t[:, first : first + shape[1]]
        tensors.append(seen)
        want.append(fn(np.ascontiguousarray(codes[:, first : first + shape[1]])))
    tensors, want = (([*x] * count)[:count] for x in (tensors, want))
    bits = [sj.pack(x, dtype).tobytes() for x in want]
    assert [t.tobytes() for t in program.map(tensors)] == bits
    outs = [sj.pack(np.ones(program.shape, np.uint8), dtype) for _ in tensors]
    program.map(tensors, out=outs)
    assert [t.tobytes() for t in outs] == bits
    slab = sj.pack(np.ones((count, *program.shape), np.uint8), dtype)
    program.map(tensors, out=slab)
    assert slab.tobytes() == sj.pack(np.stack(want), dtype).tobytes()


def test_packed_rows_keep_the_bytes_beside_a_slab():
    program = sj.plan((3,), "uint4", lambda t: t.flip())
    memory = np.full(9, 0xFF, np.uint8)
    slab = sj.Tensor.frombuffer(memory[1:], "uint4", (5, 3))
    program.map([sj.pack(np.array([1, 2, 3], np.uint8), "uint4")] * 5, out=slab)
    assert slab.unpack().view(np.uint8).tolist() == [[3, 2, 1]] * 5
    assert memory[0] == 0xFF
    assert memory[8] == 0xF1  # no element has the last bits


def test_outputs_in_the_gaps_of_a_source_of_many_elements():
    memory = np.zeros((600, 601), np.uint8)
    for seen in (memory[::2, ::2], memory[::-2, 600::-2], memory[::2, ::2].T):
        one = sj.plan(seen.shape, "uint8", lambda t: t[0, 5:6].reshape((1,)))
        for row in (0, 1, 298, 299, 300):
            for column in (0, 1, 298, 299, 300, 599):
                out = memory[row, column : column + 1]
                if np.shares_memory(out, seen):
                    with pytest.raises(sj.ReshapeError, match="overlaps"):
                        one(seen, out=out)
                else:
                    assert one(seen, out=out) is out


@pytest.mark.parametrize("kind", ["uint1", "int4", "float6_e2m3fn"])
@pytest.mark.parametrize("seen", ["whole", "turned", "flipped", "with gaps", "within a byte"])
def test_packed_tensors_by_numpy_are_what_calls_are(kind, seen):
    see = {
        "whole": lambda t: t[:32, :24],
        "turned": lambda t: t[:32, :24].T,
        "flipped": lambda t: t[::-1],
        "with gaps": lambda t: t[:32, 8:16],
        "within a byte": lambda t: t[:32, 1:24],
    }[seen]
    rng, nbytes = np.random.default_rng(1), sj.dtype(kind).nbytes(32 * 24)
    made = [rng.integers(0, 256, nbytes, np.uint8).tobytes() for _ in range(400)]
    xs = [see(sj.Tensor.frombuffer(x, kind, (32, 24))) for x in made]
    turn = sj.plan(xs[0].shape, kind, lambda t: t.T.reshape((-1,)))
    want = [turn(x).tobytes() for x in xs]
    memory = np.full((400, len(want[0]) + 2), 7, np.uint8)
    outs = [sj.Tensor.frombuffer(row[1:-1].data, kind, turn.shape) for row in memory]
    with patience.force_numpy():
        assert [x.tobytes() for x in turn.map(xs)] == want
        assert turn.map(xs, out=outs) is outs
    assert [x.tobytes() for x in outs] == want
    assert (memory[:, [0, -1]] == 7).all()


def test_packed_tensors_and_outs_that_overlap():
    program = sj.plan((4,), "uint4", lambda t: t.flip())
    x = sj.pack(np.zeros(16, np.uint8), "uint4")
    before = x.tobytes()
    slab = sj.Tensor.frombuffer(x.buffer[2:], "uint4", (3, 4))
    with pytest.raises(sj.ReshapeError, match="tensor 1"):
        program.map([x[:4], x[4:8], x[8:12]], out=slab)
    with pytest.raises(sj.ReshapeError, match="out 1"):
        program.map([x[:4], x[4:8]], out=[x[8:12], x[8:12]])
    assert x.tobytes() == before


class Lent(Sequence):
    """Outputs that nobody holds but who asked for them."""

    def __init__(self, make, count):
        self.make, self.count, self.given = make, count, []

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if index >= self.count:
            raise IndexError(index)
        made = self.make()
        self.given.append(weakref.ref(made))
        return made


@pytest.mark.parametrize("dtype", ["uint8", "uint4"])
def test_outs_live_until_they_are_written(dtype, monkeypatch):
    program = sj.plan((4, 3), dtype, lambda t: t.T)
    if dtype == "uint4":
        x = packed((4, 3), dtype)[1]
        outs = Lent(lambda: sj.Tensor.frombuffer(bytearray(6), dtype, (3, 4)), 3)
    else:
        x = np.ones((4, 3), np.uint8)
        outs = Lent(lambda: np.zeros((3, 4), np.uint8), 3)
    real, alive = routes.run, []

    def run(*given):
        alive.extend(made() is not None for made in outs.given)
        real(*given)

    monkeypatch.setattr(routes, "run", run)
    assert program.map([x] * 3, out=outs) is outs
    assert alive == [True] * 3


@pytest.mark.parametrize("size", [3, 256])
@pytest.mark.parametrize("dtype", ["float32", "uint4"])
def test_no_element_of_a_writable_result_stands_twice(size, dtype):
    def repeated(t):
        return t.broadcast_to((size, size)).reshape((size, size), copy=True).mT

    program = sj.plan((1, size), dtype, repeated)
    t = packed((1, size), "uint4")[1] if dtype == "uint4" else sj.asarray(np.ones((1, size), "f4"))
    for made in (program(t), program.map([t, t])[1]):
        assert made.strides.count(0) == 0
        assert sj.array_equal(made, repeated(t))
    turned = sj.plan((size, size), dtype, lambda t: t.reshape((size, size), copy=True).mT)
    seen = t.broadcast_to((size, size))
    assert turned(seen).strides.count(0) == 0
    readonly = sj.plan(
        (1, size), dtype, lambda t: t.reshape((1, size), copy=True).broadcast_to((9, size))
    )
    assert not readonly(t).buffer.flags.writeable


@pytest.mark.parametrize("dtype", ["uint4", "float32"])
def test_a_tensor_without_the_view_that_is_asked_for_is_named(dtype):
    program = sj.plan((2, 4), dtype, lambda t: t.reshape((8,), copy=False))
    if dtype == "uint4":
        good, bad = packed((2, 4), dtype)[1], packed((4, 2), dtype)[1].T
        outs = [sj.pack(np.zeros(8, np.uint8), dtype) for _ in range(2)]
    else:
        good, bad = np.ones((2, 4), np.float32), np.ones((4, 2), np.float32).T
        outs = [np.zeros(8, np.float32) for _ in range(2)]
    for into in (None, outs):
        with pytest.raises(sj.ReshapeError, match="tensor 1: cannot view"):
            program.map([good, bad], out=into)
    assert all(not any(x.tobytes()) for x in outs)


def test_a_pool_of_outputs_that_waits_for_them():
    program = sj.plan((2, 3), "int16", lambda t: t.T)
    pool = queue.Queue()
    for _ in range(4):
        pool.put(np.empty((3, 2), np.int16))
    tensors = (np.full((2, 3), i, np.int16) for i in range(50))
    for i, x in enumerate(program.imap(tensors, lambda _: pool.get(timeout=600), chunk=4)):
        assert (x == i).all()
        pool.put(x)


def test_outputs_apart_go_in_one_launch_and_others_when_they_are_free(monkeypatch):
    launches, real = [], routes.run
    monkeypatch.setattr(routes, "run", lambda *a: launches.append(len(a[1])) or real(*a))
    program = sj.plan((2, 3), "int16", lambda t: t.T)
    slab, flat = np.zeros((9, 3, 2), np.int16), np.zeros(100, np.int16)
    tensors = [np.full((2, 3), i, np.int16) for i in range(9)]
    order = [4, 1, 8, 0, 7, 3, 2, 6, 5]
    for x, i in zip(program.imap(tensors, lambda i: slab[order[i]]), range(9), strict=True):
        assert (x == i).all()
    assert launches == [9]
    launches.clear()
    begins = [0, 6, 3, 12, 30, 24, 26, 0, 90]  # 3 meets both before it, 26 those at 30 and at 24
    outs = [flat[b : b + 6].reshape(3, 2) for b in begins]
    for x, i in zip(program.imap(tensors, outs.__getitem__), range(9), strict=True):
        assert (x == i).all()
    assert launches == [2, 4, 3]


@pytest.mark.parametrize("chunk", [2.5, "3", (1, 2)])
def test_chunks_are_whole(chunk):
    program = sj.plan((2, 3), "int16", lambda t: t.T)
    with pytest.raises(sj.DTypeError, match="chunk="):
        program.imap([], chunk=chunk)


def test_stacks_of_scalars():
    program = sj.plan((), "float32", lambda t: t.reshape((1,)))
    stack = np.arange(3, dtype=np.float32)
    outs = [np.zeros(1, np.float32) for _ in range(3)]
    assert program.map(stack).tolist() == [[0], [1], [2]]
    assert [x.tolist() for x in program.imap(stack)] == [[0], [1], [2]]
    assert [x.tolist() for x in program.map(stack, outs.__getitem__)] == [[0], [1], [2]]
    assert [x.tolist() for x in program.map(stack, outs)] == [[0], [1], [2]]
    with pytest.raises(sj.ReshapeError, match="a stack for this program"):
        program.imap(np.zeros((2, 2), np.float32))


def test_as_many_dims_as_numpy_has():
    shape = (1,) * 63 + (3,)
    program = sj.plan(shape, "int8", lambda t: t.reshape(shape, copy=True))
    tensors = [np.full(shape, i, np.int8) for i in range(3)]
    made = program.map(tensors)
    assert [x.shape for x in made] == [shape] * 3
    assert [x.reshape(-1).tolist() for x in made] == [[i] * 3 for i in range(3)]


def test_strides_that_never_come_again():
    """Slices of one buffer lie alike; other strides push one another out."""
    program = sj.plan((4,), "uint4", lambda t: t.flip())
    whole = packed((600, 4), "uint4")[1]
    for i in range(600):
        assert program(whole[i]).tobytes() == whole[i].flip().tobytes()
    arrays = np.zeros(4000, np.int8)
    program = sj.plan((2, 2), "int8", lambda t: t.T)
    for step in range(1, 600):
        x = np.lib.stride_tricks.as_strided(arrays, (2, 2), (step, 1))
        assert np.array_equal(program(x), x.T)


@pytest.mark.skipif(not COMPILED, reason="the JIT is off")
def test_calls_that_take_turns_stay_quick(monkeypatch):
    program = sj.plan((8, 16), "float32", lambda t: t.T)
    c, f = np.ones((8, 16), np.float32), np.ones((16, 8), np.float32).T
    out = np.zeros((16, 8), np.float32)
    for _ in range(8):
        program(c, out=out)
        program(f, out=out)
    monkeypatch.setattr(outputs, "checked", None)  # calling it would fail
    for x in (c * 2, np.asfortranarray(c * 3), c * 4):
        assert program(x, out=out) is out
        assert np.array_equal(out, x.T)


# Copies, counted


def heads(t):
    return t.reshape((8, 128, 4, 64)).permute_dims((0, 2, 1, 3))


def sliced(t):
    """Every seventh element; 7 divides nothing that the transposition moved."""
    return t.permute_dims((2, 0, 1)).reshape((-1,))[3:1027:7]


def cut(t):
    return t.permute_dims((1, 0, 2)).reshape((-1,))[7:7007].reshape((7, 1000))


CASES = [
    (lambda t: t, 0),
    (heads, 0),
    (lambda t: heads(t).reshape((32, 128, 64)), 1),
    (lambda t: heads(t).reshape((32, 128, 64)).permute_dims((1, 0, 2)).reshape((128, -1)), 2),
    (lambda t: heads(t).reshape((32, 128, 64)).cast("float32"), 1),
    (lambda t: heads(t).cast("float32").mT.reshape((8, -1)), 1),
    (lambda t: t.permute_dims((2, 0, 1)).reshape((-1,))[::-1].reshape((256, 1024)).T, 1),
    (lambda t: t.permute_dims((1, 0, 2)).reshape((-1,))[2048:4096], 1),
    (lambda t: t.permute_dims((1, 0, 2)).reshape((-1,))[::512], 1),
    (lambda t: t.permute_dims((1, 0, 2)).reshape((-1,))[5], 1),
    (lambda t: t.reshape(t.shape, copy=True), 1),
    (lambda t: t.reshape(t.shape, copy=True).mT.reshape((-1,)), 1),
    (lambda t: sj.ascontiguous(t), 0),
    (lambda t: sj.ascontiguous(t.mT).mT, 1),
    (sliced, 1),
    (lambda t: sliced(t).reshape((7, 21)).T.reshape((-1,)), 2),
    (lambda t: cut(t).T.reshape((-1,)), 2),
]


@pytest.mark.parametrize(("fn", "copies"), CASES, ids=range(len(CASES)))
def test_copies(fn, copies, monkeypatch):
    """As many as `steps` say, and as many as are run."""
    program = sj.plan((8, 128, 256), "float64", fn)
    assert len(program.steps) == copies
    runs = []
    real = routes.run
    for module in (routes, copying):
        monkeypatch.setattr(module, "run", lambda *a, **k: (runs.append(a), real(*a, **k))[1])
    x = values((8, 128, 256), "float64")
    with loops.used("serial"):
        made = program(x)
        assert len(runs) == copies
        assert made.tobytes() == fn(sj.asarray(x)).tobytes()
    assert np.shares_memory(made, x) == (copies == 0)


def test_a_broadcast_after_a_copy_is_not_copied():
    program = sj.plan(
        (300, 200), "float32", lambda t: sj.broadcast_to(t.T.reshape((-1,)), (50, 60_000))
    )
    x = values((300, 200), "float32")
    made = program(x)
    assert made.strides == (0, 4)
    assert not made.flags.writeable
    assert made.tobytes() == np.broadcast_to(x.T.reshape(-1), (50, 60_000)).tobytes()
    assert [step.nbytes for step in program.steps] == [x.nbytes]
    y = values((300, 200), "float32", 1)
    (a, b) = program.map([x, y])
    assert a.strides == b.strides == (0, 4)
    assert a[0].tobytes() == x.T.tobytes()
    assert b[49].tobytes() == y.T.tobytes()


def test_copies_of_copies():
    def fn(t):
        t = t.T.reshape((-1,))[3:24003:7].reshape((3, 1143)).T.reshape((-1,))
        return t[2:3402].reshape((34, 100)).T.reshape((-1,))[1:3388].reshape((3387, 1)).T

    program = sj.plan((200, 150), "float32", fn)
    assert len(program.steps) >= 2
    xs = [values((200, 150), "float32", i) for i in range(70 if COMPILED else 4)]
    want = [fn(sj.asarray(x)).numpy().tobytes() for x in xs]
    assert [program(x).tobytes() for x in xs] == want
    assert [x.tobytes() for x in program.map(xs)] == want


def test_a_nested_call_takes_scratch_of_its_own(monkeypatch):
    """As of the handler of a signal, between two copies of a program."""

    def fn(t):
        t = t.T.reshape((-1,))[3:24003:7].reshape((3, 1143)).T.reshape((-1,))
        return t[2:3402].reshape((34, 100)).T.reshape((-1,))

    program = sj.plan((200, 150), "float32", fn)
    assert len(program.steps) >= 2
    xs = [values((200, 150), "float32", i) for i in range(2)]
    want = [fn(sj.asarray(x)).numpy().tobytes() for x in xs]
    nested, real = [], routes.run

    def run(*given, **named):
        real(*given, **named)
        if len(nested) == 0:
            nested.append(None)
            nested.append(program(xs[1]).tobytes())

    monkeypatch.setattr(routes, "run", run)
    assert program(xs[0]).tobytes() == want[0]
    assert nested[1] == want[1]


# Tracing


def test_every_way_to_move_dims():
    def fn(t):
        t = sj.onnx.reshape(t, [0, -1])
        t = sj.openvino.reshape(t, [0, 2, -1], special_zero=True)
        t = sj.squeeze(sj.expand_dims(sj.matrix_transpose(t), 1), 1)
        t = t.squeeze(()).expand_dims(0).broadcast_to((2, *t.shape))[1:, None, ..., ::-1]
        assert tuple(sj.onnx.shape(t)) == t.shape
        assert (t.ndim, t.size, t.nbytes, t.dtype) == (5, 24, 48, sj.dtype("bfloat16"))
        return t.flip(axis=-1).mT

    x = values((2, 3, 4), "bfloat16")
    program = sj.plan(x.shape, x.dtype, fn)
    assert program.is_view
    assert program(x).tobytes() == fn(sj.asarray(x)).tobytes()
    assert np.shares_memory(program(x), x)
    assert not program(x).flags.writeable


@pytest.mark.parametrize(
    "fn",
    [
        lambda t: t.numpy(),
        lambda t: t.tobytes(),
        lambda t: t.unpack(),
        lambda t: np.asarray(t),
        lambda t: np.add(t, 1),
        lambda t: t.buffer,
        lambda t: pickle.dumps(t),
        lambda t: sj.concat([t, t]),
        lambda t: sj.stack([t, t]),
        lambda t: sj.ascontiguous(t, out=t),
        lambda t: sj.reshape(t, (6,), out=t),
        lambda t: None,
        lambda t: np.zeros(3),
        lambda t: sj.asarray(np.zeros(3)),
    ],
)
def test_data_is_refused(fn):
    with pytest.raises(TypeError) as fault:
        sj.plan((2, 3), "float32", fn)
    if not isinstance(fault.value, TraceError):
        assert "Traced" in str(fault.value)  # NumPy's own refusal of an operand


def test_a_traced_tensor_says_what_it_is():
    seen = []
    sj.plan((2, 3), "int4", lambda t: (seen.append(repr(t.T)), t)[1])
    assert seen == ["Traced(shape=(3, 2), dtype=int4, no data)"]


def test_a_tensor_of_another_trace_is_refused():
    kept = []
    sj.plan((2, 3), "int4", lambda t: (kept.append(t), t)[1])
    with pytest.raises(TraceError, match="must return a result of its tensor"):
        sj.plan((2, 3), "int4", lambda t: kept[0])


def test_copy_false_holds_in_the_trace_and_later():
    with pytest.raises(sj.ReshapeError, match="copy=False forbids"):
        sj.plan((2, 3), "int8", lambda t: t.T.reshape((6,), copy=False))
    program = sj.plan((2, 3), "int8", lambda t: t.reshape((6,), copy=False))
    x = values((2, 3), "int8")
    assert np.shares_memory(program(x), x)
    with pytest.raises(sj.ReshapeError, match="copy=False forbids"):
        program(np.asfortranarray(x))


@pytest.mark.parametrize(
    ("shape", "dtype", "fault"),
    [
        ((2, -1), "int8", sj.FormatError),
        ((2**40, 2**40), "int8", sj.FormatError),
        ((2, 1.5), "int8", sj.DTypeError),
        ("23", "int8", sj.DTypeError),
        ((2, 3), "string", sj.DTypeError),
        ((2, 3), "int5", sj.DTypeError),
    ],
)
def test_bad_plans(shape, dtype, fault):
    with pytest.raises(fault):
        sj.plan(shape, dtype, lambda t: t)


def test_programs_within_programs():
    turn = sj.plan((2, 3), "int16", lambda t: t.T)
    outer = sj.plan((6,), "int16", lambda t: turn(t.reshape((2, 3))).reshape((6,)))
    x = np.arange(6, dtype=np.int16)
    assert outer(x).tolist() == [0, 3, 1, 4, 2, 5]
    with pytest.raises(TraceError):
        sj.plan((2, 3), "int16", lambda t: turn(t, out=t))
    with pytest.raises(sj.ReshapeError):
        sj.plan((3, 3), "int16", lambda t: turn(t))


# Values


def test_programs_are_values():
    one = sj.plan((8, 128, 256), "float32", heads)
    same = sj.plan([8, 128, 256], np.float32, lambda t: heads(sj.permute_dims(t, (0, 1, -1))))
    assert one == same
    assert hash(one) == hash(same)
    assert len({one, same, sj.plan((8, 128, 256), "int32", heads)}) == 2
    assert one != sj.plan((8, 128, 256), "float32", lambda t: heads(t).reshape((32, 128, 64)))
    with pytest.raises(AttributeError):
        one.shape = ()


def test_programs_travel():
    program = sj.plan((80, 120), "float32", lambda t: t.T.reshape((-1,)))
    x = values((80, 120), "float32")
    program.map([x] * 40)
    program(x)
    raw = pickle.dumps(program)
    assert len(raw) < 1000
    assert pickle.loads(raw) == program
    code = "import pickle, sys; p = pickle.load(sys.stdin.buffer); print(p.shape, p.nbytes)"
    done = subprocess.run([sys.executable, "-c", code], input=raw, capture_output=True)
    assert done.stdout.decode().strip() == "(9600,) 38400"


def transposed(t):
    return t.T


PICKLED = {
    "tensor": sj.pack(np.ones((2, 3), "int4")).T,
    "program": sj.plan((4, 6), "uint8", lambda t: t.dequantize(np.ones((4, 1), "f4"))),
    "free sizes": sj.plan((None, 3), "int8", transposed),
}


@pytest.mark.parametrize("value", PICKLED.values(), ids=PICKLED)
def test_pickles_name_nothing_below_the_package(value):
    raw = pickle.dumps(value, 2)
    names = {at for opcode, at, _ in pickletools.genops(raw) if opcode.name == "GLOBAL"}
    own = {name.split()[0] for name in names if name.startswith("shapejit")}
    assert own == {"shapejit"}
    again = pickle.loads(raw)
    assert (type(again), again.dtype) == (type(value), value.dtype)
    assert again == value if isinstance(value, sj.Program) else again.shape == value.shape


def test_programs_print_what_they_do():
    assert str(sj.plan((2, 3), "int4", lambda t: t.T)) == (
        "(2, 3) -> (3, 2) int4: a view, nothing is moved"
    )
    text = str(sj.plan((512, 512), "float32", lambda t: t.T.reshape((-1,))))
    assert text.startswith(
        "(512, 512) -> (262144,) float32: 1 copy, 1048576 bytes read, 1048576 written\n1. tiles"
    )
    program = sj.plan((8, 128, 256), "float32", CASES[-1][0])
    assert "2 copies" in str(program)
    assert "\n2. " in str(program)
    assert repr(program).startswith("Program(source_shape=(8, 128, 256)")


@pytest.mark.skipif(not COMPILED, reason="the JIT is off, for which numba is imported")
def test_views_take_no_kernels():
    code = """
import numpy, shapejit as sj
x = numpy.zeros((2, 3), numpy.float32)
program = sj.plan((2, 3), "float32", lambda t: t.T)
program(x), program.map([x, x]), program(sj.asarray(x)), str(program), list(program.imap([x]))
small = sj.plan((2, 3), "float32", lambda t: t.T.reshape((6,)))
small(x), small(x, out=numpy.zeros(6, numpy.float32))
"""
    assert takes_no_kernels(code)


# What is refused, and that nothing is written then

TURN = sj.plan((2, 3), "float32", lambda t: t.T.reshape((6,)))
GOOD = values((2, 3), "float32")


@pytest.mark.parametrize(
    ("x", "fault"),
    [
        (GOOD[:1], sj.ReshapeError),
        (GOOD.T, sj.ReshapeError),
        (GOOD[None], sj.ReshapeError),
        (GOOD.astype(np.float64), sj.DTypeError),
        (GOOD.astype(">f4"), sj.DTypeError),
        (GOOD.tolist(), sj.DTypeError),
        (None, sj.DTypeError),
        (np.ma.masked_array(GOOD), sj.DTypeError),
        (sj.asarray(GOOD[:1]), sj.ReshapeError),
        (sj.asarray(GOOD.view(np.int32)), sj.DTypeError),
    ],
)
@pytest.mark.parametrize("few", [True, False])
def test_bad_tensors(x, fault, few):
    with pytest.raises(fault):
        TURN(x)
    count = 3 if few else 50
    for bad in (0, count - 1):
        tensors = [GOOD] * count
        tensors[bad] = x
        if bad == 0 and isinstance(x, sj.Tensor):
            continue  # then the others are no Tensors
        slab = np.full((count, 6), 7, np.float32)
        outs = [np.full(6, 7, np.float32) for _ in tensors]
        for out in (slab, outs, None):
            with pytest.raises((fault, sj.DTypeError), match=f"tensor {bad}"):
                TURN.map(tensors, out)
        assert (slab == 7).all()
        assert all((o == 7).all() for o in outs)
    made = TURN.imap(iter([GOOD] * 5 + [x]), chunk=3)
    assert [len(next(made)) for _ in range(3)] == [6] * 3
    with pytest.raises((fault, sj.DTypeError), match="tensor 5"):
        next(made)


@pytest.mark.parametrize(
    ("out", "fault"),
    [
        (np.zeros(5, np.float32), sj.ReshapeError),
        (np.zeros((6, 1), np.float32), sj.ReshapeError),
        (np.zeros(6), sj.DTypeError),
        (np.zeros(12, np.float32)[::2], sj.ReshapeError),
        (readonly(np.zeros(6, np.float32)), sj.ReshapeError),
        ([0.0] * 6, sj.DTypeError),
        (sj.asarray(np.zeros(6, np.float32)), sj.DTypeError),
        (GOOD.reshape(-1), sj.ReshapeError),
    ],
)
def test_bad_outs(out, fault):
    before = GOOD.copy()
    with pytest.raises(fault):
        TURN(GOOD, out=out)
    for count in (2, 50):
        outs = [np.full(6, 7, np.float32) for _ in range(count)]
        outs[1] = out
        with pytest.raises(fault, match=r"out 1|tensor"):
            TURN.map([GOOD] * count, outs)
        assert (outs[0] == 7).all()
    assert np.array_equal(before, GOOD)


def test_bad_slabs_and_lists():
    xs = [GOOD] * 50
    for out, fault in (
        (np.zeros((49, 6), np.float32), sj.ReshapeError),
        (np.zeros((50, 6)), sj.DTypeError),
        (np.zeros((6, 50), np.float32).T, sj.ReshapeError),
        ([np.zeros(6, np.float32)] * 49, sj.ReshapeError),
        ("out", sj.DTypeError),
        (3, sj.DTypeError),
        (sj.asarray(np.zeros((50, 6), np.float32)), sj.DTypeError),
    ):
        with pytest.raises(fault):
            TURN.map(xs, out)
    outs = [np.zeros(6, np.float32) for _ in xs]
    outs[31] = outs[4]
    with pytest.raises(sj.ReshapeError, match="out 31 overlaps out 4"):
        TURN.map(xs, outs)
    memory = np.zeros((51, 6), np.float32)
    sources = [memory[i].reshape(2, 3) for i in range(50)]
    with pytest.raises(sj.ReshapeError, match="tensor 1: out= overlaps the source"):
        TURN.map(sources, memory[1:])
    for wrong in (np.zeros((50, 3, 2), np.float32), np.zeros((2, 3), np.float32)):
        with pytest.raises(sj.ShapeJitError):
            TURN.map(wrong)
    with pytest.raises(sj.DTypeError):
        TURN.imap(xs, out=np.zeros((50, 6), np.float32))
    with pytest.raises(sj.ReshapeError):
        TURN.imap(xs, chunk=0)
    with pytest.raises(TypeError):
        TURN.map(3)


def test_interleaved_sources_and_outs_are_apart():
    """Their spans meet, their elements do not."""
    memory = np.zeros((2, 3, 2), np.float32)
    x = memory[..., 0]
    out = np.zeros(6, np.float32)
    assert np.array_equal(TURN(x, out=out), x.T.reshape(-1))
    wide = np.arange(80 * 12, dtype=np.float32).reshape(80, 12)
    xs = [wide[2 * i, :6].reshape(2, 3) for i in range(40)]
    outs = [wide[2 * i + 1, 6:] for i in range(40)]
    TURN.map(xs, outs)
    assert all(np.array_equal(o, x.T.reshape(-1)) for x, o in zip(xs, outs, strict=True))


# Laziness


def test_imap_takes_no_more_than_a_chunk():
    taken = []

    def source():
        for i in range(100):
            taken.append(i)
            yield np.full((2, 3), i, np.float32)

    results = TURN.imap(source(), chunk=10)
    assert taken == []
    assert next(results)[0] == 0
    assert len(taken) == 10
    for _ in range(10):
        next(results)
    assert len(taken) == 20
    big = sj.plan((1 << 20,), "float32", lambda t: t[::-1].reshape(t.shape, copy=True))
    taken.clear()
    endless = big.imap(taken.append(i) or np.zeros(1 << 20, np.float32) for i in range(10**9))
    next(endless)
    assert len(taken) == 1


def test_imap_of_an_array_that_is_filled_again_and_again():
    x, ring = np.empty((2, 3), np.float32), [np.empty(6, np.float32) for _ in range(3)]

    def source():
        for i in range(9):
            x[...] = i
            yield x

    for out in (None, lambda i: ring[i % 3]):
        made = [y.tolist() for y in TURN.imap(source(), out, chunk=1)]
        assert made == [[i] * 6 for i in range(9)]


def test_map_with_a_function_as_out():
    slab = np.zeros((9, 6), np.float32)
    xs = [values((2, 3), "float32", i) for i in range(9)]
    made = TURN.map(iter(xs), out=lambda i: slab[i])
    assert all(np.shares_memory(x, slab[i]) for i, x in enumerate(made))
    assert slab.tobytes() == b"".join(x.T.tobytes() for x in xs)


# Small calls


def mapped(program, items):
    """What a map makes, with shapes and dtypes, or the error that it raises."""
    try:
        made = program.map(items)
    except (sj.ShapeJitError, TypeError) as fault:
        return type(fault), str(fault)
    return [(x.shape, x.dtype, x.flags.c_contiguous, x.tobytes()) for x in made]


FIVE_BY_SEVEN = np.arange(35, dtype=np.int32).reshape(5, 7)
ITEMS = {
    "alike": [FIVE_BY_SEVEN, FIVE_BY_SEVEN + 1],
    "of other strides": [FIVE_BY_SEVEN, FIVE_BY_SEVEN.T.copy().T, FIVE_BY_SEVEN[::-1]],
    "of another shape": [FIVE_BY_SEVEN, FIVE_BY_SEVEN[:4]],
    "of another dtype": [FIVE_BY_SEVEN, FIVE_BY_SEVEN.astype("i8")],
    "of another byte order": [FIVE_BY_SEVEN, FIVE_BY_SEVEN.astype(">i4")],
    "no array": [FIVE_BY_SEVEN, FIVE_BY_SEVEN.tolist()],
    "a subclass": [FIVE_BY_SEVEN, FIVE_BY_SEVEN.view(np.recarray)],
    "none": [],
}
PROGRAMS = {
    "copy": lambda t: t.T.ascontiguous(),
    "view": lambda t: t.T,
    "copies": lambda t: t.T.reshape((5, 7)).T.reshape((-1,)),
    "cast": lambda t: t.T.cast("float16"),
}


@pytest.mark.parametrize("items", ITEMS)
@pytest.mark.parametrize("fn", PROGRAMS)
def test_numpy_maps_and_refuses_the_same(items, fn):
    """Before kernels are ready, and where they never are."""
    program = sj.plan((5, 7), "int32", PROGRAMS[fn])
    with patience.force_numpy():
        first = mapped(program, ITEMS[items])
    assert first == mapped(program, ITEMS[items])


@pytest.mark.parametrize("by_numpy", [False, True])
def test_results_without_dims_fill_an_array(by_numpy):
    xs = [np.arange(3, dtype=np.float32) + k for k in range(5)]
    second = sj.plan((3,), "float32", lambda t: t[1])
    wide = sj.plan((), "float32", lambda t: t.cast("float64"))
    for _ in range(3):
        made, numbers = np.zeros(5, np.float32), np.zeros(5)
        with patience.force_numpy() if by_numpy else nullcontext():
            second.map(xs, out=made)
            wide.map([x[2, ...] for x in xs], out=numbers)
        assert made.tolist() == [1, 2, 3, 4, 5]
        assert numbers.tolist() == [2, 3, 4, 5, 6]


def test_maps_have_no_route_until_a_kernel_reads_where_arrays_lie(monkeypatch):
    """Its own kernels may be ready before that one is."""

    def not_ready(call):
        return None if call is array_structs.LOCATE else real(call)

    def called(call):
        raise KeyError(call)

    real = array_structs.kernel
    monkeypatch.setattr(array_structs, "kernel", not_ready)
    monkeypatch.setattr(maps, "called", called)
    program = sj.plan((5, 7), "int32", lambda t: t.T.ascontiguous())
    xs = [np.arange(35, dtype=np.int32).reshape(5, 7) + k for k in range(4)]
    for _ in range(3):
        assert all((made == x.T).all() for made, x in zip(program.map(xs), xs, strict=True))


@pytest.mark.skipif(not COMPILED, reason="with the JIT off there is no kernel to go to")
def test_small_calls_go_straight_to_a_kernel(monkeypatch):
    program = sj.plan((4, 64, 8), "bfloat16", lambda t: t.permute_dims((1, 0, 2)))
    x, out = values((4, 64, 8), "bfloat16"), np.zeros((64, 4, 8), ml_dtypes.bfloat16)
    for _ in range(3):
        program(x, out=out)
    monkeypatch.setattr(outputs, "target", None)  # whoever comes that far, fails
    for seed in range(3):
        x = values((4, 64, 8), "bfloat16", seed)
        assert program(x, out=out) is out
        assert out.tobytes() == x.transpose(1, 0, 2).tobytes()
    with pytest.raises(TypeError):
        program(x[::-1], out=out)


@pytest.mark.skipif(not COMPILED, reason="with the JIT off there is no kernel to go to")
def test_small_calls_are_checked_there():
    x = values((6, 8), "float32")
    program = sj.plan((6, 8), "float32", lambda t: t.T)
    out = np.zeros((8, 6), np.float32)
    for _ in range(3):
        program(x, out)
    memory = np.zeros(200, np.float32)
    for wrong in (
        np.zeros((6, 8), np.float32),
        np.zeros((8, 6), np.int32),
        np.zeros((8, 12), np.float32)[:, ::2],
        readonly(np.zeros((8, 6), np.float32)),
        x.reshape(8, 6),
        "out",
    ):
        with pytest.raises(sj.ShapeJitError):
            program(x, wrong)
    for other in (x[::-1], np.asfortranarray(x), np.zeros((12, 8), np.float32)[::2]):
        for _ in range(4):
            assert program(other, out).tobytes() == other.T.tobytes()
    half = memory[100:148].reshape(8, 6)
    assert program(memory[:48].reshape(6, 8), half) is half
    with pytest.raises(sj.ReshapeError, match="overlaps"):
        program(memory[60:108].reshape(6, 8), half)


def test_without_array_structs_all_is_the_same(monkeypatch):
    monkeypatch.setattr(array_structs, "verified", lambda: False)
    program = sj.plan((4, 6), "float32", lambda t: t.T.reshape((-1,)))
    xs = [values((4, 6), "float32", i) for i in range(50)]
    slab = np.zeros((50, 24), np.float32)
    program.map(xs, slab)
    assert slab.tobytes() == b"".join(x.T.tobytes() for x in xs)
    for x in xs[:5]:
        assert program(x, out=slab[0]).tobytes() == x.T.tobytes()
    with pytest.raises(sj.DTypeError, match="tensor 7"):
        program.map([*xs[:7], xs[7].astype(np.float64)], slab[:8])
    with pytest.raises(sj.ReshapeError, match="out 3"):
        program.map(xs[:4], [*slab[:3], slab[3:, 0]])


def test_many_dims_and_subclasses():
    class Own(np.ndarray):
        pass

    x = values((4, 6), "float32").view(Own)
    program = sj.plan((4, 6), "float32", lambda t: t.T)
    assert type(program(x)) is np.ndarray
    assert [a.tobytes() for a in program.map([x] * 40)] == [x.T.tobytes()] * 40
    deep = sj.plan((1,) * 30 + (2, 3), "int8", lambda t: t.mT)
    y = values((1,) * 30 + (2, 3), "int8")
    assert deep(y, np.zeros((1,) * 30 + (3, 2), np.int8)).tobytes() == y.swapaxes(-1, -2).tobytes()


# Large tensors and threads


LARGE = [
    ("uint8", (700, 600), (1, 0)),
    ("float32", (300, 50, 20), (1, 0, 2)),
    ("float32", (3, 60_000), (1, 0)),
    ("float32", (60_000, 3), (1, 0)),
    ("complex64", (30, 20, 100), (1, 0, 2)),
    ("uint8", (5, 100_001), (0, 1)),
]


@pytest.mark.skipif(not COMPILED, reason="too slow element by element")
@pytest.mark.parametrize(("dtype", "shape", "axes"), LARGE)
def test_large_tensors_are_split_inside(dtype, shape, axes, kernels):
    def fn(t):
        return t.permute_dims(axes).reshape((-1,), copy=True)

    program = sj.plan(shape, dtype, fn)
    xs = [values(shape, dtype, i) for i in range(3)]
    want = [x.transpose(axes).tobytes() for x in xs]
    assert [x.tobytes() for x in program.map(xs)] == want
    slab = np.zeros((3, *program.shape), xs[0].dtype)
    assert program.map(xs, slab).tobytes() == b"".join(want)


@pytest.mark.skipif(not COMPILED, reason="too slow element by element")
@pytest.mark.parametrize("step", [-1, -2, 2, 3, 7])
def test_picks_and_turns_are_split_inside(step, kernels):
    shape = (40, 900, 3)
    xs = [values(shape, "uint8", i) for i in range(4)]
    for fn in (lambda t: t[:, ::step], lambda t: t[..., ::-1], lambda t: t.reshape((-1,))[::step]):
        program = sj.plan(shape, "uint8", fn)
        slab = np.zeros((4, *program.shape), np.uint8)
        program.map(xs, slab)
        assert slab.tobytes() == b"".join(fn(x).tobytes() for x in map(sj.asarray, xs))


def test_eight_threads_share_a_program():
    size = 40 if COMPILED else 6
    programs = [
        sj.plan((size, size, 3), "float32", fn)
        for fn in (
            lambda t: t.permute_dims((1, 0, 2)),
            lambda t: t.permute_dims((2, 1, 0)).reshape((-1,))[5:101].reshape((3, 32)).T,
        )
    ]
    xs = [values((size, size, 3), "float32", i) for i in range(60 if COMPILED else 4)]
    want = [[p(x).tobytes() for x in xs] for p in programs]
    faults = []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(6 if COMPILED else 1):
            k = int(rng.integers(2))
            program, slab = programs[k], np.zeros((len(xs), *programs[k].shape), np.float32)
            faults.extend(program.map(xs, slab).tobytes() != b"".join(want[k]) for _ in range(1))
            out = np.zeros(program.shape, np.float32)
            for i in rng.permutation(len(xs))[:20]:
                faults.append(program(xs[i], out).tobytes() != want[k][i])
                faults.append(program(xs[i]).tobytes() != want[k][i])

    with loops.used("streamed by one thread"):
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(faults) >= 8 * (6 * 41 if COMPILED else 9)
    assert not any(faults)


@pytest.mark.parametrize("size", [8, 512])
def test_views_stay_views_after_calls_with_out(size):
    turn = sj.plan((size, size), "int32", lambda t: t.T)
    x = values((3, size, size), "int32")
    out = np.empty_like(x)
    for call, source, target in [
        (turn, x[0], out[0]),
        (turn, sj.asarray(x[0]), sj.asarray(out[0])),
        (turn.map, x, out),
    ]:
        for by_numpy in (True, False):
            with patience.force_numpy() if by_numpy else nullcontext():
                for into in (target, None) * 4:
                    made = call(source, into)
                    assert np.array_equal(np.asarray(made), np.asarray(source).mT)
                    assert np.shares_memory(np.asarray(made), x) is (into is None)


# The algebra


@settings(max_examples=300)
@given(data=st.data(), shape=SHAPE)
def test_a_stack_is_its_tensors(data, shape):
    ops = data.draw(chains(shape))
    program = sj.plan(shape, "uint8", lambda t: by_shapejit(t, ops))
    one = fused(program.ops, Layout.row_major(shape, 8), program.dtype)
    made = one.stacked(3, 8 * prod(shape))
    assert made.result.shape == (3, *program.shape)
    assert len(made.copies) >= len(program.steps)


def test_no_tensors_of_a_free_program_take_no_outputs():
    """The shape of results is unknown, their number is not."""
    program = sj.plan((None, 3), "float32", lambda t: t.permute_dims((1, 0)))
    assert program.map([]) == program.map([], out=[]) == []
    with pytest.raises(sj.ReshapeError, match="holds 1 arrays for 0 tensors"):
        program.map([], out=[np.empty((3, 2), np.float32)])
    with pytest.raises(sj.DTypeError, match="must be a sequence of arrays, not int"):
        program.map([], out=5)


@pytest.mark.parametrize("by", [patience.force_numpy, patience.force_kernels])
@pytest.mark.parametrize("dtype", ["float32", "int4"])
def test_a_view_stays_one_after_outputs_were_filled(dtype, by):
    turned = sj.plan((30, 40), dtype, lambda t: t.permute_dims((1, 0)))
    repeated = sj.plan((1, 40), dtype, lambda t: sj.broadcast_to(t, (3, 40)))
    with by():
        for program in (turned, repeated):
            shape = program.source_shape
            x = sj.Tensor.frombuffer(bytes(sj.dtype(dtype).nbytes(prod(shape))), dtype, shape)
            given = x if dtype == "int4" else x.numpy()
            out, memory = sj.ascontiguous(program(given)), x.buffer
            before = program(given)
            for _ in range(3):
                assert program(given, out=out) is out
            after = program(given)
            if dtype == "int4":
                before, after = before.buffer, after.buffer
            assert np.shares_memory(before, memory)
            assert np.shares_memory(after, memory)
            assert after.flags.writeable == before.flags.writeable
            assert program.map(sj.stack([given, given])).shape == (2, *program.shape)


@pytest.mark.parametrize("by", [patience.force_numpy, nullcontext])
@pytest.mark.parametrize("shape", [(5, 7), (40, 60)])
def test_outputs_of_maps_that_are_known_are_checked(by, shape):
    """Later calls go straight to NumPy or a kernel, and refuse what the first one does."""
    program = sj.plan(shape, "int32", lambda t: t.T.ascontiguous())
    memory = np.arange(12 * np.prod(shape), dtype=np.int32).reshape(12, *shape)
    xs = [x.copy() for x in memory[:4]]
    turned = shape[::-1]
    slab = np.zeros((4, *turned), np.int32)
    with by():
        for outs in (slab, list(slab), [np.zeros(turned, np.int32) for _ in xs]):
            for _ in range(4):
                slab[...] = 0
                assert program.map(xs, out=outs) is outs
                assert all((made == x.T).all() for made, x in zip(outs, xs, strict=True))
        slab[...] = 7
        fixed = readonly(slab.copy())
        wide = np.zeros((4, turned[0], 2 * turned[1]), np.int32)[..., ::2]
        wrong = (
            slab[:3], slab.astype(np.uint32), fixed, wide, slab.reshape(2, 2, *turned),
            [*slab[:3]], [*slab[:3], slab[2]], [*slab[:3], fixed[3]], [*slab[:3], slab[3].T],
            [*slab[:3], xs[0].reshape(turned)],
        )  # fmt: skip
        for outs in wrong:
            with pytest.raises(sj.ShapeJitError):
                program.map(xs, out=outs)
            assert (slab == 7).all()
        before, sources = memory.copy(), list(memory[4:8])
        for begin in range(1, 12 - 4):
            into = memory[begin : begin + 4].reshape(4, *turned)
            if begin == 8:
                continue
            for outs in (into, list(into)):
                with pytest.raises(sj.ReshapeError, match="overlaps"):
                    program.map(sources, out=outs)
        assert (memory == before).all()
        into = memory[8:].reshape(4, *turned)
        program.map(sources, out=into)
        assert all((made == x.T).all() for made, x in zip(into, sources, strict=True))


@pytest.mark.parametrize("by", [patience.force_numpy, nullcontext])
@pytest.mark.parametrize("count", [3, 3000])
def test_tensors_of_maps_that_are_known_are_checked(by, count):
    """Also where NumPy would stack them: their rows are as many as expected."""
    program = sj.plan((5, 7), "int32", lambda t: t.T.ascontiguous())
    xs = [np.full((5, 7), k, np.int32) for k in range(count)]
    slab = np.full((count, 7, 5), -1, np.int32)
    six = np.zeros((6, 7), np.int32)
    wrong = (
        [six[:4], six, *xs[2:]], [*xs[:-2], six, six[:4]], [*xs[:-1], xs[0].astype(np.int64)],
        [*xs[:-1], xs[0].astype(">i4")], [*xs[:-1], xs[0].T], [*xs[:-1], slab[0].T],
    )  # fmt: skip
    with by():
        for _ in range(3):
            assert all((made == x.T).all() for made, x in zip(program.map(xs), xs, strict=True))
            program.map(xs, out=np.zeros_like(slab))
        for items in wrong:
            with pytest.raises(sj.ShapeJitError):
                program.map(items, out=slab)
            assert (slab == -1).all()
        turned = [np.asfortranarray(x) for x in xs]
        for _ in range(2):  # of other strides, after those of the first kind
            made = program.map([*xs[:-1], turned[-1]])
            assert all((a == x.T).all() for a, x in zip(made, xs, strict=True))


ORDERS = {
    "rows": np.ascontiguousarray,
    "columns": np.asfortranarray,
    "rows backwards": lambda x: x[::-1],
    "every other column": lambda x: np.repeat(x, 2, 1)[:, ::2],
    "columns backwards": lambda x: np.asfortranarray(x)[:, ::-1],
}


@pytest.mark.parametrize("by", [patience.force_numpy, patience.force_kernels])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_maps_of_arrays_in_any_order(by, order, dtype):
    xs = [ORDERS[order](np.arange(12, dtype=np.float32).reshape(3, 4) + 100 * k) for k in range(4)]
    looks = (
        lambda t: t[:, ::-1],
        lambda t: t[::-1, ::-1],
        lambda t: t.T,
        lambda t: t[1:, ::2],
        lambda t: t[:1].reshape((4,)),
    )
    with by():
        for look in looks:
            program = sj.plan((3, 4), "float32", lambda t, look=look: look(t).cast(dtype))
            wanted = [look(x).astype(dtype) for x in xs]
            slab = np.empty((4, *program.shape), dtype)
            for _ in range(4):
                slab[...] = 0
                for made in (program.map(xs), program.map(xs, out=slab)):
                    assert np.array_equal(np.stack(list(made)), np.stack(wanted))
            flat = sj.plan((3, 4), "float32", lambda t, look=look: look(t).reshape((-1,)))
            wanted = [look(x).reshape(-1) for x in xs]
            for _ in range(4):
                assert np.array_equal(np.stack(flat.map(xs)), np.stack(wanted))


BY = [patience.force_numpy, nullcontext]
SCALE, ZERO = np.float32(0.25), np.float32(3)
MOVES = {
    "copied": ("float32", lambda t: t.T.ascontiguous(), lambda x: x.T.copy()),
    "cast": ("float32", lambda t: t.T.cast("float64"), lambda x: x.T.astype(np.float64)),
    "to bfloat16": ("float32", lambda t: t.T.cast("bfloat16"), lambda x: x.T.astype("bfloat16")),
    "scaled": (
        "uint8",
        lambda t: t.T.dequantize(SCALE, zero_point=ZERO),
        lambda x: (x.T.astype(np.float32) - ZERO) * SCALE,
    ),
}


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize(("side", "count"), [(1, 5), (5, 2), (5, 300), (70, 40)])
def test_maps_into_outputs_in_any_order(by, move, side, count):
    kind, fn, expected = MOVES[move]
    program = sj.plan((side, side + 2), kind, fn)
    rng = np.random.default_rng(0)
    xs = [rng.integers(0, 99, program.source_shape).astype(kind) for _ in range(count)]
    want = [expected(x).tobytes() for x in xs]
    memory = np.zeros((count, *program.shape), program.result_dtype.numpy)
    ways = {
        "one": memory,
        "rows": list(memory),
        "backwards": list(memory)[::-1],
        "shuffled": [memory[i] for i in rng.permutation(count)],
        "each its own": [np.zeros_like(row) for row in memory],
        "new": None,
    }
    with by():
        for outs in ways.values():
            for _ in range(3):
                memory[...] = 0
                assert [x.tobytes() for x in program.map(xs, out=outs)] == want
        memory[...] = 7
        other = [*memory[:-1], memory[0]]
        for outs in (other, other[::-1], [*memory[:-1], memory[-1].T], list(memory)[1:]):
            if count > 2 and side > 1:
                with pytest.raises(sj.ReshapeError):
                    program.map(xs, out=outs)
        for outs in (memory[0, 0, 0, ...], memory[:, 0, 0], memory[1:]):
            with pytest.raises(sj.ShapeJitError):
                program.map(xs, out=outs)
    assert (memory == 7).all()


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("move", MOVES)
def test_maps_of_several_orders_and_of_tensors(by, move):
    kind, fn, expected = MOVES[move]
    program = sj.plan((6, 6), kind, fn)
    arrays = np.random.default_rng(0).integers(0, 99, (60, 6, 6)).astype(kind)
    xs = [ORDERS[order](x) for order, x in zip([*ORDERS] * 12, arrays, strict=True)]
    want = [expected(x).tobytes() for x in xs]
    for items in (xs, [sj.asarray(x) for x in xs]):
        lent = (lambda x: x) if items is xs else sj.asarray
        slab = lent(np.zeros((60, *program.shape), program.result_dtype.numpy))
        outs = [slab[i] for i in range(60)]
        with by():
            for _ in range(2):
                assert [x.tobytes() for x in program.map(items)] == want
                for out, made in ((slab, outs), (outs, outs), (outs[::-1], outs[::-1])):
                    assert program.map(items, out=out) is out
                    assert [x.tobytes() for x in made] == want


def test_programs_of_any_length_inline_and_map_stacks():
    turn = sj.plan((None, 3), "int16", lambda t: t.T)
    outer = sj.plan((5, 3), "int16", lambda t: turn(t).reshape((15,)))
    x = np.arange(15, dtype=np.int16).reshape(5, 3)
    assert outer(x).tolist() == x.T.reshape(-1).tolist()
    for length in (2, 5):
        stack = np.arange(4 * length * 3, dtype=np.int16).reshape(4, length, 3)
        for _ in range(4):
            assert np.array_equal(turn.map(stack), stack.swapaxes(1, 2))
            assert np.array_equal(turn(stack[0]), stack[0].T)
            with pytest.raises(sj.ReshapeError):
                turn(stack)


@pytest.mark.parametrize("by", BY)
def test_maps_of_arrays_of_another_library_that_are_known(by):
    torch = pytest.importorskip("torch")
    program = sj.plan((3, 4), "float32", lambda t: t.T.ascontiguous())
    xs = [torch.arange(12, dtype=torch.float32).reshape(3, 4) + i for i in range(7)]
    outs = [torch.zeros(4, 3) for _ in xs]
    with by():
        for _ in range(4):
            assert program.map(xs, out=outs) is outs
            for made in (outs, program.map(xs), [*program.imap(iter(xs))]):
                assert all(torch.equal(a, x.T) for a, x in zip(made, xs, strict=True))


def test_outputs_without_elements_overlap_nothing():
    memory = np.arange(4, dtype=np.uint8)
    program = sj.plan((2,), "uint8", lambda t: t[0:0])
    outs = [memory[1:1], memory[3:3]]
    assert program.map([memory[:2], memory[2:]], out=outs) is outs


@pytest.mark.parametrize(
    "fn", [lambda t: t / 255, lambda t: 2 * t, lambda t: t - 1, lambda t: -t], ids=range(4)
)
def test_arithmetic_on_a_traced_tensor_says_what_to_write(fn):
    with pytest.raises(TypeError, match=r"a traced tensor has no .*t\.dequantize\(1 / 255\)"):
        sj.plan((2, 3), "uint8", fn)


@pytest.mark.parametrize("into", [True, False])
def test_arrays_of_other_kinds_are_refused_wherever_they_are(into):
    memory = np.full((3, 64 * 64 // 2 + 64), 0xA5, np.uint8)
    outs = [sj.Tensor.frombuffer(row[:2048], "int4", (64, 64)) for row in memory]
    tensor = sj.cast(sj.asarray(np.ones((64, 64), np.int8)), "int4")
    array = np.ones((64, 64), ml_dtypes.int4)
    program = sj.plan((64, 64), "int4", lambda t: t.T)
    for items in ([tensor, array, tensor], [array, tensor, array]):
        with pytest.raises(sj.DTypeError, match="tensor 1"):
            program.map(items, out=outs if into else None)
    assert (memory == 0xA5).all()


def test_a_known_map_by_numpy_refuses_what_is_no_array_and_reads_lists_once(monkeypatch):
    program = sj.plan((4, 6), "int16", lambda t: t.T.cast("float32"))
    items = [np.arange(24, dtype=np.int16).reshape(4, 6) + k for k in range(3)]
    outs = [np.zeros((6, 4), np.float32) for _ in items]
    with patience.force_numpy():
        for _ in range(3):
            program.map(items, out=outs)
        for wrong in (None, [1], "x", memoryview(b"abc")):
            with pytest.raises(sj.DTypeError, match="tensor 2"):
                program.map([*items[:2], wrong], out=outs)
        with pytest.raises(sj.ReshapeError, match="tensor 2"):
            program.map([*items[:2], np.zeros((), np.int16)], out=np.zeros((3, 6, 4), np.float32))
        checked, other = maps.may_fill, np.zeros((6, 4), np.int8)

        def changes(sources, targets):
            outs[1] = other
            return checked(sources, targets)

        monkeypatch.setattr(maps, "may_fill", changes)
        first = outs[1]
        first[...] = 0
        program.map(items, out=outs)
        assert (first == items[1].T).all()
        assert not other.any()


def test_small_results_by_numpy_are_those_of_the_strides_given():
    a = np.arange(16, dtype=np.float32).reshape(4, 4)
    programs = {
        sj.plan((4, 4), "float32", lambda t: t.T.cast("float64")): lambda x: x.T.astype("f8"),
        sj.plan((4, 4), "float32", lambda t: t.T.reshape((16,))): lambda x: x.T.reshape(16),
        sj.plan((4, 4), "float32", lambda t: t.T.ascontiguous()): lambda x: x.T,
    }
    for program, plain in programs.items():
        with patience.force_numpy():
            for x in [a, a.T, a[::-1], np.asfortranarray(a)] * 4:
                made = program(x)
                assert made.flags.c_contiguous
                np.testing.assert_array_equal(made, plain(x))
        with pytest.raises(sj.ReshapeError):
            program(a[:2])
