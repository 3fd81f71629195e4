"""Figures without noise: what the machine code of every kernel has, compared exactly.

Per kernel and instruction set (AVX-512, AVX2, SSE2 and, by cross-compilation, NEON):
instructions, those of vectors, loads, stores, spills, reloads and bytes of code; beside them
the processor's time that compiling it took. The sources of a commit are compiled by this Python's
numba, on any machine. Recorded figures are kept in benchmarks/measured/machine-code, a file per
commit, and read again where they are of the same numba; seconds are compared only where both
commits are compiled in one run. Exit code 0: recorded, or nothing is worse; 1: a tile kernel has
got more spills, or all that both have takes 25 % longer to compile; 2: bad arguments, or nothing
could be compiled.
"""

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from .emission import COLUMNS, ISAS, __file__ as EMISSION
from .exits import SAME, UNKNOWN, WORSE, MeasureError, ending
from .repository import MEASURED, ROOT, RecordError, commit_named, git, main_branch

FOLDER = ROOT / "benchmarks" / "measured" / "machine-code"
EXACT = COLUMNS[:-1]
SECONDS = COLUMNS[-1]
LONGER = 0.25  # the fraction by which compiling may take longer
TILES = "tiles."  # what the names of kernels contain that move blocks in registers
PATIENCE = 1800  # seconds for one instruction set


class Change(NamedTuple):
    """A figure of a kernel that differs; None where the kernel is not there."""

    isa: str
    kernel: str
    figure: str
    first: int | None
    second: int | None

    @property
    def spilling(self):
        """Whether this is a tile kernel that keeps less in registers."""
        return self.figure == "spills" and TILES in self.kernel and self.grown

    @property
    def grown(self):
        """Whether there is more of it, in a kernel that both have."""
        return None not in (self.first, self.second) and self.second > self.first

    def __str__(self):
        first, second = ("none" if n is None else str(n) for n in (self.first, self.second))
        return f"{self.isa} {self.kernel}: {self.figure} {first} -> {second}"


def emitted(*folders, isas=None, patterns=()):
    """Figures of packages whose sources lie in folders: {instruction set: figures} of each.

    For one instruction set after the other, so that compiling takes as long for all of them.
    """
    pairs = [(isa, folder) for isa in isas or ISAS for folder in folders]
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        made = list(pool.map(lambda pair: _process(*reversed(pair), patterns), pairs))
    found = [{} for _ in folders]
    for k, ((isa, _), figures) in enumerate(zip(pairs, made, strict=True)):
        found[k % len(folders)][isa] = figures
    for each in found:
        if not any(one["kernels"] for one in each.values()):
            reasons = sorted({why for one in each.values() for why in one["failed"].values()})
            raise MeasureError(f"nothing could be compiled: {'; '.join(reasons)[:500]}")
    return found


def _process(folder, isa, patterns):
    """What `emission` says, in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="shapejit-emission-") as cache:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("NUMBA_")}
        environment |= {"PYTHONPATH": str(folder), "PYTHONHASHSEED": "0", "NUMBA_CACHE_DIR": cache}
        command = [sys.executable, EMISSION, isa, *patterns]
        options = {"capture_output": True, "text": True, "timeout": PATIENCE, "check": False}
        try:
            done = subprocess.run(command, cwd=cache, env=environment, **options)
        except subprocess.TimeoutExpired:
            return {"kernels": {}, "failed": {isa: f"no end within {PATIENCE} s"}, "versions": {}}
    if done.returncode:
        reason = done.stderr.strip()[-300:]
        return {"kernels": {}, "failed": {isa: reason}, "versions": {}}
    return json.loads(done.stdout.splitlines()[-1])


def emitted_of(*commits, repository=ROOT, **options):
    """`emitted` of the sources of commits."""
    with tempfile.TemporaryDirectory(prefix="shapejit-sources-") as folder:
        for k, commit in enumerate(commits):
            command = ["git", "archive", commit, "shapejit"]
            done = subprocess.run(command, cwd=repository, capture_output=True, check=False)
            if done.returncode:
                raise RecordError(done.stderr.decode().strip())
            with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
                archive.extractall(Path(folder, str(k)), filter="data")
        return emitted(*(Path(folder, str(k)) for k in range(len(commits))), **options)


def path_of(commit, folder=None):
    """Where the figures of a commit are kept."""
    return (folder or FOLDER) / f"{commit[:8]}.json"


def record(commit, folder=None):
    """Emit and keep the figures of a commit."""
    path = path_of(commit, folder)
    (figures,) = emitted_of(commit)
    found = {"commit": commit, "columns": COLUMNS, "isas": figures}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_text(found))
    return path


def keep(commits):
    """Record commits, as far as they can be compiled: 0, or 2 where one cannot."""
    code = SAME
    for commit in commits:
        try:
            print(record(commit))
        except MeasureError as fault:
            print(f"{commit[:8]}: {fault}", file=sys.stderr)
            code = UNKNOWN
    return code


def _text(found):
    """JSON with a line per kernel."""
    lines = [f'{{"commit": {json.dumps(found["commit"])},']
    lines += [f' "columns": {json.dumps(found["columns"])},', ' "isas": {']
    parts = []
    for isa, one in found["isas"].items():
        rows = [
            f"   {json.dumps(name)}: {json.dumps([row.get(c) for c in COLUMNS])}"
            for name, row in sorted(one["kernels"].items())
        ]
        rest = json.dumps({"failed": one["failed"], "versions": one["versions"]})[1:]
        parts.append(f'  "{isa}": {{"kernels": {{\n' + ",\n".join(rows) + "},\n   " + rest)
    return "\n".join(lines) + "\n" + ",\n".join(parts) + "}}\n"


def recorded(commit, folder=None):
    """What is kept of a commit; None where nothing is."""
    path = path_of(commit, folder)
    if not path.is_file():
        return None
    found = json.loads(path.read_text())
    if found["commit"] != commit:
        return None
    for one in found["isas"].values():
        one["kernels"] = {
            name: dict(zip(found["columns"], row, strict=True))
            for name, row in one["kernels"].items()
        }
    return found["isas"]


def missing(folder=None):
    """The commits of main, oldest first, whose machine code is not recorded."""
    commits = git("rev-list", "--reverse", main_branch(), "--", *MEASURED).split()
    return [commit for commit in commits if not path_of(commit, folder).is_file()]


def changes(first, second):
    """Every figure that differs, and every kernel that only one has."""
    found = []
    for isa in first.keys() & second.keys():
        ours, theirs = first[isa]["kernels"], second[isa]["kernels"]
        if not ours or not theirs:
            continue  # it could not be compiled
        for name in sorted(ours.keys() | theirs.keys()):
            a, b = ours.get(name, {}), theirs.get(name, {})
            wanted = EXACT if a and b else ("code bytes",)
            found += [
                Change(isa, name, figure, a.get(figure), b.get(figure))
                for figure in wanted
                if a.get(figure) != b.get(figure)
            ]
    return sorted(found, key=lambda change: (not change.spilling, list(ISAS).index(change.isa)))


def totals(found):
    """{instruction set: {figure: sum}}, with how many signatures there are."""
    return {
        isa: {
            "signatures": len(one["kernels"]),
            **{c: round(sum(row[c] for row in one["kernels"].values()), 1) for c in COLUMNS},
        }
        for isa, one in found.items()
        if one["kernels"]
    }


def kept(first, second):
    """The recorded figures of two commits; None unless both are there, of one numba."""
    found = recorded(first), recorded(second)
    return found if None not in found and _versions(found[0]) == _versions(found[1]) else None


def longer(first, second):
    """The fraction by which compiling takes longer, of the kernels and vectors that both have."""
    pairs = [
        (ours[SECONDS], second[isa]["kernels"][name][SECONDS])
        for isa, one in first.items()
        for name, ours in one["kernels"].items()
        if name in second.get(isa, {"kernels": {}})["kernels"]
    ]
    before, after = (sum(seconds) for seconds in zip(*pairs, strict=True)) if pairs else (0, 0)
    return after / before - 1 if before else 0.0


class Compared(NamedTuple):
    """What two commits differ by; `longer` is None unless both were compiled in one run."""

    changes: list
    totals: tuple
    longer: float | None

    @property
    def worse(self):
        """Whether this is a failure."""
        return any(c.spilling for c in self.changes) or (self.longer or 0) > LONGER

    def __str__(self):
        marked = "MORE SPILLS IN A TILE KERNEL: "
        lines = [f"{marked if c.spilling else ''}{c}" for c in self.changes]
        before, after = self.totals
        for isa in after:
            pairs = (
                f"{name} {before.get(isa, {}).get(name, 'none')} -> {value}"
                if before.get(isa, {}).get(name) != value
                else f"{name} {value}"
                for name, value in after[isa].items()
            )
            lines.append(f"{isa}: {', '.join(pairs)}")
        if self.longer is not None:
            marked = "LONGER TO COMPILE: " if self.longer > LONGER else "compiling takes "
            lines.append(f"{marked}{self.longer:+.0%}")
        spilling = sum(c.spilling for c in self.changes)
        lines.append(f"{len(self.changes)} figures differ, {spilling} are spills of tiles")
        return "\n".join(lines)


def compared(first, second, timed=False):
    """Figures of two commits side by side; `timed`: of one run."""
    parts = totals(first), totals(second)
    return Compared(changes(first, second), parts, longer(first, second) if timed else None)


def compare_commits(first, second, repository=ROOT, patterns=(), again=False):
    """The same of commits, by what is recorded of all kernels, or compiled now."""
    found = None if again or patterns else kept(first, second)
    if found:
        return compared(*found)
    made = emitted_of(first, second, repository=repository, patterns=patterns)
    return compared(*made, timed=True)


def _versions(found):
    return {tuple(sorted(one["versions"].items())) for one in found.values() if one["versions"]}


@ending
def main(argv=None):
    """0 recorded or nothing is worse, 1 something is, 2 nothing could be compiled."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.machine_code",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("commits", nargs="*", metavar="COMMIT", help="two: they are compared")
    parser.add_argument("--record", action="store_true", help="keep the figures of the commits")
    parser.add_argument("--missing", action="store_true", help="of all that are not kept yet")
    parser.add_argument("--again", action="store_true", help="compile even what is recorded")
    parser.add_argument("--bench", action="append", default=[], metavar="REGEX")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--repository", default=ROOT, metavar="FOLDER", help="another clone")
    args = parser.parse_args(argv)
    commits = [commit_named(name, args.repository) for name in args.commits]
    if args.record or args.missing:
        return keep(commits + missing() if args.missing else commits)
    if len(commits) != 2:
        raise RecordError("name two commits to compare, or --record")
    found = compare_commits(*commits, args.repository, args.bench, args.again)
    if args.json:
        print(json.dumps({**found._asdict(), "changes": [c._asdict() for c in found.changes]}))
    else:
        print(found)
    return WORSE if found.worse else SAME


if __name__ == "__main__":
    sys.exit(main())
