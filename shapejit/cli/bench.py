"""`shapejit bench`: compare copies with memcpy, NumPy and other libraries."""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Callable, Sequence
from importlib import import_module
from subprocess import CalledProcessError

from ..bench import comparison, measure, peers, suites
from ..bench.cases import MIB, OURS, Case
from ..bench.comparison import ONE_THREAD, Measured, Summary
from ..bench.machine import VECTORS, machine as described_machine, use_vectors
from ..bench.worker import PEERS
from ..engine import patience
from ..runtime import building
from ..runtime.kernels import kernel_status
from ..runtime.system import usable_cores
from . import progress
from .command import DONE, FAILED, ArgumentError, count, integer, number
from .output import Columns, print_json, print_table, print_text, ratio

_DISTURBED = (
    "{} of {} cases were disturbed: memcpy was slower on all threads than on one, so other "
    "programs were using the cores. Measure again without them."
)


def options(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    texts = (f"{name}{'*' * s.default} ({s.text})" for name, s in suites.SUITES.items())
    parser.epilog = (
        f"Suites (* marks those that run by default): {', '.join(texts)}. "
        "All libraries are measured interleaved, each peer in its own process; ratios are of "
        "median times. Exit code 1: a result differs from NumPy's."
    )
    add = parser.add_argument
    choices = [*suites.SUITES, "all"]
    add(
        "--suite",
        dest="suites",
        action="append",
        default=[],
        choices=choices,
        metavar="SUITE",
        help="run this suite, or all; repeatable",
    )
    add("--case", default="", metavar="REGEX", help="run cases whose SUITE/NAME contains a match")
    add("--quick", action="store_true", help="run a few cases of each suite, of at most 64 MiB")
    add(
        "--size",
        type=number(lambda x: 0 < x <= 64, "above 0 and at most 64"),
        default=1.0,
        metavar="F",
        help="scale the bytes of each case by F, at most 64 (default: 1)",
    )
    add("--seed", type=integer, default=0, metavar="N", help="seed of suite random (default: 0)")
    add("--rounds", type=count, metavar="N", help="rounds per case (default: 9, with --quick 3)")
    add("--threads", type=count, metavar="N", help="threads per call (default: one per core)")
    add(
        "--vectors",
        choices=list(VECTORS),
        help="compile for smaller vectors than this processor has (default: its own)",
    )
    add(
        "--peer",
        dest="peers",
        action="append",
        default=[],
        metavar="NAME[=PYTHON]",
        help=f"a library to compare with, repeatable: {', '.join(PEERS)}, as installed for the "
        "interpreter PYTHON (3.11 or newer); or none (default: torch, onnxruntime and jax, if "
        "this Python has them)",
    )


def run(args: Namespace) -> int:
    """Run the command."""
    cases = _chosen(args)
    rounds = args.rounds or (3 if args.quick else 9)
    measure.wait_shortly()
    try:
        use_vectors(args.vectors)
        comparison.use_threads(args.threads)
        machine = described_machine()
        rows = []
        with (
            patience.force_kernels(),
            building.at_most(len(usable_cores())),
            peers.started(tuple(args.peers)) as others,
            progress.bar(args, total=len(cases)) as bar,
        ):
            for row in comparison.measured(
                import_module("shapejit"), cases, others, rounds, bar.set_description_str
            ):
                rows.append(row)
                bar.update()
    except (ValueError, RuntimeError, CalledProcessError) as fault:
        # A peer or threads that this machine lacks, or a process that failed. Exit code 1 would
        # say that a copy is wrong.
        raise ArgumentError(str(fault)) from None
    versions = {peer.name: peer.version for peer in others}
    found = comparison.summaries(rows)
    disturbed = sum(row.disturbed for row in rows)
    known = kernel_status()
    states = Counter(kernel.state for kernel in known.values())
    reasons = {name: kernel.reason for name, kernel in known.items() if kernel.reason}
    if args.json:
        settings = {name: getattr(args, name) for name in ("size", "quick", "seed", "vectors")}
        print_json(
            {
                "machine": {**machine, "peers": versions},
                "settings": {**settings, "rounds": rounds},
                "rows": [row.as_json() for row in rows],
                "summary": [vars(part) for part in found],
                "disturbed": disturbed,
                "kernels": {**states, "reasons": reasons},
            }
        )
    else:
        print_found(rows, found)
        print("; ".join(f"{name} {value}" for name, value in machine.items()))
        for name, version in versions.items():
            print(f"{name} {version}")
        print(f"kernels: {', '.join(f'{n} {state}' for state, n in states.items())}")
        for name, reason in reasons.items():
            print_text(f"no kernel {name}: {reason}")
        if disturbed:
            print_text(_DISTURBED.format(disturbed, len(rows)))
    return FAILED if any(row.differing for row in rows) else DONE


def _chosen(args: Namespace) -> list[Case]:
    """The cases that the arguments select."""
    names = tuple(suites.SUITES) if "all" in args.suites else tuple(dict.fromkeys(args.suites))
    try:
        pattern = re.compile(args.case)
    except re.error as fault:
        raise ArgumentError(f"--case {args.case} is not a regular expression: {fault}") from None
    found = suites.select(names, args.quick, args.seed)
    chosen = [case.scaled(args.size) for case in found if pattern.search(case.id)]
    if not chosen:
        raise ArgumentError(f"no case of the suites matches --case {args.case}")
    return chosen


_SUMMARIES: Columns = {
    "suite": "{0.suite}",
    "cases": "{0.cases}",
    "measure": lambda part: f"time/{part.way}" if _plain(part.way) else f"faster than {part.way}",
    "geometric mean": lambda part: _ratio_text(part.way, part.geometric_mean),
    "worst": lambda part: _ratio_text(part.way, part.worst),
    "worst case": "{0.worst_case}",
}


def print_found(rows: Sequence[Measured], summaries: Sequence[Summary]) -> None:
    """Print the tables of results, and each result that was wrong."""
    ways = dict.fromkeys(way for row in rows for way in row.seconds if way != OURS)
    print_table(_columns(list(ways)), rows)
    print()
    print_text(
        "GB/s: 10^9 bytes read and written per second. time/memcpy: shapejit's time divided by "
        "that of a memcpy of as many bytes, on all threads or on one; lower is better. "
        "faster than: the other library's time divided by shapejit's; higher is better."
    )
    print()
    print_table(_SUMMARIES, summaries)
    print()
    for row in rows:
        for name in row.differing:
            print(f"NOT the same bits as by {name}: {row.case.id}")


def _plain(way: str) -> bool:
    return way in ("memcpy", ONE_THREAD)


def _ratio_text(way: str, ours: float | None) -> str:
    """Our time over memcpy's, or another library's time over ours; "-" for none."""
    return ratio(ours if _plain(way) or not ours else 1 / ours)


def _columns(ways: Sequence[str]) -> Columns:
    return {
        "case": "{0.case.id}",
        "MiB": lambda row: f"{row.case.moved / MIB:.0f}" if row.case.moved else "-",
        "time": lambda row: _time(row.seconds[OURS]),
        "GB/s": lambda row: f"{row.gb_per_s:.2f}" if row.case.moved else "-",
        **{f"time/{way}" if _plain(way) else f"faster than {way}": _over(way) for way in ways},
        "same": lambda row: "NO" if row.differing else "yes" if row.proved else "-",
    }


def _over(way: str) -> Callable[[Measured], str]:
    return lambda row: _ratio_text(way, row.over(way))


def _time(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms" if seconds > 1e-4 else f"{1e6 * seconds:.3g} us"
