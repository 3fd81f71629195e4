"""The proof before a write: a wrong result of any kind is seen, and nothing is written then."""

import os

import ml_dtypes
import numpy as np
import pytest
import scheme_fixtures

import shapejit as sj
from shapejit.conversion import changes, proof, repacks, rounding, sources
from shapejit.files import stored
from shapejit.operations import joining
from shapejit.quantization import bands, carrying

RNG = np.random.default_rng(7)
X = RNG.standard_normal((6, 40)).astype(np.float32)
PLAIN = {"a": X, "b": X[::-1].copy(), "c": X.astype(ml_dtypes.bfloat16)}
CODES = {"q": RNG.integers(-(2**31), 2**31, (32, 6)).astype(np.int32)}


def off_by_a_bit(function):
    """The function, but for a bit of its result."""

    def wrong(*given, **options):
        made = function(*given, **options)
        memory = made.buffer if isinstance(made, sj.Tensor) else made.reshape(-1).view(np.uint8)
        memory[-1] ^= 1
        return made

    return wrong


def wrong_pieces(function):
    def wrong(*given):
        for piece in function(*given):
            made = piece.copy()
            made[-1] ^= 0x80
            yield made

    return wrong


def wrong_decode(function):
    """Twice the numbers: the fault of a scale, which rounding does not show."""

    def wrong(band, tensors, kind, out):
        made = function(band, tensors, kind, out)
        x = made.numpy()
        x[...] = x * 2
        return made

    return wrong


def wrong_parts(function):
    def wrong(*given, **options):
        made = function(*given, **options)
        first = next(iter(made.values()))
        first.buffer[0] ^= 1
        return made

    return wrong


def turned(function):
    """What is joined, in the other order."""

    def wrong(parts, *given, **options):
        made = function(parts, *given, **options)
        x = made.numpy()
        x[...] = x[:, ::-1].copy()
        return made

    return wrong


MOVED = (stored, "pieces", wrong_pieces)
CAST = (changes, "cast", off_by_a_bit)
REPACKED = (repacks, "repack", off_by_a_bit)
DECODED = (bands.Band, "decode", wrong_decode)
JOINED = (joining, "concat", turned)
VIEWED = (sources, "pieces", wrong_pieces)
AWQ = scheme_fixtures.named("awq-gemm").checkpoint()
CASES = {
    "permute": (PLAIN, [("permute", "a=1,0")], MOVED),
    "reshape": (PLAIN, [("reshape", "a=2,3,40"), ("permute", "a=1,0,2")], MOVED),
    "slice": (PLAIN, [("slice", "a=::2,1:7")], MOVED),
    "copied twice": (PLAIN, [("permute", "a=1,0"), ("reshape", "a=16,15"), ("permute", "a=1,0")],
                     VIEWED),
    "cast": (PLAIN, [("cast", "a=BF16")], CAST),
    "widened": (PLAIN, [("cast", "c=F32")], CAST),
    "to int": (PLAIN, [("cast", "a=I8")], CAST),
    "cast twice": (PLAIN, [("cast", "a=BF16"), ("cast", "a=float8_e4m3fn")], CAST),
    "moved and cast": (PLAIN, [("permute", "a=1,0"), ("cast", "a=BF16")], MOVED),
    "concat": (PLAIN, [("concat", "a=1:b->d")], JOINED),
    "interleave": (PLAIN, [("interleave", "a=0:b->d")], JOINED),
    "split": (PLAIN, [("split", "a=1:d,e")], MOVED),
    "repack": (CODES, [("repack", "q=awq:gemm->gptq:qweight")], REPACKED),
    "to f32": (AWQ, [("to", "f32")], DECODED),
    "to bf16": (AWQ, [("to", "bf16"), ("permute", ".*=1,0")], DECODED),
    "to gptq": (AWQ, [("to", "gptq")], (carrying, "written", wrong_parts)),
    "moved codes": (AWQ, [("permute", ".*qweight=1,0")], MOVED),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_result_stops_a_conversion(case, tmp_path, monkeypatch):
    tensors, rules, (room, name, wrong) = CASES[case]
    source = tmp_path / "in.safetensors"
    sj.save_file(tensors, source)
    sj.files.convert(source, tmp_path / "right.safetensors", rules)
    monkeypatch.setattr(room, name, wrong(getattr(room, name)))
    with pytest.raises(sj.FormatError, match="the proof failed"):
        sj.files.convert(source, tmp_path / "out.safetensors", rules)
    assert sorted(os.listdir(tmp_path)) == ["in.safetensors", "right.safetensors"]
    if case != "to gptq":  # which is converted when it is planned
        sj.files.convert(source, tmp_path / "out.safetensors", rules, proof=False)
        files = (tmp_path / "out.safetensors", tmp_path / "right.safetensors")
        assert files[0].read_bytes() != files[1].read_bytes()


def test_rows_of_large_tensors_are_proved(tmp_path, monkeypatch):
    """As are a few of many tensors that are joined."""
    monkeypatch.setattr(proof, "WHOLE", 8000)
    source = tmp_path / "in.safetensors"
    sj.save_file({f"e.{k}": X + k for k in range(9)}, source)
    for sample, rules, fault in (
        (100, [("permute", ".*=1,0")], MOVED),
        (2000, [("concat", "e.0=1:" + ",".join(f"e.{k}" for k in range(1, 9)) + "->e")], JOINED),
        (100, [("cast", ".*=F16")], CAST),
    ):
        monkeypatch.setattr(proof, "SAMPLE", sample)
        sj.files.convert(source, tmp_path / "right.safetensors", rules)
        with monkeypatch.context() as patch:
            patch.setattr(fault[0], fault[1], fault[2](getattr(*fault[:2])))
            with pytest.raises(sj.FormatError, match="proof failed"):
                sj.files.convert(source, tmp_path / "out.safetensors", rules)
    assert sorted(os.listdir(tmp_path)) == ["in.safetensors", "right.safetensors"]


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "int8", "bool"])
def test_nearest_numbers(name):
    """Those that NumPy and ml_dtypes round to, beyond the range, too; not their neighbours."""
    kind = sj.dtype(name)
    x = np.concatenate([X.ravel() * s for s in (1, 100, 1e4, 1e38)]).astype(np.float32)
    for saturate in (True, False):
        assert rounding.rounds(x, sj.cast(x, kind, saturate=saturate), kind)
    made = sj.cast(X, kind)
    made.reshape(-1).view(np.uint8)[5 * made.itemsize] ^= 1
    assert not rounding.rounds(X, made, kind)
