"""Kernels compiled beforehand, and what is told of compilations."""

import json
import os
import subprocess
import sys

import pytest

import shapejit as sj
from shapejit.__main__ import main
from shapejit.kernels.jit import COMPILED

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
