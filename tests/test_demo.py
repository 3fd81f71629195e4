"""The demo: right bits, and an exit code that says so."""

import io
import json
import shlex
import subprocess
import sys
import time
from argparse import Namespace

import pytest

from shapejit import conversion
from shapejit.__main__ import main
from shapejit.arrays.tensor import Tensor
from shapejit.bench import demo
from shapejit.cli import progress


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Small tensors, few rounds: the proof does not depend on the size."""
    monkeypatch.setattr(demo, "BYTES", 64 * 1024)
    monkeypatch.setattr(demo, "ROUNDS", 2)


def test_every_bit_is_right(capsys):
    assert main(["demo"]) == 0
    out, err = capsys.readouterr()
    assert "Every tensor equals NumPy's, bit for bit." in out
    assert out.count(" yes ") == 8
    for kind in ("float32", "bfloat16", "float8_e4m3fn", "float4_e2m1fn"):
        assert f"split.{kind}" in out
        assert f"merge.{kind}" in out
    assert err == ""  # progress is for terminals


def test_json(capsys):
    assert main(["demo", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["same"] is True
    assert found["convert"]["moved"] == len(found["tensors"]) == 8
    row = found["tensors"][0]
    assert row["ratio"] == pytest.approx(row["gb_per_s"] / row["numpy_gb_per_s"])


def test_rounds_that_other_programs_slow_do_not_count():
    quiet = [0.3, 0.3, 0.31, 0.32, 0.33, 0.34, 0.35]
    assert demo.typical(quiet) == pytest.approx(0.305)
    assert demo.typical([0.35, 7.1, 0.3, 7.7, 7.4, 0.31, 0.32]) == pytest.approx(0.315)
    assert demo.typical([3.0, 1.0, 2.0]) == 1.5
    assert demo.typical([2.0, 1.0]) == demo.typical([1.0]) == 1.0


@pytest.mark.parametrize("slow", [None, 0, 1])
def test_rows_that_are_disturbed_all_the_same_are_told(slow, capsys, monkeypatch):
    times = [[1.0, 1.05, 1.1, 1.1, 9.0, 9.0, 9.0] for _ in range(2)]
    if slow is not None:
        times[slow] = [1.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0]
    interleaved = demo.interleaved
    monkeypatch.setattr(demo, "interleaved", lambda *calls: interleaved(*calls) and times)
    assert main(["demo"]) == 0
    assert ("8 of 8 rows were disturbed" in capsys.readouterr().out) is (slow is not None)
    row = demo.run().rows[0]
    assert row.disturbed is (slow is not None)
    assert row.ratio == pytest.approx({None: 1, 0: 1.075 / 9, 1: 9 / 1.075}[slow])


def test_one_wrong_bit_is_found(capsys, monkeypatch):
    result = conversion.Change.result

    def wrong(change, tensor):
        tensor = result(change, tensor)
        if change.name == "split.float4_e2m1fn":
            buffer = tensor.buffer.copy()
            buffer[1000] ^= 16
            tensor = Tensor(buffer, tensor.dtype, tensor.layout)
        return tensor

    monkeypatch.setattr(conversion.Change, "result", wrong)
    assert main(["demo"]) == 1
    out, _ = capsys.readouterr()
    assert "NOT every tensor equals" in out
    assert out.count(" NO ") == 1


def test_a_wrong_shape_is_found(monkeypatch):
    split, merge = demo.JOBS
    rules = (("permute", r"merge\..*=1,0,2"), ("reshape", r"merge\..*=-1,0,1"))
    monkeypatch.setattr(demo, "JOBS", (split, merge._replace(rules=rules)))
    assert {row.name.split(".")[0]: row.same for row in demo.run().rows} == {
        "split": True,
        "merge": False,
    }


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_the_clock_ticks_while_a_step_takes_long(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress.clock(Namespace(quiet=False)) as line:
        line.set_description_str("compiling")
        deadline = time.monotonic() + 30
        while "00:01" not in sys.stderr.getvalue() and time.monotonic() < deadline:
            time.sleep(0.05)
    assert "compiling 00:01" in sys.stderr.getvalue()


def test_quiet(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert main(["demo", "--quiet"]) == 0
    assert sys.stderr.getvalue() == ""
    assert main(["demo"]) == 0
    assert "making a checkpoint" in sys.stderr.getvalue()


def test_the_printed_command_can_be_pasted(tmp_path, capsys):
    kept = tmp_path / "my demo"
    assert main(["demo", "--keep", str(kept)]) == 0
    command = capsys.readouterr().out.splitlines()[0]
    made = kept / "target.safetensors"
    before = made.read_bytes()
    made.unlink()
    words = shlex.split(command)
    assert words[0] == "shapejit"
    assert main(words[1:]) == 0
    assert made.read_bytes() == before
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
        "demo.BYTES, demo.ROUNDS = 65536, 1\n"
        "sys.exit(main(['demo']))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0
