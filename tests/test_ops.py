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
    steps = draw(st.lists(st.integers(0, 8), max_size=6))
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
    (("view", ()),),
    (("view", ((2, 3), ())),),
    (("view", ([3, 2], (), (((1, 1),), ((0, 1),)))),),
    (("view", ((3, 2), [], (((1, 1),), ((0, 1),)))),),
    (("view", ((3, 2), (), [((1, 1),), ((0, 1),)])),),
    (("view", ((3, 2), (), ([(1, 1)], ((0, 1),)))),),
    (("view", ((3, 2), (), (([1, 1],), ((0, 1),)))),),
    (("view", ((3, 2), (), (((1, 1),),))),),  # no steps of its last dim
    (("view", ((3, 2), (), (((2, 1),), ((0, 1),)))),),  # no such axis
    (("view", ((3, 2), (), (((-1, 1),), ((0, 1),)))),),
    (("view", ((3, 2), (), (((1, True),), ((0, 1),)))),),
    (("view", ((3, 2), (), (((1, 1.0),), ((0, 1),)))),),
    (("view", ((3, 2), (), (((1, np.int64(1)),), ((0, 1),)))),),
    (("view", ((3, 2), (), (((1, HUGE),), ((0, 1),)))),),
    (("view", ((3, 2), (), (((1, 1), (1, 1)), ((0, 1),)))),),  # an axis twice
    (("view", ((3, 2), ((0, 0), (0, 1)), (((1, 1),), ((0, 1),)))),),
    (("view", ((4, 2), (), (((1, 1),), ((0, 1),)))),),  # beyond the end
    (("view", ((2, 2), ((1, 2),), (((1, 1),), ((0, 1),)))),),
    (("view", ((2, 2), ((1, -1),), (((1, 1),), ((0, 1),)))),),
    (("view", ((3, 2), (), (((1, -1),), ((0, 1),)))),),
    (("view", ((3, 2), (), (((1, 1),), ((1, 1),)))),),  # 2 + 1 of one dim
    (("view", ((2, 2), (), (((1, 2**62),), ((0, 1),)))),),
    (("view", ((-1, 2), (), (((1, 1),), ((0, 1),)))),),
    (("view", ((3, 4), (), (((1, 1),), ()))),),  # elements several times
    (("view", ((3, 4), (), (((1, 1),), ((0, 0),)))),),
    (("broadcast", ((3, 4), ((0, 1),), (((1, 1),), ((0, 0),)))),),  # steps of 0 are not written
    (("view", ((0, 3), (), ((), ()))), ("view", ((1,), (), ((),)))),
    (("broadcast", ((3, 4), (), (((1, 1),), ((0, 1),)))),),
    (("broadcast", ((2**62, 2, 3), (), ((), ((0, 1),), ((1, 1),)))),),
    (("broadcast", ((1,) * 1025, (), ((),) * 1025)),),
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
