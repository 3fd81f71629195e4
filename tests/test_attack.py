"""A few cases of every attack (see the package `attack`), and the reports of failing ones."""

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest
from attack.runner import run
from attack.table import ATTACKS as ALL, Attack

ROOT = Path(__file__).parents[1]
FEW = {name: attack.few for name, attack in ALL.items() if attack.few}


@pytest.mark.parametrize("name", FEW)
def test_a_few_cases(name):
    outcome = run(name, seed=12, last=FEW[name])
    assert outcome.cases == FEW[name]
    assert not outcome.failures, "\n\n".join(map(str, outcome.failures[:5]))


@pytest.mark.parametrize("name", ["aliases", "casts", "operations", "programs"])
def test_a_few_cases_with_torch(name):
    """The attacks that draw torch tensors, too, where torch is installed."""
    pytest.importorskip("torch")
    outcome = run(name, seed=13, last=FEW[name])
    assert not outcome.failures, "\n\n".join(map(str, outcome.failures[:5]))


# Attacks that fail, so that the runner has something to find; processes look them up here.


def fails(random):
    assert random.random() < 0.5, "too large"


def crashes(random):
    if random.random() < 0.5:
        ctypes.string_at(1)


def hangs(random):
    ends = random.random() < 0.5
    while not ends:
        pass


ATTACKS = {
    "fails": Attack("test_attack.fails", "", 0),
    "crashes": Attack("test_attack.crashes", "", 0),
    "hangs": Attack("test_attack.hangs", "", 0, 1),
}


@pytest.mark.parametrize(
    ("name", "text"),
    [("fails", "too large"), ("crashes", "Segmentation fault"), ("hangs", "Timeout")],
)
def test_failures_are_told_and_the_rest_runs(name, text):
    reported = []
    outcome = run(name, 1, 2, 6, failed=reported.append, table="test_attack")
    assert outcome.cases == 4
    assert outcome.failures == reported
    assert 1 <= len(reported) < 4
    for failure in reported:
        assert text in str(failure)
        assert f"--only {name} --seed 1 --cases {failure.case}:{failure.case + 1}" in str(failure)
    case = reported[0].case
    again = run(name, 1, case, case + 1, table="test_attack")
    assert [f.case for f in again.failures] == [case]


def test_the_command():
    words = ["--only", "layouts", "--seed", "5", "--cases", "0:20"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.attack", *words], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "seed 5\n" in done.stdout
    assert "layouts: 20 cases, 0 failures\n" in done.stdout
