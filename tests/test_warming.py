"""Kernels compiled beforehand, and what is told of compilations."""

import json
import os
import subprocess
import sys
import time

import pytest
from compiled import COMPILED

import shapejit as sj
from shapejit import warming
from shapejit.__main__ import main

compiled = pytest.mark.skipif(not COMPILED, reason="nothing is compiled with the JIT off")


def test_the_command_and_the_function(capsys):
    assert main(["warmup", "--only", "programs", "--json"]) == 0
    assert json.loads(capsys.readouterr().out).keys() == {"programs"}
    assert main(["warmup", "--only", "programs"]) == 0
    assert capsys.readouterr().out.split()[:3] == ["work", "seconds", "programs"]
    assert sj.warmup(["programs"])["programs"] > 0


def test_unknown_work_is_refused(capsys):
    with pytest.raises(sj.FormatError, match="unknown work 'everything': warmup takes copies, "):
        sj.warmup(["everything"])
    assert main(["warmup", "--only", "everything"]) == 2
    assert "unknown: 'everything'; known are copies" in capsys.readouterr().err


def test_what_a_killed_process_leaves_undone_is_done_by_the_first(tmp_path):
    """The other one claims the first of three and dies; meanwhile this one does the second."""
    code = """
import os, sys
_, folder, *names, path = sys.argv
assert names == ["one", "two"], names
open(os.path.join(folder, "0"), "x").close()
open(path, "x").close()
os.kill(os.getpid(), 9)
"""
    done = []

    def own(folder, *names):
        while not (tmp_path / "claimed").exists():
            time.sleep(0.01)
        done.extend(warming.claimed(folder, names))

    names = ["one", "two", str(tmp_path / "claimed")]
    taken = warming.divided(own, code, names, 2)
    assert done == ["two", names[2], "one"]
    assert all(seconds >= 0 for seconds in taken)
    assert len(taken) == 3


def test_nobody_works_on_when_the_first_process_fails(tmp_path):
    code = "import os, sys, time; open(sys.argv[2], 'w').write(str(os.getpid())); time.sleep(99)"
    path = tmp_path / "process"

    def own(folder, *names):
        while not (path.exists() and path.read_text()):
            time.sleep(0.01)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        warming.divided(own, code, [str(path)], 2)
    with pytest.raises(ProcessLookupError):
        os.kill(int(path.read_text()), 0)


@compiled
def test_two_processes_divide_the_work():
    command = [sys.executable, "-m", "shapejit", "warmup", "--only", "programs", "joins"]
    command += ["--processes", "2", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout).keys() == {"programs", "joins"}


@compiled
def test_long_compilations_are_logged_and_a_missing_folder_is_told_once(tmp_path):
    """Where neither the package's folder nor that of the user can be written."""
    code = """
import logging, sys, warnings, numba
from numba.core import caching
caching.CacheImpl._locator_classes = []
logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
from shapejit.kernels import jit
jit.NOTICED = 0.0
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    one, two = jit.kernel(lambda x: x + 1), jit.kernel(lambda x: x + 2)
    assert (one(1), two(1)) == (2, 3)
(text,) = {str(w.message) for w in told if "shapejit" in str(w.message)}
assert len([w for w in told if str(w.message) == text]) == 1
assert "NUMBA_CACHE_DIR" in text, text
"""
    command = [sys.executable, "-c", code]
    environment = {**os.environ, "HOME": str(tmp_path), "NUMBA_CACHE_DIR": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert "shapejit: compiled kernels in " in done.stderr
    assert "warmup" in done.stderr
