"""Our permutations beside those of other libraries, as ratios to a memcpy on as many threads.

    python -m benchmarks.tools.peers --peer torch --peer onnxruntime --peer jax=/venv/bin/python

Each library has a process of its own, two threads, and its output bound where it can bind one; all
take turns with memcpy. The table is printed, and with --record kept in benchmarks/measured/peers
and written into benchmarks/README.md.
"""

import re
import sys
from statistics import geometric_mean

from shapejit.bench import suites, worker

from . import figures, readme
from .exits import SAME, ending, parser_of
from .machines import keep
from .readme import PEERS, aligned
from .repository import git

THREADS = 2


def cases():
    """The first case of each kind of workload, and every fourth of XLA's."""
    kinds = {}
    for case in suites.select(("workloads",)):
        kinds.setdefault(case.name.rsplit("-", 2)[0], case)
    return [*kinds.values(), *suites.select(("xla",))[::4]]


def text(rows, ways):
    """The table: a case a line, and the means."""
    lines = [("time/memcpy", *ways)]
    lines += [(name, *(f"{r[w]:.2f}" if w in r else "-" for w in ways)) for name, r in rows.items()]
    means = (geometric_mean(r[w] for r in rows.values() if w in r) for w in ways)
    lines.append((f"mean of {len(rows)}", *(f"{mean:.2f}" for mean in means)))
    return "\n".join(aligned(lines))


def measured(chosen, options):
    """{case: {way: its time over memcpy's}}, and the facts of the machine."""
    names = "|".join(re.escape(case.id) for case in chosen)
    words = ["--suite", "workloads", "--suite", "xla", "--case", f"^({names})$"]
    found, rows = figures.measured([*words, "--threads", str(THREADS), *options]), {}
    for row in found["rows"]:
        taken = {way: s for way, s in row["seconds"].items() if "memcpy" not in way}
        ratios = {way: s / row["seconds"]["memcpy"] for way, s in taken.items()}
        rows[f"{row['suite']}/{row['name']}"] = ratios
    return rows, found["machine"]


@ending
def main(argv=None):
    """0 measured; 2 bad arguments, or a library that is not there."""
    parser = parser_of(__file__, __doc__)
    add = parser.add_argument
    add("--peer", action="append", default=[], metavar="NAME[=PYTHON]",
        help=", ".join(worker.PEERS))  # fmt: skip
    add("--rounds", type=int, default=9)
    add("--size", type=float, default=1.0, metavar="F", help="F times the bytes")
    add("--record", action="store_true")
    args = parser.parse_args(argv)
    options = [word for peer in args.peer for word in ("--peer", peer)]
    options += ["--rounds", str(args.rounds), "--size", str(args.size)]
    rows, facts = measured(cases(), options)
    ways = list(dict.fromkeys(way for row in rows.values() for way in row))
    versions = facts["peers"] | {name: facts[name] for name in ("numpy", "shapejit")}
    where = f"{facts['cpu']}, {THREADS} threads; "
    where += ", ".join(f"{name} {version}" for name, version in versions.items())
    made = f"{text(rows, ways)}\n\n{git('rev-parse', '--short=8', 'HEAD')} on {where}\n"
    print(made, end="")
    if args.record:
        keep(PEERS, ".txt", made)
        readme.main([])
    return SAME


if __name__ == "__main__":
    sys.exit(main())
