"""The operations of a Program: what tracing writes passes the check, and nothing else does."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

import shapejit as sj
from shapejit.programs.ops import checked_ops

HUGE = 10**5000  # more digits than Python prints


@st.composite
def functions(draw):
    """A shape, and a function of one tensor of it that uses every shape operation."""
    shape = tuple(draw(st.lists(st.integers(0, 5), min_size=1, max_size=4)))
    steps = draw(st.lists(st.integers(0, 10), max_size=6))
    seed = draw(st.integers(0, 2**32 - 1))

    def fn(t):
        rng = np.random.default_rng(seed)
        for step in steps:
            if step == 0:
                t = t.permute_dims(rng.permutation(t.ndim).tolist())
            elif step == 1:
                t = sj.flip(t)
            elif step == 2 and t.ndim:
                start, stop = rng.integers(-6, 7, 2).tolist()
                t = t[start : stop : int(rng.choice([-3, -2, -1, 1, 2, 3]))]
            elif step == 3 and t.ndim and t.shape[0]:
                t = t[int(rng.integers(-t.shape[0], t.shape[0]))]
            elif step == 4:
                t = t.broadcast_to((2, *t.shape))
            elif step == 5:
                t = t.reshape((t.size, 1))
            elif step == 6:
                t = t.reshape(t.shape[::-1], copy=True)
            elif step == 7:
                t = t.ascontiguous()
            elif step == 8 and t.ndim > 1:
                t = sj.diagonal(t, int(rng.integers(-6, 7)), -1, 0)
            elif step == 9 and 1 in t.shape:
                t = t.squeeze(t.shape.index(1))
            else:
                t = t[..., None]
        return t

    return shape, fn


@given(functions())
def test_what_tracing_writes_passes(case):
    shape, fn = case
    program = sj.plan(shape, "uint3", fn)
    expected = fn(sj.pack(np.zeros(shape, np.uint8), "uint3")).shape
    assert checked_ops(program.ops, shape, program.dtype) == (expected, program.dtype)


BAD = [
    None,
    [("copy", ())],
    ("copy",),
    (("copy",),),
    (("copy", (), ()),),
    (["copy", ()],),
    ((b"copy", ()),),
    (("copy", []),),
    (("copy", (1,)),),
    (("run", ()),),
    (("of", ((2, 3),)),),
    (("x" * 10**6, ()),),
    (("permute", ()),),
    (("permute", ([1, 0],)),),
    (("permute", ((1, True),)),),
    (("permute", ((1, 0.0),)),),
    (("permute", ((1, np.int64(0)),)),),
    (("permute", ((1, HUGE),)),),
    (("permute", ((1, 1),)),),  # an axis twice
    (("permute", ((1,),)),),  # nothing of the other dim
    (("permute", ((1, 2),)),),  # no such axis
    (("permute", (1,)),),
    (("flip", (None,)),),
    (("narrow", (0, 0, 1 << 27, (0,))),),  # 1 GiB if it were repeated
    (("flip", ((2,),)),),
    (("flip", ((0, 0),)),),
    (("squeeze", ((0,),)),),
    (("select", (1,)),),
    (("select", (2, 0)),),
    (("select", (-1, 0)),),
    (("select", (1, 3)),),  # beyond the end
    (("select", (1, -1)),),
    (("select", (1, (0,))),),
    (("insert", (3,)),),
    (("insert", (-1,)),),
    (("narrow", (1, 0, 4, 1)),),
    (("narrow", (1, 1, 3, 1)),),
    (("narrow", (1, 0, 2, -1)),),
    (("narrow", (1, 0, 2, 0)),),  # an element twice
    (("narrow", (1, 0, -1, 1)),),
    (("narrow", (1, 0, 2, 2**62)),),
    (("narrow", (1, 2**62, 2, -(2**62))),),
    (("narrow", (2, 0, 1, 1)),),
    (("narrow", (1, 0, 1)),),
    (("diagonal", (0, 0, 0)),),
    (("diagonal", (0, 2, 0)),),
    (("diagonal", (-1, 0, 0)),),
    (("broadcast_to", ((3, 3),)),),
    (("broadcast_to", ((3,),)),),
    (("broadcast_to", ((-1, 2, 3),)),),
    (("broadcast_to", ((2**62, 2, 3),)),),
    (("broadcast_to", ((1,) * 1023 + (2, 3),)),),
    (("narrow", (0, 0, 0, 1)), ("select", (0, 0))),
    (("reshape", ((7,),)),),
    (("reshape", ((-1, 6),)),),
    (("reshape", ((-2, -3),)),),
    (("reshape", ((2**40, 2**40, 0),)),),
    (("reshape_view", ((5,),)),),
    (("reshape_view", ()),),
    (("contiguous", (0,)),),
]


@pytest.mark.parametrize("ops", BAD, ids=range(len(BAD)))
def test_operations_that_leave_the_source(ops):
    with pytest.raises(sj.FormatError, match="operation"):
        checked_ops(ops, (2, 3), sj.dtype("int8"))
