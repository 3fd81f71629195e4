"""Every command of the README runs; its Python snippets run as doctests."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import shapejit as sj
from shapejit.conversion import RULES

ROOT = Path(__file__).parent.parent
TESTS = "-m pytest -n auto --dist loadfile"
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
COMMANDS = [line for block in BLOCKS for line in block.replace("\\\n", " ").splitlines()]


@pytest.mark.parametrize(
    "command", sorted({c.split("#")[0].strip() for c in COMMANDS if "-m benchmarks." in c})
)
def test_commands_of_the_benchmarks_parse(command):
    words = [sys.executable, *shlex.split(command)[1:], "--help"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for word in words:
        assert not word.startswith("--") or word in done.stdout


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("shapejit ")])
def test_commands(command, tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    tensors = {
        "layers.0.q_proj.weight": np.arange(4 * 16 * 64, dtype=np.float32).reshape(64, 64),
        "embed": np.arange(64, dtype=np.float32).reshape(4, 16),
    }
    for name in ("model.safetensors", "out.safetensors"):
        safetensors.save_file(tensors, tmp_path / name)
    parts = sj.schemes["fp8:channel"].encode(np.eye(8, dtype=np.float32))
    (tmp_path / "model-fp8").mkdir()
    weights = {f"model.fc.{part}": t for part, t in parts.items()}
    weights["model.norm.weight"] = np.ones(8, np.float32)
    sj.save_file(weights, tmp_path / "model-fp8" / "model.safetensors")
    words = [sys.executable, "-m", *shlex.split(command)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_every_rule_is_listed_as_its_row_says():
    rows = [f"| `--{name} '{kind.form}'` | {kind.text} |" for name, kind in RULES.items()]
    assert "\n".join(["| rule | what it does |", "|---|---|", *rows, ""]) in README


def test_continuous_integration_installs_and_tests_as_the_readme_says():
    script = (ROOT / ".ci" / "run").read_text()
    install, test, *_ = (c for c in COMMANDS if c.startswith("python3 -m venv"))
    assert install.endswith(".venv/bin/pip install . && .venv/bin/shapejit demo")
    for step in ("pip install --quiet --disable-pip-version-check -e '.[test]'", TESTS):
        assert step in script
    assert "pip install -e '.[test]'" in test
    assert test.endswith(TESTS)
