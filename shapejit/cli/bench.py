"""`shapejit bench`: measure copies beside memcpy, NumPy and others."""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from .. import patience
from ..bench import busy, comparison, conversions, firstcall, measure, peers, suites, throughput
from ..bench.cases import Case
from ..bench.machine import VECTORS, machine as described_machine, use_vectors
from ..bench.spinning import spinning
from ..bench.worker import PEERS
from . import bench_tables, progress
from .arguments import count, integer, number
from .command import DONE, FAILED, ArgumentError, Command
from .output import print_json, print_text

Measured = TypeVar("Measured")

_DISTURBED = (
    "{} of {} cases were disturbed: memcpy was slower on all threads than on one, so other "
    "programs had the cores. Measure again without."
)


def _options(parser: ArgumentParser) -> None:
    texts = (f"{name}{'*' * s.default} ({s.text})" for name, s in suites.SUITES.items())
    parser.epilog = (
        f"Suites, those that run unasked with a star: {', '.join(texts)}. "
        "All ways take turns, each peer in its own process; ratios are of median times."
    )
    add = parser.add_argument
    choices = [*suites.SUITES, "all"]
    add("--suite", dest="suites", action="append", default=[], choices=choices)
    add("--case", default="", metavar="REGEX", help="searched in SUITE/NAME/DTYPE")
    add("--quick", action="store_true", help="a few cases of each suite")
    add(
        "--size",
        type=number(lambda x: 0 < x <= 64, "above 0 and at most 64"),
        default=1.0,
        metavar="F",
        help="F times the bytes",
    )
    add("--seed", type=integer, default=0, metavar="N", help="of the random suite")
    add("--rounds", type=count, metavar="N", help="9 if not given, 5 if quick")
    add("--threads", type=count, metavar="N")
    add("--vectors", choices=list(VECTORS), help="compile for a processor of lesser vectors")
    add(
        "--peer",
        dest="peers",
        action="append",
        default=[],
        metavar="NAME[=PYTHON]",
        help=f"{', '.join(PEERS)}, as installed for PYTHON (at least 3.11); or none; if not "
        "given, torch and onnxruntime where this Python has them",
    )


def _run(args: Namespace) -> int:
    copies, calls, batches, files, loaded = _chosen(args)
    rounds = args.rounds or (5 if args.quick else 9)
    measure.wait_shortly()
    try:
        use_vectors(args.vectors)
        comparison.use_threads(args.threads)
        machine = described_machine()
        with (
            patience.none(),
            peers.started(tuple(args.peers)) as others,
            progress.bar(
                args, total=sum(len(x) for x in (copies, calls, batches, files, loaded))
            ) as bar,
        ):
            tell, size = bar.set_description_str, args.size
            rows = _counted(bar, comparison.measured(copies, others, rounds, tell))
            first = _counted(bar, firstcall.measured(calls, min(rounds, 5), tell))
            figures = list[throughput.Figure]()
            for suite, works in ((suites.BATCH, batches), (suites.FILES, files)):
                run = throughput.measured(suite, works, rounds, size, tell, others)
                figures += _counted(bar, run)
            if loaded:
                with spinning():
                    beside = throughput.measured(suites.BUSY, loaded, rounds, size, tell)
                    figures += _counted(bar, beside)
    except (ValueError, RuntimeError) as fault:
        # A peer or threads that this machine lacks, or a process that failed: nothing is wrong
        # with a copy, which exit code 1 would say.
        raise ArgumentError(str(fault)) from None
    versions = {peer.name: peer.version for peer in others}
    ways = ("numpy", *versions)
    found = comparison.summaries(rows, ways)
    disturbed = sum(row.disturbed for row in rows)
    if args.json:
        made = [*(row.as_json(ways) for row in rows), *(each.as_json() for each in first)]
        made += [figure.as_json() for figure in figures]
        settings = {name: getattr(args, name) for name in ("size", "quick", "seed", "vectors")}
        settings["rounds"] = rounds
        print_json(
            {
                "machine": {**machine, "peers": versions},
                "settings": settings,
                "rows": made,
                "summary": [vars(part) for part in found],
                "disturbed": disturbed,
            }
        )
    else:
        bench_tables.print_found(rows, found, first, figures, ways)
        print("; ".join(f"{name} {value}" for name, value in machine.items()))
        for name, version in versions.items():
            print(f"{name} {version}")
        if disturbed:
            print_text(_DISTURBED.format(disturbed, len(rows)))
    right = all(row.same for row in rows) and all(figure.same for figure in figures)
    return DONE if right else FAILED


def _counted(bar: Any, measured: Iterator[Measured]) -> list[Measured]:
    """All that is measured; the bar advances with each."""
    found = []
    for each in measured:
        found.append(each)
        bar.update()
    return found


Works = dict[str, Callable[[float], throughput.Work]]


def _chosen(args: Namespace) -> tuple[list[Case], list[str], Works, Works, Works]:
    """The copies, first calls, batches, files and copies beside others that are asked for."""
    names = tuple(suites.SUITES) if "all" in args.suites else tuple(dict.fromkeys(args.suites))
    try:
        pattern = re.compile(args.case)
    except re.error as fault:
        raise ArgumentError(f"--case {args.case} is not a regular expression: {fault}") from None

    def matching(suite: str, cases: Iterable[str], quick: Iterable[str]) -> list[str]:
        asked = quick if args.quick else cases
        return [name for name in asked if suite in names and pattern.search(f"{suite}/{name}")]

    copies = [
        case if case.suite == "small" else case.scaled(args.size)
        for case in comparison.matching(suites.select(names, args.quick, args.seed), pattern)
    ]
    first = list(firstcall.CALLS)
    calls = matching(suites.FIRST_CALL, first, first[:1])
    batches, files, loaded = (
        {name: module.CASES[name] for name in matching(suite, module.CASES, module.QUICK)}
        for suite, module in (
            (suites.BATCH, throughput),
            (suites.FILES, conversions),
            (suites.BUSY, busy),
        )
    )
    if not (copies or calls or batches or files or loaded):
        raise ArgumentError(f"no case of the suites matches --case {args.case}")
    return copies, calls, batches, files, loaded


COMMAND = Command("bench", "measure copies beside memcpy, NumPy and others", _run, _options)
