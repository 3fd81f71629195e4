"""Runs cases in chunks, each in a process of its own; a chunk that dies is a failure."""

import json
import os
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

from . import TESTS

SHOWN = 6000  # characters of a report, the last ones


class Failure(NamedTuple):
    """A case that failed. The cases from `first` on ran before it in the same process."""

    attack: str
    seed: int
    first: int
    case: int
    report: str

    def __str__(self):
        command = f"python -m tests.attack --only {self.attack} --seed {self.seed} --cases"
        lines = [f"FAILED {self.attack}: {command} {self.case}:{self.case + 1}"]
        if self.first < self.case:
            lines.append(f"  if that alone is well: --cases {self.first}:{self.case + 1}")
        text = self.report.strip()[-SHOWN:]
        return "\n".join([*lines, *("  " + line for line in text.splitlines())])


class Outcome(NamedTuple):
    """How many cases ran, and which of them failed."""

    cases: int
    failures: list[Failure]


def run(
    name,
    seed,
    first=0,
    last=2**62,
    seconds=float("inf"),
    failed=lambda failure: None,
    table="attack.table",
):
    """Run the cases `first` to `last` of an attack, for so many seconds at most.

    `failed` is called with each Failure at once. `table` is the module whose ATTACKS has it.
    """
    failures = []
    at = first
    while at < last and seconds > 0:
        begun = time.monotonic()
        for done, failure in _chunk(table, name, seed, at, last, seconds):
            at = done
            if failure is not None:
                failures.append(failure)
                failed(failure)
        seconds -= time.monotonic() - begun
    return Outcome(at - first, failures)


def _chunk(table, name, seed, first, last, seconds):
    """How many cases are done, and a Failure or None, again and again until one process ends."""
    with tempfile.TemporaryDirectory() as folder:
        at, errors = os.path.join(folder, "case"), os.path.join(folder, "errors")
        with open(at, "wb") as file:
            file.write(b"\xff" * 8)
        arguments = map(str, (table, name, seed, first, last, seconds, at))
        with open(errors, "wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-X", "faulthandler", "-m", "attack.chunk", *arguments],
                env={**os.environ, "PYTHONPATH": _path()},
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        with process:
            for line in process.stdout:
                facts = json.loads(line)
                if "done" in facts:
                    yield facts["done"], None
                    return
                case = facts["case"]
                yield case + 1, Failure(name, seed, first, case, facts["report"])
        with open(at, "rb") as file:
            case = int.from_bytes(file.read(), "little")
        with open(errors, errors="replace") as file:
            report = f"the process ended with {process.returncode}\n{file.read()}"
        if case >= 2**63:
            raise RuntimeError(f"{name}: no case began: {report}")
        yield case + 1, Failure(name, seed, first, case, report)


def _path():
    """Where the processes find the package, the attacks and the modules beside them."""
    return os.pathsep.join([str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")])
