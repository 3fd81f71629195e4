"""Add commits to the recorded history: asv runs them, in an environment of its own.

Without arguments HEAD is recorded, with --steps N so many of the missing commits, which asv spreads
evenly over the history. Recorded commits are left out. Results go to benchmarks/results/MACHINE,
where plain `asv run` on this machine puts its own from then on.
"""

import json
import os
import subprocess
import sys

from .exits import SAME, UNKNOWN, ending, parser_of
from .machines import machine, must_be_quiet
from .repository import MEASURED, RESULTS, ROOT, commit_named, git, main_branch


def values(path):
    """{benchmark: its values} of a file of results."""
    found = json.loads(path.read_text())
    at = found["result_columns"].index("result")
    return {name: row[at] or [] for name, row in found["results"].items()}


def recorded(name):
    """The commits, abbreviated, of which a machine has a value."""
    paths = (RESULTS / name).glob("*-*.json")
    number = lambda value: value is not None and value == value  # noqa: E731  # n/a is NaN
    return {
        path.name.split("-")[0]
        for path in paths
        if any(number(value) for row in values(path).values() for value in row)
    }


def missing(name, since=None):
    """The commits of main that changed what is measured and are not recorded, oldest first."""
    branch = main_branch()
    span = f"{commit_named(since)}..{branch}" if since else branch
    found = git("rev-list", "--reverse", "--topo-order", span, "--", *MEASURED).split()
    have = recorded(name)
    return [commit for commit in found if commit[:8] not in have]


def record(commits, facts, everything=False, more=()):
    """Run asv for the commits: 0, or 2 where it or a benchmark of it failed."""
    from asv.machine import MachineCollection

    MachineCollection.save(facts["machine"], facts)
    command = [sys.executable, "-m", "asv", "run", "--config", str(ROOT / "asv.conf.json")]
    command += ["--machine", facts["machine"], "--show-stderr", *more, "HASHFILE:-"]
    chosen = {"SHAPEJIT_BENCHMARKS": "all"} if everything else {}
    # asv takes those first that were made last.
    lines = "".join(f"{commit}\n" for commit in reversed(commits))
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | chosen, input=lines, text=True, check=False
    )
    return UNKNOWN if done.returncode else SAME


@ending
def main(argv=None):
    """0 recorded; 2 bad arguments, a busy machine, or something that could not be measured."""
    parser = parser_of(__file__, __doc__)
    add = parser.add_argument
    add("commits", nargs="*", metavar="COMMIT", help="HEAD if there is none")
    add("--steps", type=int, metavar="N", help="so many of the commits that are missing")
    add("--since", metavar="COMMIT", help="all that are missing behind it, or --steps of them")
    add("--all", action="store_true", help="all cases, not the choice that is made in suites.py")
    add("--bench", action="append", default=[], metavar="REGEX")
    add("--quick", action="store_true", help="a turn each, to see what works")
    add("--busy", action="store_true", help="even if other programs have the cores")
    add("--machine", metavar="NAME", help="if not by its processor, caches and cores")
    args = parser.parse_args(argv)
    facts = machine(args.machine)
    commits = [commit_named(name) for name in args.commits]
    if args.steps or args.since:
        commits += missing(facts["machine"], args.since)
    elif not commits:
        commits = [commit_named("HEAD")]
    if not (args.bench or args.all):
        have = recorded(facts["machine"])
        commits = [commit for commit in commits if commit[:8] not in have]
    if not commits:
        return SAME
    must_be_quiet(args.busy)
    more = [word for regex in args.bench for word in ("--bench", regex)]
    more += ["--steps", str(args.steps)] if args.steps else []
    return record(commits, facts, args.all, more + ["--quick"] * args.quick)


if __name__ == "__main__":
    sys.exit(main())
