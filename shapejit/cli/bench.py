"""`shapejit bench`: measure copies beside memcpy, NumPy and others."""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from collections import Counter
from importlib import import_module
from subprocess import CalledProcessError

from ..bench import comparison, measure, peers, suites
from ..bench.cases import Case
from ..bench.machine import VECTORS, machine as described_machine, use_vectors
from ..bench.worker import PEERS
from ..engine import patience
from ..runtime import building
from ..runtime.kernels import kernel_status
from ..runtime.system import usable_cores
from . import bench_tables, progress
from .arguments import count, integer, number
from .command import DONE, FAILED, ArgumentError, Command
from .output import print_json, print_text

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
    add("--case", default="", metavar="REGEX", help="searched in SUITE/NAME")
    add("--quick", action="store_true", help="a few cases of each suite, of 64 MiB at most")
    add(
        "--size",
        type=number(lambda x: 0 < x <= 64, "above 0 and at most 64"),
        default=1.0,
        metavar="F",
        help="F times the bytes",
    )
    add("--seed", type=integer, default=0, metavar="N", help="of the random suite")
    add("--rounds", type=count, metavar="N", help="9 if not given, 3 if quick")
    add("--threads", type=count, metavar="N")
    add("--vectors", choices=list(VECTORS), help="compile for a processor of lesser vectors")
    add(
        "--peer",
        dest="peers",
        action="append",
        default=[],
        metavar="NAME[=PYTHON]",
        help=f"{', '.join(PEERS)}, as installed for PYTHON (at least 3.11); or none; if not "
        "given, torch, onnxruntime and jax where this Python has them",
    )


def _run(args: Namespace) -> int:
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
        # A peer or threads that this machine lacks, or a process that failed: nothing is wrong
        # with a copy, which exit code 1 would say.
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
        bench_tables.print_found(rows, found)
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
    """The cases that are asked for."""
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


COMMAND = Command("bench", "measure copies beside memcpy, NumPy and others", _run, _options)
