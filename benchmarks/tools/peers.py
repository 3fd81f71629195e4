"""Our permutations beside those of other libraries, as ratios to a memcpy on as many threads.

    python -m benchmarks.tools.peers --peer torch --peer onnxruntime --peer jax=/venv/bin/python

Each library has a process of its own, two threads, and its output bound where it can bind one; all
take turns with memcpy. The table is printed, and with --record kept in benchmarks/measured/peers
and written into benchmarks/README.md.
"""

import sys
from importlib import import_module
from statistics import geometric_mean

from shapejit.bench import peers, suites, worker
from shapejit.bench.comparison import measure, use_threads
from shapejit.bench.machine import machine as described
from shapejit.engine import patience

from . import readme
from .exits import SAME, MeasureError, ending, parser_of
from .machines import entry
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


def measured(chosen, others, rounds, size):
    """{case: {way: its time over memcpy's}}."""
    sj, rows = import_module("shapejit"), {}
    for case in chosen:
        seconds = measure(sj, case.scaled(size), others, rounds).seconds
        ways = {way: s / seconds["memcpy"] for way, s in seconds.items() if "memcpy" not in way}
        rows[case.id] = {way: round(ratio, 3) for way, ratio in ways.items()}
    return rows


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
    use_threads(THREADS)
    try:
        with patience.force_kernels(), peers.started(tuple(args.peer)) as others:
            rows = measured(cases(), others, args.rounds, args.size)
            versions = {peer.name: peer.version for peer in others}
    except peers.PeerError as fault:
        raise MeasureError(fault) from None
    ways = list(dict.fromkeys(way for row in rows.values() for way in row))
    facts = described()
    versions |= {name: facts[name] for name in ("numpy", "shapejit")}
    where = f"{facts['cpu']}, {THREADS} threads; "
    where += ", ".join(f"{name} {version}" for name, version in versions.items())
    made = f"{text(rows, ways)}\n\n{git('rev-parse', '--short=8', 'HEAD')} on {where}\n"
    print(made, end="")
    if args.record:
        entry(PEERS, ".txt").write_text(made)
        readme.main([])
    return SAME


if __name__ == "__main__":
    sys.exit(main())
