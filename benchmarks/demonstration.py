"""Show that `compare` can be trusted: a slow-down is found, and nothing else is.

In a clone that is thrown away, a commit makes one kernel take 1.5 times as long:
comparing it has to fail. Another commit changes nothing: comparing it, again and
again, has to find nothing. Exit code 0 if all of that is so, otherwise 1.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from time import monotonic

from .catalogue import items
from .compare import compare, text
from .installs import InstallError
from .record import ROOT, RecordError, commit_named, git

KERNEL, NAME = "shapejit/kernels/tiles.py", "tiles"
SLOWER = f'''

_swift = {NAME}


def {NAME}(*arguments):
    """The kernel, and half as long again."""
    from time import perf_counter

    start = perf_counter()
    _swift(*arguments)
    end = perf_counter() + (perf_counter() - start) / 2
    while perf_counter() < end:
        pass
'''


def planted(folder, commit):
    """A clone; the commit, one that slows the kernel, one that changes nothing."""
    clone = Path(folder, "clone")
    git("clone", "--quiet", str(ROOT), str(clone))
    git("checkout", "--quiet", commit, cwd=clone)
    kernel = clone / KERNEL
    if not kernel.is_file() or f"\ndef {NAME}(" not in kernel.read_text():
        raise RecordError(f"commit {commit[:8]} has no {NAME} in {KERNEL} to slow down")
    same = _commit(clone, "Nothing is changed")
    git("checkout", "--quiet", commit, cwd=clone)
    with kernel.open("a") as file:
        file.write(SLOWER)
    return clone, _commit(clone, f"{NAME} takes half as long again"), same


def _commit(clone, message):
    name = ("-c", "user.name=demonstration", "-c", "user.email=demonstration@example.invalid")
    git(*name, "commit", "--quiet", "--all", "--allow-empty", "--message", message, cwd=clone)
    return commit_named("HEAD", clone)


def shown(title, clone, first, second, folder, chosen):
    """Compare and print; return what is Found."""
    start = monotonic()
    found = compare(clone, first, second, folder, chosen)
    print(f"== {title} ({monotonic() - start:.0f} s)", text(found), sep="\n", flush=True)
    if found.fails or not found.verdicts:
        raise RecordError(f"{title}: not everything could be compared")
    return found


def caught(found):
    """Whether what is slower is what was planted: copies, by about as much."""
    changes = [v.change for v in found.slower if v.benchmark.startswith("operations.")]
    return any(0.25 < change < 0.9 for change in changes)


def main(argv=None):
    """0 shown, 1 not, 2 bad arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.demonstration",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("commit", nargs="?", default="HEAD", metavar="COMMIT")
    parser.add_argument("--times", type=int, default=10, metavar="N", help="quiet comparisons")
    parser.add_argument("--no-plant", action="store_true", help="the quiet comparisons alone")
    parser.add_argument("--bench", action="append", default=[], metavar="REGEX")
    args = parser.parse_args(argv)
    if args.times < 0 or (args.no_plant and not args.times):
        parser.error("nothing is left to show")
    try:
        commit, chosen = commit_named(args.commit), items(args.bench)
        with tempfile.TemporaryDirectory(prefix="shapejit-demonstration-") as folder:
            clone, slow, same = planted(folder, commit)
            seen = args.no_plant or caught(
                shown(
                    "one kernel 1.5 times slower", clone, commit, slow, Path(folder, "slow"), chosen
                )
            )
            alarms = 0
            for k in range(args.times):
                title = f"nothing changed, {k + 1}"
                found = shown(title, clone, commit, same, Path(folder, "same"), chosen)
                alarms += bool(found.slower)
    except (RecordError, InstallError) as fault:
        print(f"demonstration: error: {fault}", file=sys.stderr)
        return 2
    planting = (
        "nothing was planted"
        if args.no_plant
        else f"the slow-down was {'' if seen else 'NOT '}found"
    )
    print(f"{planting}; {alarms} of {args.times} comparisons of equal commits gave an alarm")
    return 0 if seen and not alarms else 1


if __name__ == "__main__":
    sys.exit(main())
