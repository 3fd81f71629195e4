"""The proof before a write: a wrong result of any kind of work is found, and nothing is written."""

import ctypes
import os

import ml_dtypes
import numpy as np
import pytest
import scheme_fixtures

import shapejit as sj
from shapejit.conversion import proof
from shapejit.engine import calls, execution

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


def wrong_launch(run_launch):
    """A kernel, after which a bit of the result is wrong."""

    def wrong(launch, streamed, places, *more):
        run_launch(launch, streamed, places, *more)
        target = int(places[1, 0])
        ctypes.c_uint8.from_address(target >> 3 if launch.bits else target).value ^= 1

    return wrong


@pytest.fixture
def wrong(monkeypatch):
    """Kernels make a wrong bit."""
    for module in (calls, execution):
        monkeypatch.setattr(module, "run_launch", wrong_launch(module.run_launch))


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
