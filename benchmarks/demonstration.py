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
from .trials import CaseError

KERNEL, NAME = "shapejit/kernels/tiles.py", "tiles_parallel"
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
    """Compare, print, and say whether anything was slower."""
    start = monotonic()
    found = compare(clone, first, second, folder, chosen)
    print(f"== {title} ({monotonic() - start:.0f} s)", text(found), sep="\n", flush=True)
    return any(v.slower for v in found)


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
    try:
        commit, chosen = commit_named(args.commit), items(args.bench)
        with tempfile.TemporaryDirectory(prefix="shapejit-demonstration-") as folder:
            clone, slow, same = planted(folder, commit)
            caught = args.no_plant or shown(
                "one kernel 1.5 times slower", clone, commit, slow, Path(folder, "slow"), chosen
            )
            alarms = sum(
                shown(
                    f"nothing changed, {k + 1}", clone, commit, same, Path(folder, "same"), chosen
                )
                for k in range(args.times)
            )
    except (RecordError, InstallError, CaseError) as fault:
        print(f"demonstration: error: {fault}", file=sys.stderr)
        return 2
    print(
        f"the slow-down was {'' if caught else 'NOT '}found; "
        f"{alarms} of {args.times} comparisons of equal commits gave an alarm"
    )
    return 0 if caught and not alarms else 1


if __name__ == "__main__":
    sys.exit(main())
