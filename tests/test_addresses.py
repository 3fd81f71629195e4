"""Addresses in compiled kernels: LLVM 22 may miscompile what it sees go from a pointer to an
integer and back (llvmlite#1461, numba#10695)."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SCRIPT = """
import gc, re, sys
from collections import Counter
from numba.core import codegen
from benchmarks.suite import emission, tables
from shapejit.builder import objects
from shapejit.runtime import kernels
from test_addresses import WRAPPER, computed, round_trips

gc.disable()  # as the builder: a tenth of every compilation
found, added, wrappers, count = Counter(), {}, set(), 0

def look(module):
    global count
    text = str(module)
    count += len(re.findall("inttoptr", text))
    found.update(round_trips(text))
    wrappers.update(WRAPPER.findall(text))

def looked_at(finish):
    def finish_and_look(library):
        look(library._final_module)
        finish(library)
        look(library._final_module)
    return finish_and_look

kind = codegen.CPUCodeLibrary
kind._optimize_final_module = looked_at(kind._optimize_final_module)
with kernels.recorded() as names:
    for suite in tables.suites.SUITES:
        for case in tables.suites.recorded(suite).values():
            if suite not in emission.LEFT_OUT and re.search(sys.argv[1], case.id):
                case = tables.sized(case, emission.NBYTES)
                case.ways(tables.measured())[emission.OURS]()
for name in names:
    module = objects.optimised(name, "kernel")
    look(module)
    added.update(dict.fromkeys(computed(str(module)), name))
assert count > 10, count
assert not found, found
assert not added, added
assert not wrappers, wrappers
"""
# The name of a function by which Python, or C, would call a kernel.
WRAPPER = re.compile(r"^define .*@((?:cfunc\.|_ZN7cpython)\S*8shapejit\S*)\(", re.MULTILINE)


def round_trips(text):
    """Functions of LLVM's text where a pointer is made of an integer that came from a pointer."""
    return _made_of(text, {"ptrtoint"}, STEPS)


def computed(text):
    """Functions where a pointer is made of an integer that they have computed.

    Addresses are arguments or stand in tables; those of bits are 8 times that, and more.
    """
    return _made_of(text, ARITHMETIC, PASSED)


def _made_of(text, origins, steps):
    """Functions where a pointer is made of what one of `origins` made, and `steps` handed on."""
    found = []
    for function in text.split("\ndefine ")[1:]:
        name, *lines = function.partition("\n}")[0].splitlines()
        made = [line.replace(",", " ").split() for line in lines if " = " in line]
        known = {words[0] for words in made if words[2] in origins}
        size = -1
        while size != len(known):
            size = len(known)
            for words in made:
                if words[2] in steps and not known.isdisjoint(words[3:]):
                    known.add(words[0])
        if any(words[2] == "inttoptr" and not known.isdisjoint(words[3:]) for words in made):
            found.append(name.partition("@")[2].partition("(")[0])
    return found


PASSED = {"phi", "select", "freeze", "lshr"}
ARITHMETIC = {"add", "sub", "mul", "and", "or", "xor", "shl", "ashr", "zext", "sext"}
STEPS = PASSED | ARITHMETIC | {"trunc", "insertelement", "extractelement", "shufflevector"}

EXAMPLE = """
define i8 @bad(ptr %a, i64 %b) {
  %.1 = ptrtoint ptr %a to i64
  %.2 = add i64 %b, %.1
  %.3 = inttoptr i64 %.2 to ptr
  %.4 = load i8, ptr %.3, align 1
  ret i8 %.4
}
define i64 @good(ptr %a, i64 %b) {
  %.1 = ptrtoint ptr %a to i64
  %.2 = inttoptr i64 %b to ptr
  %.3 = load i64, ptr %.2, align 1
  %.4 = add i64 %.3, %.1
  ret i64 %.4
}
define i8 @added(ptr %a, i64 %b) {
  %.1 = load i64, ptr %a, align 8
  %.2 = add i64 %.1, %b
  %.3 = inttoptr i64 %.2 to ptr
  %.4 = load i8, ptr %.3, align 1
  ret i8 %.4
}
"""


def test_round_trips_are_found():
    assert round_trips(EXAMPLE) == ["bad"]
    assert computed(EXAMPLE) == ["bad", "added"]


@pytest.mark.parametrize(
    "cases",
    [
        "ttc-01/float32|transposed-16384x8192/int4|block-32/int4|map-10000x4KiB",
        pytest.param("", marks=pytest.mark.slow, id="all"),
    ],
)
def test_no_address_of_a_kernel_goes_from_a_pointer_to_an_integer_and_back(cases, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, cases],
        env={**os.environ, "PYTHONPATH": f"{TESTS}:{TESTS.parent}",
             "NUMBA_CACHE_DIR": str(tmp_path), "SHAPEJIT_PATIENCE": "0"},
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
