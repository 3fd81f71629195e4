"""einops patterns on Tensors give NumPy's bits, packed dtypes too, with one copy at most."""

import subprocess
import sys

import numpy as np
import pytest

import shapejit as sj
from shapejit.engine import copying

einops = pytest.importorskip("einops")
pytest.importorskip("shapejit.adapters.einops_backend")

PATTERNS = [
    ("b s (h d) -> b h s d", (2, 5, 12), {"h": 3}, 0),
    ("b s (h d) -> (b h) s d", (2, 5, 12), {"h": 3}, 1),
    ("b s (h d) -> b s h d", (2, 5, 12), {"d": 4}, 0),
    ("b (h p) (w q) c -> b (h w) (p q c)", (2, 4, 6, 3), {"p": 2, "q": 3}, 1),
    ("a b c -> c b a", (3, 4, 5), {}, 0),
    ("a b c -> (c b a)", (3, 4, 5), {}, 1),
    ("a b -> a b", (3, 4), {}, 0),
    ("... c -> c ...", (2, 3, 4), {}, 0),
    ("a 1 b -> b a", (3, 1, 4), {}, 0),
    ("(a b) -> b () a", (12,), {"a": 3}, 0),
    ("-> 1", (), {}, 0),
]


@pytest.fixture
def copies(monkeypatch):
    """How many copies are made: each is a call that says so."""
    made = []
    real = copying.copy

    def counted(*arguments, **named):
        made.append(arguments)
        return real(*arguments, **named)

    monkeypatch.setattr(copying, "copy", counted)
    return made


def packed(shape, dtype, seed=0):
    bits = sj.dtype(dtype).bits
    codes = np.array(np.random.default_rng(seed).integers(0, 1 << bits, shape, np.uint8))
    return codes, sj.pack(codes, dtype)


@pytest.mark.parametrize("dtype", ["int4", "uint1", "float6_e3m2fn", "bfloat16", "float32"])
@pytest.mark.parametrize(("pattern", "shape", "axes", "count"), PATTERNS)
def test_rearrange(pattern, shape, axes, count, dtype, copies):
    if sj.dtype(dtype).packed:
        codes, t = packed(shape, dtype)
    else:
        codes = np.array(np.random.default_rng(0).integers(0, 99, shape))
        codes = codes.astype(sj.dtype(dtype).numpy)
        t = sj.asarray(codes)
    copies.clear()
    made = einops.rearrange(t, pattern, **axes)
    assert type(made) is sj.Tensor
    assert made.dtype is sj.dtype(dtype)
    assert len(copies) == count
    assert np.shares_memory(made.buffer, t.buffer) == (count == 0)
    want = einops.rearrange(codes, pattern, **axes)
    assert made.shape == want.shape
    assert made.unpack().tobytes() == want.tobytes()


@pytest.mark.parametrize(("pattern", "shape", "axes", "_"), [p for p in PATTERNS if len(p[1]) > 1])
def test_the_copy_comes_last(pattern, shape, axes, _, copies):
    """However the source lies: splitting its dims is always a view."""
    codes, t = packed(shape, "int4")
    order = tuple(range(len(shape)))[::-1]
    turned, t = codes.transpose(order).copy(), sj.ascontiguous(t.permute_dims(order))
    t = t.permute_dims(order)[::-1]
    copies.clear()
    made = einops.rearrange(t, pattern, **axes)
    want = einops.rearrange(turned.transpose(order)[::-1], pattern, **axes)
    assert len(copies) <= 1
    assert np.array_equal(made.unpack().view(np.uint8), want)


def test_repeat_pack_and_unpack():
    codes, t = packed((3, 4), "int4")
    for pattern, axes in (("a b -> a r b", {"r": 3}), ("a b -> (r a) b", {"r": 2}),
                          ("a b -> b a (r 2)", {"r": 2})):  # fmt: skip
        want = einops.repeat(codes, pattern, **axes)
        assert np.array_equal(einops.repeat(t, pattern, **axes).unpack().view(np.uint8), want)
    stacked = einops.rearrange([t, t], "n a b -> a (n b)")
    assert np.array_equal(
        stacked.unpack().view(np.uint8), einops.rearrange([codes, codes], "n a b -> a (n b)")
    )
    whole, shapes = einops.pack([t, t[0]], "* b")
    assert np.array_equal(whole.unpack().view(np.uint8), np.concatenate([codes, codes[:1]]))
    a, b = einops.unpack(whole, shapes, "* b")
    assert (a.tobytes(), b.tobytes()) == (t.tobytes(), sj.ascontiguous(t[0]).tobytes())
    assert einops.asnumpy(t).dtype == sj.dtype("int4").numpy
    assert einops.parse_shape(t, "a b") == {"a": 3, "b": 4}


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_reductions_are_refused(dtype):
    with pytest.raises(sj.DTypeError, match="does not compute"):
        einops.reduce(sj.asarray(np.zeros((2, 3), dtype)), "a b -> a", "mean")


def test_bad_patterns_are_einops_errors():
    with pytest.raises(einops.EinopsError):
        einops.rearrange(sj.asarray(np.zeros((2, 3))), "a b c -> a")


def test_in_a_program():
    program = sj.plan(
        (2, 5, 12), "uint4", lambda t: einops.rearrange(t, "b s (h d) -> (b h) s d", h=3)
    )
    codes, t = packed((2, 5, 12), "uint4")
    assert len(program.steps) == 1
    want = einops.rearrange(codes, "b s (h d) -> (b h) s d", h=3)
    assert np.array_equal(program(t).unpack().view(np.uint8), want)


def test_importing_registers_and_numpy_stays_numpys():
    code = """
import numpy, einops, shapejit as sj
t = sj.asarray(numpy.zeros((2, 3)))
try:
    einops.rearrange(t, "a b -> b a")
except RuntimeError:
    pass
else:
    raise SystemExit(1)
import shapejit.adapters.einops_backend
assert einops.rearrange(t, "a b -> b a").shape == (3, 2)
assert type(einops.rearrange(t.numpy(), "a b -> b a")) is numpy.ndarray
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
