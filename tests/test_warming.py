"""Kernels compiled beforehand, and reports of compilations."""

import json
import os
import subprocess
import sys

import pytest
from compiled import COMPILED

import shapejit as sj
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


@compiled
def test_what_two_builders_have_warmed_is_on_disk_for_other_processes(tmp_path):
    own = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "SHAPEJIT_PATIENCE": "inf"}
    command = [sys.executable, "-m", "shapejit", "warmup", "--only", "programs"]
    command += ["--processes", "2", "--json"]
    done = subprocess.run(command, env=own, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout).keys() == {"programs"}
    code = """
import numpy as np, shapejit as sj
program = sj.plan((4, 64, 8), "float32", lambda t: t.permute_dims((1, 0, 2)).ascontiguous())
xs = [np.zeros((4, 64, 8), np.float32)] * 1000
def states(): return {kernel.state for kernel in sj.kernel_status().values()}
while states() != {"ready"}: program.map(xs)
"""
    assert subprocess.run([sys.executable, "-c", code], env=own, timeout=900).returncode == 0


@compiled
def test_kernels_that_cannot_be_built_are_named(tmp_path):
    builder = tmp_path / "python"
    builder.write_text("#!/bin/sh\nexit 3\n")
    builder.chmod(0o755)
    own = {"NUMBA_CACHE_DIR": str(tmp_path), "SHAPEJIT_BUILDER": str(builder)}
    command = [sys.executable, "-m", "shapejit", "warmup", "--only", "batches", "--json"]
    done = subprocess.run(
        command, env=os.environ | own, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 1
    assert json.loads(done.stdout).keys() == {"batches"}
    failed = [line for line in done.stderr.splitlines() if line.startswith("no kernel shapejit_")]
    assert failed
    assert all(line.endswith("builders failed: it ended (exit code 3)") for line in failed)


@compiled
def test_weights_of_bfloat16_are_encoded_by_what_is_warmed():
    """In a process of its own, which has met no work before."""
    code = """
from shapejit.programs.warming import names
found = {name.what.source.bits for name in names() if name[0] == "encode_generator"}
print(sorted(found))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=900)
    assert done.stdout.strip() == "[16, 32]", done.stderr
