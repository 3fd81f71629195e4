"""Warnings and progress of conversions, and files that cannot be read."""

import itertools
import os
import subprocess
import sys
import time

import numpy as np
import pytest

import shapejit as sj
from shapejit.__main__ import main


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.safetensors"
    sj.save_file({"a.weight": np.ones((4, 32), np.float32), "b.weight": np.ones((2, 32))}, path)
    return path


def test_gguf_without_an_architecture_is_warned_of(model, tmp_path, capsys):
    gguf = pytest.importorskip("gguf")
    path = tmp_path / "x.gguf"
    report = sj.files.convert(model, path)
    (warning,) = report.warnings
    assert "no general.architecture" in warning
    assert main(["convert", str(model), str(path)]) == 0
    assert "warning: " in capsys.readouterr().err
    reported = tmp_path / "reported.gguf"
    sj.save_file(sj.load_file(model), reported, metadata={"general.architecture": "llama"})
    assert sj.files.convert(reported, path).warnings == ()
    assert gguf.GGUFReader(path).fields["general.architecture"].contents() == "llama"
    assert sj.files.convert(model, tmp_path / "x.npz").warnings == ()


@pytest.mark.parametrize("suffix", ["bin", "pt", "pth"])
def test_nothing_is_written_under_the_names_of_pickles(suffix, tmp_path):
    with pytest.raises(sj.FileFormatError, match=r"(?i)pytorch\) cannot be written"):
        sj.save_file({"a": np.eye(2)}, tmp_path / f"a.{suffix}")
    assert list(tmp_path.iterdir()) == []


def test_progress_names_the_tensors(model, tmp_path):
    reported = []
    sj.files.convert(model, tmp_path / "x.safetensors", progress=reported.append)
    assert {count.tensor: int(count) for count in reported} == {"a.weight": 512, "b.weight": 512}


def test_without_a_terminal_there_is_a_line_a_minute(model, tmp_path, capsys, monkeypatch):
    assert main(["convert", str(model), str(tmp_path / "x.safetensors")]) == 0
    assert capsys.readouterr().err == ""
    minutes = itertools.count(0, 61)
    monkeypatch.setattr(time, "monotonic", lambda: next(minutes))
    assert main(["convert", str(model), str(tmp_path / "x.safetensors")]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("convert: 0.0 of 0.0 MB (50 %) ")
    assert lines[0].endswith(".weight")
    assert main(["--quiet", "convert", str(model), str(tmp_path / "x.safetensors")]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.skipif(sys.platform == "win32", reason="it has no pseudo-terminals")
def test_a_terminal_shows_the_tensor(model, tmp_path):
    import pty
    import termios

    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 120))
    command = [sys.executable, "-m", "shapejit", "convert", model, tmp_path / "x.safetensors"]
    env = {**os.environ, "TQDM_MININTERVAL": "0"}
    subprocess.run(
        command, stderr=theirs, stdout=subprocess.DEVNULL, env=env, check=True, timeout=600
    )
    assert b"b.weight" in os.read(ours, 100_000)
