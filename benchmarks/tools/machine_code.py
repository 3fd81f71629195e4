"""What became of the kernels of two commits, without a clock: every figure that differs.

The kernels that the recorded cases ask for are compiled for x86-64-v3, x86-64-v4 and, by
cross-compilation, neoverse-v1, by this Python's numba. Exit code 1: a tile kernel has got more
spills; 2: bad arguments, or nothing could be compiled.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from ..suite.machine_code import emitted, totals
from .exits import SAME, WORSE, MeasureError, ending, parser_of
from .repository import ROOT, commit_named, extract

SECONDS = "compile seconds"
TILES = "tiles."  # what the names of kernels contain that move blocks in registers


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
        grown = None not in (self.first, self.second) and self.second > self.first
        return self.figure == "spills" and TILES in self.kernel and grown

    def __str__(self):
        first, second = ("none" if n is None else str(n) for n in (self.first, self.second))
        marked = "MORE SPILLS IN A TILE KERNEL: " if self.spilling else ""
        return f"{marked}{self.isa} {self.kernel}: {self.figure} {first} -> {second}"


def emitted_of(commits, repository=ROOT, **options):
    """Figures of the sources of commits: {instruction set: figures} of each."""
    with tempfile.TemporaryDirectory(prefix="shapejit-sources-") as folder:
        places = [extract(one, Path(folder, str(k)), repository) for k, one in enumerate(commits)]
        made = [emitted(folder=place, **options) for place in places]
    for found in made:
        if not any(one["kernels"] for one in found.values()):
            reasons = sorted({why for one in found.values() for why in one["failed"].values()})
            raise MeasureError(f"nothing could be compiled: {'; '.join(reasons)[:500]}")
    return made


def changes(first, second):
    """Every figure that differs, and every kernel that only one has."""
    found = []
    for isa in first.keys() & second.keys():
        ours, theirs = first[isa]["kernels"], second[isa]["kernels"]
        if not ours or not theirs:
            continue  # it could not be compiled
        for name in sorted(ours.keys() | theirs.keys()):
            a, b = ours.get(name, {}), theirs.get(name, {})
            wanted = (a if a and b else {"instructions": 0}).keys() - {SECONDS}
            found += [
                Change(isa, name, figure, a.get(figure), b.get(figure))
                for figure in sorted(wanted)
                if a.get(figure) != b.get(figure)
            ]
    return sorted(found, key=lambda change: (not change.spilling, change.isa, change.kernel))


class Compared(NamedTuple):
    """What two commits differ by."""

    changes: list
    totals: tuple

    @property
    def worse(self):
        """Whether this is a failure."""
        return any(c.spilling for c in self.changes)

    def __str__(self):
        lines = [str(change) for change in self.changes]
        before, after = self.totals
        for isa in after:
            parts = (f"{name} {before[isa][name]} -> {n}" for name, n in after[isa].items()
                     if before[isa][name] != n)  # fmt: skip
            lines.append(f"{isa}: {', '.join(parts) or 'the same'}")
        spilling = sum(c.spilling for c in self.changes)
        lines.append(f"{len(self.changes)} figures differ, {spilling} are spills of tiles")
        return "\n".join(lines)


def compare_commits(first, second, repository=ROOT, **options):
    """Figures of two commits side by side."""
    made = emitted_of((first, second), repository, **options)
    sums = tuple({isa: totals(one) for isa, one in found.items()} for found in made)
    return Compared(changes(*made), sums)


@ending
def main(argv=None):
    """0 nothing is worse, 1 something is, 2 nothing could be compiled."""
    parser = parser_of(__file__, __doc__)
    parser.add_argument("commits", nargs=2, metavar="COMMIT")
    parser.add_argument("--bench", action="append", default=[], metavar="REGEX")
    parser.add_argument("--isa", action="append", metavar="NAME", help="not all of them")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--repository", default=ROOT, metavar="FOLDER", help="another clone")
    args = parser.parse_args(argv)
    commits = [commit_named(name, args.repository) for name in args.commits]
    options = {"patterns": args.bench, "isas": args.isa}
    found = compare_commits(*commits, repository=args.repository, **options)
    if args.json:
        print(json.dumps({**found._asdict(), "changes": [c._asdict() for c in found.changes]}))
    else:
        print(found)
    return WORSE if found.worse else SAME


if __name__ == "__main__":
    sys.exit(main())
