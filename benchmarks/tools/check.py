"""Counters and machine code of the working tree, compared with the last point of the history.

These figures have no noise, so any growth is a step. It is a failure unless a commit since that
point explains it in a line of its message that begins with "Performance:". With --force the check
runs even if the package has not changed. Machine code is compared for the instruction set of most
processors and for one other; a recorded point has all of them.
"""

import json
import subprocess
import sys

from ..suite import counters
from ..suite.machine_code import ISAS, MachineCode, emitted, totals
from .exits import SAME, WORSE, MeasureError, ending, parser_of
from .record import values
from .repository import MEASURED, RESULTS, ROOT, git, positions

REASON = "Performance:"
COMPARED = ("x86-64-v3", "neoverse-v1")  # one per core of two: a third would double the time
# What is compared: seconds are not.
FIGURES = ("kernels", "instructions", "spills", "code bytes")
LEAST = 0.01  # of instructions and bytes: less is what another order of the same code makes
EXACT = ("kernels", "spills")


def point(results=RESULTS):
    """The last commit of this history that has figures of machine code, and {name: value}.

    None where no commit has.
    """
    order, name = positions(), f"machine_code.{MachineCode.__name__}.track_"
    paths = {p: json.loads(p.read_text())["commit_hash"] for p in results.glob("*/*-*.json")}
    known = sorted((p for p in paths if paths[p] in order), key=lambda p: order[paths[p]])
    for path in reversed(known):
        found = values(path)
        if found.get(f"{name}instructions"):
            code = {
                f"{isa} {figure}": value
                for figure in FIGURES
                for isa, value in zip(ISAS, found[name + figure.replace(" ", "_")], strict=False)
            }
            allocated = found.get("counters.Allocated.track_bytes", [])
            bytes_of = dict(zip(counters.CALLS, allocated, strict=False))
            return paths[path], code | {f"bytes of {k}": v for k, v in bytes_of.items()}
    return None


def now():
    """The same of the package that this Python imports."""
    found = {}
    for isa, one in emitted(COMPARED, folder=str(ROOT)).items():
        if not one["kernels"]:
            raise MeasureError(f"{isa}: {one['failed']}")
        found |= {f"{isa} {name}": n for name, n in totals(one).items() if name in FIGURES}
    return found | {f"bytes of {call}": value for call, value in allocated().items()}


def allocated():
    """What every call of `counters` allocates in a new process."""
    code = (
        "import json; from benchmarks.suite.counters import allocated as a; print(json.dumps(a()))"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MeasureError(done.stderr.strip()[-300:])
    return json.loads(done.stdout)


def steps(before, after):
    """What grew: {name: (before, after)}."""
    found = {}
    for name, value in after.items():
        first = before.get(name)
        if first is None or first != first:
            continue
        least = 0 if name.endswith(EXACT) else LEAST * first
        if value > first + least:
            found[name] = first, value
    return found


def reasons(commit):
    """The lines of messages since a commit that say why figures grew."""
    lines = git("log", "--format=%B", f"{commit}..HEAD").splitlines()
    return [line.removeprefix(REASON).strip() for line in lines if line.startswith(REASON)]


@ending
def main(argv=None):
    """0 nothing grew, or it is said why; 1 something grew; 2 it could not be found out."""
    parser = parser_of(__file__, __doc__)
    parser.add_argument("--force", action="store_true")
    args = parser.parse_args(argv)
    found = point()
    if found is None:
        print("no point with machine code is recorded yet: python -m benchmarks.tools.record")
        return SAME
    commit, before = found
    if not args.force and not git("diff", "--name-only", commit, "--", *MEASURED):
        print(f"{commit[:8]} is recorded, and nothing that is measured has changed since")
        return SAME
    found, said = steps(before, now()), reasons(commit)
    for name, (first, second) in found.items():
        print(f"{name}: {first:.0f} -> {second:.0f} ({second / first - 1 if first else 1:+.1%})")
    print(f"{len(found)} figures grew since {commit[:8]}", *said, sep="\n")
    return WORSE if found and not said else SAME


if __name__ == "__main__":
    sys.exit(main())
