"""The demo: right bits, and its exit code."""

import io
import json
import re
import shlex
import subprocess
import sys
import time
from argparse import Namespace

import pytest

import shapejit as sj
from shapejit.__main__ import main
from shapejit.bench import comparison, demo
from shapejit.cli import progress


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Small tensors, few rounds: the proof does not depend on the size."""
    monkeypatch.setattr(demo, "BYTES", 1024 * 1024)
    monkeypatch.setattr(demo, "COPIED_BYTES", 64 * 1024)
    monkeypatch.setattr(demo, "ROUNDS", 2)


def test_every_bit_is_right(capsys):
    assert main(["demo"]) == 0
    out, err = capsys.readouterr()
    assert "17 tensors written: 16 converted" in out
    assert "none of 17 weights differ" in out
    assert "Every copy equals NumPy's, bit for bit." in out
    assert out.count(" yes ") == 4
    for kind in ("FP8", "bfloat16", "float8_e4m3fn", "float4_e2m1fn"):
        assert kind in out
    assert err == ""  # progress is for terminals


def test_json(capsys):
    assert main(["demo", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["same"] is True
    assert found["differences"] == []
    assert found["convert"]["tensors"] == 17
    row = found["copies"][0]
    assert row["ratio"] == pytest.approx(row["gb_per_s"] / row["numpy_gb_per_s"])


@pytest.mark.parametrize("disturbed", [False, True])
def test_rows_that_are_disturbed_are_reported(disturbed, capsys, monkeypatch):
    seconds = {"shapejit": 1.0, "numpy": 4.0, "memcpy": 2.0, "memcpy of one thread": 2.0}
    seconds["memcpy"] += disturbed
    measured = lambda sj, case, rounds: comparison.Measured(case, seconds)  # noqa: E731
    monkeypatch.setattr(demo, "measure", measured)
    assert main(["demo"]) == 0
    assert ("4 of 4 rows were disturbed" in capsys.readouterr().out) is disturbed
    row = demo.run().rows[0]
    assert row.disturbed is disturbed
    assert row.ratio == pytest.approx(4)


def test_a_wrong_bit_of_the_conversion_is_found(capsys, monkeypatch):
    convert = demo.files.convert

    def wrong(source, target, rules):
        report = convert(source, target, rules)
        with open(f"{target}/model.safetensors", "r+b") as file:
            file.seek(-2, 2)
            last = file.read(1)
            file.seek(-2, 2)
            file.write(bytes([last[0] ^ 1]))
        return report

    monkeypatch.setattr(demo.files, "convert", wrong, raising=False)
    assert main(["demo"]) == 1
    out, _ = capsys.readouterr()
    assert "1 of 17 weights differ" in out
    assert "up_proj.weight[255, 255]" in out


def test_a_wrong_bit_of_a_copy_is_found(capsys, monkeypatch):
    ascontiguous = sj.ascontiguous

    def wrong(x, *, out):
        made = ascontiguous(x, out=out)
        if isinstance(x, sj.Tensor):
            out.buffer[1000] ^= 16
        return made

    monkeypatch.setattr(sj, "ascontiguous", wrong)
    assert main(["demo"]) == 1
    out, _ = capsys.readouterr()
    assert "NOT every copy equals" in out
    assert out.count(" NO ") == 1


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_the_clock_ticks_while_a_step_takes_long(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())

    def ticked():  # where others have the cores, it misses a second
        return re.search(r"compiling 00:(?!00)\d\d", sys.stderr.getvalue())

    with progress.clock(Namespace(quiet=False)) as line:
        line.set_description_str("compiling")
        deadline = time.monotonic() + 300
        while not ticked() and time.monotonic() < deadline:
            time.sleep(0.05)
    assert ticked()


def test_quiet(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert main(["demo", "--quiet"]) == 0
    assert sys.stderr.getvalue() == ""
    assert main(["demo"]) == 0
    assert "writing an FP8 checkpoint" in sys.stderr.getvalue()


def test_the_printed_commands_can_be_pasted(tmp_path, capsys):
    kept = tmp_path / "my demo"
    assert main(["demo", "--keep", str(kept)]) == 0
    lines = capsys.readouterr().out.splitlines()
    convert, verify = (shlex.split(line) for line in lines if line.startswith("shapejit "))
    made = kept / "bf16" / "model.safetensors"
    before = made.read_bytes()
    made.unlink()
    assert main(convert[1:]) == 0
    assert made.read_bytes() == before
    assert main(verify[1:]) == 0
    assert json.loads((kept / "bf16" / "config.json").read_text()) == {"dtype": "bfloat16"}
    assert main(["demo", "--keep", str(kept)]) == 2  # it is there already


def test_nothing_stays_behind(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(demo.tempfile, "tempdir", None)
    assert demo.run().same
    assert list(tmp_path.iterdir()) == []


def test_the_core_is_enough():
    """No package of the extras is imported, safetensors included."""
    extras = "safetensors onnx onnxruntime openvino torch gguf onnx_ir hypothesis pytest"
    code = (
        "import sys\n"
        f"for name in {extras.split()!r}: sys.modules[name] = None\n"
        "from shapejit.bench import demo; from shapejit.__main__ import main\n"
        "demo.BYTES, demo.COPIED_BYTES, demo.ROUNDS = 1 << 20, 1 << 16, 1\n"
        "sys.exit(main(['demo']))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0
