"""The proof before a write: a wrong result of any kind of work is seen, and nothing is written."""

import ctypes
import os

import ml_dtypes
import numpy as np
import pytest
import scheme_fixtures

import shapejit as sj
from shapejit.conversion import proof
from shapejit.engine import execution, numpy_fallback

RNG = np.random.default_rng(7)
X = RNG.standard_normal((600, 1200)).astype(np.float32)
PLAIN = {"a": X, "b": X[::-1].copy(), "c": X.astype(ml_dtypes.bfloat16)}
CODES = {"q": RNG.integers(-(2**31), 2**31, (32, 6)).astype(np.int32)}
AWQ = scheme_fixtures.named("awq-gemm").checkpoint()
CASES = {
    "permute": (PLAIN, [("permute", "a=1,0")]),
    "cast": (PLAIN, [("cast", "a=BF16")]),
    "widened": (PLAIN, [("cast", "c=F32")]),
    "to int": (PLAIN, [("cast", "a=I8")]),
    "cast twice": (PLAIN, [("cast", "a=BF16"), ("cast", "a=float8_e4m3fn")]),
    "moved and cast": (PLAIN, [("permute", "a=1,0"), ("cast", "a=BF16")]),
    "cast and joined": (PLAIN, [("cast", "[ab]=F16"), ("concat", "a=1:b->d")]),
    "repack": (CODES, [("repack", "q=awq:gemm->gptq:qweight")]),
    "to f32": (AWQ, [("to", "f32")]),
    "to bf16": (AWQ, [("to", "bf16"), ("permute", ".*=1,0")]),
}  # fmt: skip


def flip(bit):
    ctypes.c_uint8.from_address(bit >> 3).value ^= 1 << (bit & 7)


def wrong_numpy(function):
    """A copy, or a conversion, after which a bit of the result is wrong."""

    def wrong(source, seen, target, into, *more):
        function(source, seen, target, into, *more)
        if into.size:
            flip(target + into.span[0])

    return wrong


def wrong_kernel(function):
    """The same; where NumPy is wrong as well, it is right again."""

    def wrong(plan, sources, targets, *more, **options):
        function(plan, sources, targets, *more, **options)
        flip(int(targets[0]) + plan.target_offset)

    return wrong


@pytest.fixture
def wrong(monkeypatch):
    """One of both makes a wrong bit, kernels or NumPy: which, nobody knows."""
    for name in ("copy", "convert"):
        monkeypatch.setattr(numpy_fallback, name, wrong_numpy(getattr(numpy_fallback, name)))
    monkeypatch.setattr(execution, "run", wrong_kernel(execution.run))


@pytest.mark.parametrize("case", CASES)
def test_a_difference_stops_a_conversion(case, tmp_path, request):
    tensors, rules = CASES[case]
    source = tmp_path / "in.safetensors"
    sj.save_file(tensors, source)
    sj.files.convert(source, tmp_path / "right.safetensors", rules)
    request.getfixturevalue("wrong")
    with pytest.raises(sj.FormatError, match="the proof failed"):
        sj.files.convert(source, tmp_path / "out.safetensors", rules)
    assert sorted(os.listdir(tmp_path)) == ["in.safetensors", "right.safetensors"]


@pytest.mark.usefixtures("wrong")
def test_the_first_rows_of_large_tensors_are_proved(tmp_path, monkeypatch):
    source = tmp_path / "in.safetensors"
    sj.save_file({f"e.{k}": X + k for k in range(4)}, source)
    monkeypatch.setattr(proof, "SAMPLE", 1000)
    with pytest.raises(sj.FormatError, match="the proof failed"):
        sj.files.convert(source, tmp_path / "out.safetensors", [("cast", ".*=F16")])
    assert os.listdir(tmp_path) == ["in.safetensors"]
