"""Blocks of elements permuted in registers in any order: channels by threes, patches, odd heads."""

import loops
import numpy as np
import pytest
from test_packed import run_alone

import shapejit as sj
from shapejit.planning import planner

KINDS = {"uint1": 1, "uint2": 2, "int4": 4, "uint8": 8, "uint16": 16, "float32": 32}
KINDS |= {"float64": 64, "complex128": 128}

# Shapes, and views of which a block of at most 128 bytes has pieces of 8 bytes and more.
VIEWS = {
    "channels reversed": ((16, 32, 3), lambda x: x[..., ::-1]),
    "channels first": ((5, 64, 3), lambda x: x.transpose(0, 2, 1)),
    "channels last": ((5, 3, 128), lambda x: x.transpose(0, 2, 1)),
    "patches": ((2, 3, 2, 4, 3, 16), lambda x: x.transpose(0, 2, 4, 3, 5, 1)),
    "patches back": ((2, 2, 3, 4, 16, 3), lambda x: x.transpose(0, 5, 1, 3, 2, 4)),
    "six and a half": ((7, 32, 6, 32), lambda x: x.transpose(0, 1, 3, 2)),
    "rows of 24, backwards": ((9, 24), lambda x: x[::-1, ::-1]),
    "rows of 640, backwards": ((3, 640), lambda x: x[:, ::-1]),
    "runs of 9": ((3, 5, 24, 2, 9), lambda x: x.transpose(3, 1, 0, 2, 4)),
    "a part": ((6, 80, 5), lambda x: x[1:, 16:].transpose(0, 2, 1)),
}
# Rows that no block divides, and elements between which others lie.
ALL_VIEWS = VIEWS | {
    "a prime, backwards": ((3, 641), lambda x: x[:, ::-1]),
    "short rows, backwards": ((50, 13), lambda x: x[:, ::-1]),
    "every second": ((3, 642), lambda x: x[:, ::2]),
    "every third, backwards": ((2, 997), lambda x: x[:, ::-3]),
    "every fourth of rows apart": ((5, 40, 331), lambda x: x[:, 3:, 1::4].transpose(1, 0, 2)),
    "two channels of three": ((7, 211, 3), lambda x: x[..., :2].transpose(0, 2, 1)),
    "four columns of eleven, backwards": ((301, 11), lambda x: x[::-1, ::-3]),
    "two gaps": ((5, 97, 6), lambda x: x[:, ::-2, ::2]),
    "a prime interleaved": ((3, 4, 101), lambda x: x.transpose(0, 2, 1)),
}


# Blocks of powers of two, by way of a stage: whole rows of the target at a time, and parts.
BOXES = {
    "seven side by side": ((2, 128, 7, 128), lambda x: x.transpose(3, 0, 2, 1)),
    "two side by side": ((2, 64, 3, 256), lambda x: x.transpose(3, 0, 2, 1)),
    "apart": ((2, 128, 128), lambda x: x.transpose(0, 2, 1)),
}


def packed(codes, bits):
    """Codes side by side, low bits first, one after the other; bytes as they are."""
    if bits >= 8:
        return np.frombuffer(codes.tobytes(), np.uint8)
    each = np.unpackbits(codes.reshape(-1, 1), axis=1, bitorder="little")[:, :bits]
    return np.packbits(each, bitorder="little")


def array(kind, shape, memory=None):
    """Random elements, as codes and as shapejit has them, in `memory` if it is given."""
    rng, bits = np.random.default_rng(len(shape)), KINDS[kind]
    if bits > 8:
        codes = np.frombuffer(rng.bytes(int(np.prod(shape)) * bits // 8), kind).reshape(shape)
    else:
        codes = rng.integers(0, 1 << bits, shape, np.uint8)
    raw = packed(codes, bits)
    if memory is not None:
        place, _ = memory(raw.nbytes)
        place[...] = raw
        raw = place
    if KINDS[kind] >= 8:
        return codes, raw.view(kind).reshape(shape)
    return codes, sj.Tensor.frombuffer(raw, kind, shape)


def seen(view, x):
    """A view of codes, or of a Tensor, whose method has another name."""
    return view(x) if isinstance(x, np.ndarray) else view(_Transposed(x)).tensor


class _Transposed:
    """A Tensor with NumPy's name for `permute_dims`."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __getitem__(self, index):
        return _Transposed(self.tensor[index])

    def transpose(self, *axes):
        return _Transposed(self.tensor.permute_dims(axes))


def raw(x):
    return x.reshape(-1).view(np.uint8) if isinstance(x, np.ndarray) else x.buffer


def check(kind, name, memory=None):
    shape, view = (ALL_VIEWS | BOXES)[name]
    codes, x = array(kind, shape, memory)
    wanted = packed(view(codes), KINDS[kind])
    made = seen(view, x)
    assert np.array_equal(raw(sj.ascontiguous(made)), wanted)
    if memory is not None:
        place, _ = memory(wanted.nbytes)
        whole = KINDS[kind] >= 8
        sj.ascontiguous(
            made,
            out=place.view(kind).reshape(made.shape)
            if whole
            else sj.Tensor.frombuffer(place, kind, made.shape),
        )
        assert np.array_equal(place, wanted)


@pytest.mark.parametrize("loop", ["shuffles", "shuffles streamed"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_bit_is_right(kind, loop):
    with loops.used(loop):
        for name in ALL_VIEWS:
            check(kind, name)


@pytest.mark.parametrize("loop", ["shuffles", "shuffles streamed"])
def test_boxes(loop):
    with loops.used(loop):
        for name in BOXES:
            check("int4", name)


@pytest.mark.parametrize("name", VIEWS)
def test_these_views_are_moved_so(name):
    shape, view = VIEWS[name]
    _, x = array("int4", shape)
    with loops.used("shuffles"):
        assert "blocks of elements permuted in registers" in str(planner.plan(seen(view, x).layout))


def test_bytes_of_patches_too():
    """By size: what would otherwise go by boxes."""
    shape, axes = (4, 12, 12, 16, 16, 3), (0, 5, 1, 3, 2, 4)
    codes, x = array("uint8", shape)
    assert np.array_equal(sj.ascontiguous(x.transpose(axes)), codes.transpose(axes))


def test_short_runs_of_bytes_too():
    """By size: what would otherwise go by tiles of runs."""
    codes, x = array("uint8", (14, 22, 48, 2, 9))
    axes = (3, 1, 0, 2, 4)
    plan = planner.plan(sj.asarray(x).permute_dims(axes).layout)
    assert "permuted in registers" in str(plan)
    assert np.array_equal(sj.ascontiguous(x.transpose(axes)), codes.transpose(axes))


def test_a_part_of_a_larger_result():
    """Channels reversed, one beside another: the rows of the target have gaps."""
    codes, x = array("int4", (4, 64, 3))
    with loops.used("shuffles"):
        made = sj.concat([x[..., ::-1], x, x[..., ::-1]], axis=1)
    wanted = np.concatenate([codes[..., ::-1], codes, codes[..., ::-1]], axis=1)
    assert np.array_equal(made.buffer, packed(wanted, 4))


@pytest.mark.parametrize("start", [0, 1, 15, 16, 33, 63])
@pytest.mark.parametrize("kind", ["uint8", "uint16"])
def test_large_results_are_streamed_wherever_they_begin(kind, start):
    """Lines of the target are written whole by way of a stage; bytes on both sides stay."""
    x = np.random.default_rng(start).integers(0, 256, (1111, 641, 6), kind)[..., ::-1]
    memory = np.full(x.nbytes + 200, 0xA5, np.uint8)
    memory = memory[-memory.ctypes.data % 64 :]
    out = memory[start : start + x.nbytes].view(kind).reshape(x.shape)
    plan = planner.plan(sj.asarray(x).layout)
    assert plan.row.tables(plan, 64)[1] > 0  # it has a stage
    sj.ascontiguous(x, out=out)
    assert (out == x).all()
    assert (memory[:start] == 0xA5).all()
    assert (memory[start + x.nbytes :] == 0xA5).all()


def test_an_offset_within_a_byte_is_left_to_others():
    codes, x = array("int4", (193,))
    with loops.used("shuffles"):
        made = x[1:].reshape((64, 3))[:, ::-1].ascontiguous()
    assert np.array_equal(made.buffer, packed(codes[1:].reshape(64, 3)[:, ::-1], 4))


def test_nothing_beside_the_memory_is_touched():
    run_alone("""
from test_mixed_blocks import BOXES, VIEWS, ALL_VIEWS, check
loops.use("shuffles")
for at_end in (True, False):
    for name in (*VIEWS, *BOXES):
        check("int4", name, Guarded(at_end))
    check("uint8", "patches", Guarded(at_end))
    check("uint8", "runs of 9", Guarded(at_end))
    for name in ALL_VIEWS:
        check("uint16", name, Guarded(at_end))
""")
