"""The command line: words to calls, results to stdout, progress and errors to stderr."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import cache
from typing import Any, NoReturn

from tqdm import tqdm

from . import __version__, conversion, demo, dtypes
from .bench import comparison, firstcall, measure, peers, suites, throughput
from .bench.cases import Case
from .bench.comparison import Row, Summary
from .bench.firstcall import FirstCall
from .bench.throughput import Figure
from .conversion import Report
from .demo import Demo
from .errors import ShapeJitError
from .files import safetensors

DONE, FAILED, BAD_INPUT = 0, 1, 2
INTERRUPTED, BROKEN_PIPE, TERMINATED = 130, 141, 143  # 128 + the signal, as shells say

_SPEC_OPTIONS = ("spec", "special_zero", "allowzero")  # as conversion.dialect calls them


class _ArgumentError(Exception):
    """Arguments that argparse refuses."""


class _Terminated(BaseException):
    """SIGTERM came; like KeyboardInterrupt, no handler of errors catches it."""


class _Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one line, printed where all errors are."""

    def error(self, message: str) -> NoReturn:
        raise _ArgumentError(f"{message} (see {self.prog} --help)")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns 0 done, 1 the check failed, 2 bad input or arguments."""
    with _open_streams():
        return _guarded(argv)


def _guarded(argv: Sequence[str] | None) -> int:
    """The exit code, whatever happens."""
    try:
        with _termination():
            code = _run(argv)
            sys.stdout.flush()
    except BrokenPipeError:
        _discard_stdout()
        return BROKEN_PIPE
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED)
    except _Terminated:
        return _fail("terminated", TERMINATED)
    except (_ArgumentError, ShapeJitError) as fault:
        return _fail(str(fault))
    except MemoryError:
        return _fail("not enough memory")
    except OSError as fault:
        # Its rest, if stdout is what failed, would fail once more at exit.
        _discard_stdout()
        where = "" if fault.filename is None else f"{fault.filename}: "
        return _fail(f"{where}{fault.strerror or fault}")
    return code


@contextmanager
def _open_streams() -> Iterator[None]:
    """A stdout or stderr that was closed (`>&-`) takes what is printed, and drops it."""
    with ExitStack() as stack:
        for stream, redirect in ((sys.stdout, redirect_stdout), (sys.stderr, redirect_stderr)):
            if stream is None:
                # It gets the lowest free descriptor, the closed one: otherwise the next
                # file would get it, with all that a library prints there.
                stack.enter_context(redirect(stack.enter_context(open(os.devnull, "w"))))
        yield


@contextmanager
def _termination() -> Iterator[None]:
    """SIGTERM raises, so that what was begun is cleaned up; the first one only."""

    def stop(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_IGN)  # timeout(1) sends two: the second hits the clean-up
        raise _Terminated

    before = signal.getsignal(signal.SIGTERM)
    elsewhere = threading.current_thread() is not threading.main_thread()
    if elsewhere or before in (signal.SIG_IGN, None):
        yield
        return
    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _run(argv: Sequence[str] | None) -> int:
    with suppress(AttributeError):
        # A name that the terminal's encoding lacks is shown escaped.
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # TextIO
    try:
        # The only default of an option that may stand before the command and behind it:
        # one of the command's parser would overwrite what stood before.
        args = _parser().parse_args(argv, argparse.Namespace(json=False))
    except SystemExit as done:  # --help, --version
        return int(done.code or 0)
    stray = [f"--{name.replace('_', '-')}" for name in _SPEC_OPTIONS if name in args]
    if stray and "rules" not in args:
        raise _ArgumentError(f"{stray[0]} is for commands with rules")
    command: Callable[[argparse.Namespace], int] = args.command
    return command(args)


def _fail(message: str, code: int = BAD_INPUT) -> int:
    with suppress(OSError):
        print(f"shapejit: error: {message}", file=sys.stderr)
    return code


def _discard_stdout() -> None:
    """Let what stdout still buffers go nowhere: nobody can take it."""
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)


def _parser() -> _Parser:
    json_option, spec_options = _global_options()
    parser = _Parser(
        prog="shapejit",
        description="Reshape and permute tensors of every dtype, exactly and fast.",
        allow_abbrev=False,
        parents=[json_option, spec_options],
    )
    parser.add_argument("--version", action="version", version=f"shapejit {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(
        name: str, run: Callable[[argparse.Namespace], int], text: str, *parents: _Parser
    ) -> _Parser:
        made: _Parser = commands.add_parser(
            name, help=text, description=text, parents=[json_option, *parents], allow_abbrev=False
        )
        made.set_defaults(command=run)
        return made

    _convert_options(
        command(
            "convert", _convert, "apply rules to the tensors of a safetensors file", spec_options
        )
    )
    inspect = command("inspect", _inspect, "list the tensors of a safetensors file")
    inspect.add_argument("file", metavar="FILE")
    command("demo", _demo, "convert a checkpoint made up here, prove it, show the speed")
    command("dtypes", _dtypes, "print the dtype table")
    _bench_options(command("bench", _bench, "measure copies beside memcpy, NumPy and others"))
    return parser


def _bench_options(parser: _Parser) -> None:
    texts = (f"{name}{'*' * s.default} ({s.text})" for name, s in suites.SUITES.items())
    parser.epilog = (
        f"Suites, those that run unasked with a star: {', '.join(texts)}. "
        "All ways take turns, each peer in its own process; ratios are of median times."
    )
    parser.add_argument(
        "--suite", dest="suites", action="append", default=[], choices=[*suites.SUITES, "all"]
    )
    parser.add_argument("--case", default="", metavar="REGEX", help="searched in SUITE/NAME/DTYPE")
    parser.add_argument("--quick", action="store_true", help="a few cases of each suite")
    parser.add_argument("--size", type=_size, default=1.0, metavar="F", help="F times the bytes")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the random suite")
    parser.add_argument("--rounds", type=_count, metavar="N", help="9 if not given, 5 if quick")
    parser.add_argument("--threads", type=_count, metavar="N")
    parser.add_argument(
        "--peer",
        dest="peers",
        action="append",
        default=[],
        metavar="NAME[=PYTHON]",
        help="torch or onnxruntime, as installed for PYTHON (at least 3.11); or none; "
        "if not given, those that this Python has",
    )


def _size(text: str) -> float:
    value = float(text)
    if not 0 < value <= 64:
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and at most 64")
    return value


def _count(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 10_000:
        raise argparse.ArgumentTypeError(f"{text} is not from 1 to 10000")
    return value


def _convert_options(parser: _Parser) -> None:
    parser.epilog = (
        "Rules apply in the order given, each to every tensor whose whole name REGEX matches. "
        "SHAPE and AXES are comma-separated integers behind the last '='; none mean a scalar."
    )
    parser.add_argument("source", metavar="SRC")
    parser.add_argument("destination", metavar="DST", help="may be SRC")
    for option, value, text in (
        ("reshape", "SHAPE", "a shape, as --spec understands it"),
        ("permute", "AXES", "dim i of the result is dim AXES[i] of the source"),
    ):
        parser.add_argument(
            f"--{option}",
            dest="rules",
            action="append",
            default=[],
            type=_worded(option),
            metavar=f"REGEX={value}",
            help=text,
        )


def _global_options() -> tuple[_Parser, _Parser]:
    """The options that may stand before the command too: --json, and what rules mean."""
    json_option, spec_options = (
        _Parser(add_help=False, argument_default=argparse.SUPPRESS) for _ in range(2)
    )
    json_option.add_argument("--json", action="store_true", help="results as JSON")
    spec_options.add_argument("--spec", help="onnx, openvino, onednn or array (the default)")
    spec_options.add_argument(
        "--special-zero", action="store_true", help="0 copies a dim (openvino, onednn)"
    )
    spec_options.add_argument(
        "--allowzero", action="store_true", help="0 is a size, it does not copy (onnx)"
    )
    return json_option, spec_options


def _worded(option: str) -> Callable[[str], tuple[str, str]]:
    return lambda text: (option, text)


def _convert(args: argparse.Namespace) -> int:
    reshape = conversion.dialect(
        **{name: value for name, value in vars(args).items() if name in _SPEC_OPTIONS}
    )
    rules = [conversion.rule(*words) for words in args.rules]
    plan = conversion.plan(safetensors.read(args.source), rules, reshape)
    with ExitStack() as stack:

        @cache
        def bar() -> Any:
            # Made at the first byte, so that an error before it stands alone.
            options = {"unit": "B", "unit_scale": True, "desc": "convert", "leave": False}
            return stack.enter_context(tqdm(total=plan.nbytes, **options))

        report = plan.write(args.destination, lambda nbytes: bar().update(nbytes))
    if args.json:
        _print_json({"source": args.source, "destination": args.destination, **_report(report)})
    else:
        print(f"{args.destination}: {_report_text(report)}")
    return DONE


def _report(report: Report) -> dict[str, Any]:
    return {**vars(report), "gb_per_s": report.gb_per_s}


def _report_text(report: Report) -> str:
    return (
        f"{report.tensors} tensors, {report.changed} changed, {report.moved} of them moved; "
        f"{report.bytes_read / 1e6:.1f} MB in, {report.bytes_written / 1e6:.1f} MB out, "
        f"{report.seconds:.2f} s, {report.gb_per_s:.2f} GB/s"
    )


def _inspect(args: argparse.Namespace) -> int:
    found = safetensors.read(args.file)
    if args.json:
        tensors = [
            {
                "name": name,
                "dtype": t.dtype.name,
                "shape": t.shape,
                "nbytes": t.nbytes,
                "offsets": found.offsets[name],
            }
            for name, t in found.tensors.items()
        ]
        _print_json(
            {
                "file": args.file,
                "nbytes": found.nbytes,
                "metadata": found.metadata,
                "tensors": tensors,
            }
        )
        return DONE
    rows = [
        (_printable(name), t.dtype.name, _sizes(t.shape), t.nbytes, *found.offsets[name])
        for name, t in found.tensors.items()
    ]
    _print_table(("name", "dtype", "shape", "bytes", "begin", "end"), rows)
    for key, value in (found.metadata or {}).items():
        print(f"{_printable(key)}: {_printable(value)}")
    print(f"{len(rows)} tensors, {found.nbytes} bytes")
    return DONE


def _demo(args: argparse.Namespace) -> int:
    with tqdm(bar_format="{desc} {elapsed}", leave=False) as bar:
        found = demo.run(bar.set_description_str)
    if args.json:
        rows = [{**vars(row), "ratio": row.ratio} for row in found.rows]
        values = {"same": found.same, "first_seconds": found.first_seconds, "rules": found.rules}
        _print_json({**values, "convert": _report(found.report), "tensors": rows})
    else:
        _print_demo(found)
    return DONE if found.same else FAILED


def _print_demo(found: Demo) -> None:
    print("convert SRC DST " + " ".join(found.rules))
    print(_report_text(found.report) + f" (the first time {found.first_seconds:.2f} s)\n")
    rows = [
        (
            row.name,
            _sizes(row.source_shape),
            _sizes(row.shape),
            f"{row.nbytes / 1e6:.1f}",
            "yes" if row.same else "NO",
            f"{row.gb_per_s:.2f}",
            f"{row.numpy_gb_per_s:.2f}",
            f"{row.ratio:.1f}x",
        )
        for row in found.rows
    ]
    head = ("tensor", "from", "to", "MB", "same bits", "GB/s", "NumPy GB/s", "ratio")
    _print_table(head, rows)
    verdict = "Every tensor equals" if found.same else "NOT every tensor equals"
    print(f"\n{verdict} NumPy's, bit for bit.")
    print("GB/s: bytes read and written a second, in memory. Both take turns for some rounds; the")
    print("median of the faster half of each counts, since other programs slow single rounds.")
    disturbed = sum(row.disturbed for row in found.rows)
    if disturbed:
        print(f"{disturbed} of {len(rows)} rows were disturbed all the same: their fastest round")
        print("was far faster. Run it again when other programs leave the cores.")


def _dtypes(args: argparse.Namespace) -> int:
    words = ("onnx", "onnx_name", "openvino", "onednn", "safetensors", "gguf", "dlpack")
    facts = ("name", "bits", "kind", "signed", *words)
    rows = [{fact: getattr(kind, fact) for fact in facts} for kind in dtypes.all()]
    if args.json:
        _print_json(rows)
    else:
        shown = [fact for fact in facts if fact not in ("onnx", "signed")]
        _print_table(shown, [["-" if r[f] is None else r[f] for f in shown] for r in rows])
    return DONE


def _bench(args: argparse.Namespace) -> int:
    cases, calls, works = _bench_cases(args)
    rounds = args.rounds or (5 if args.quick else 9)
    measure.wait_shortly()
    try:
        comparison.use_threads(args.threads)
        facts = comparison.machine()
        with peers.started(tuple(args.peers)) as others:
            ways = ("numpy", *(peer.name for peer in others))
            versions = {peer.name: peer.version for peer in others}
            with tqdm(total=len(cases) + len(calls) + len(works), leave=False) as bar:
                rows = []
                for row in comparison.measured(cases, others, rounds, bar.set_description_str):
                    rows.append(row)
                    bar.update()
                first = []
                for call in firstcall.measured(calls, min(rounds, 5), bar.set_description_str):
                    first.append(call)
                    bar.update()
                figures = []
                tell = bar.set_description_str
                for figure in throughput.measured(works, rounds, args.size, tell):
                    figures.append(figure)
                    bar.update()
    except ValueError as fault:
        raise _ArgumentError(str(fault)) from None
    found = comparison.summaries(rows, ways)
    facts["peers"] = versions
    disturbed = sum(row.disturbed for row in rows)
    if args.json:
        made = [row.facts(ways) for row in rows]
        made += [call.facts() for call in first] + [figure.facts() for figure in figures]
        settings = {name: getattr(args, name) for name in ("size", "quick", "seed")}
        settings["rounds"] = rounds
        summary = [vars(part) for part in found]
        _print_json(
            {
                "machine": facts,
                "settings": settings,
                "rows": made,
                "summary": summary,
                "disturbed": disturbed,
            }
        )
    else:
        _print_bench(rows, found, first, ways)
        _print_figures(figures)
        print("; ".join(f"{name} {value}" for name, value in facts.items() if name != "peers"))
        for name, version in versions.items():
            print(f"{name} {version}")
        if disturbed:
            print(f"{disturbed} of {len(rows)} cases were disturbed: memcpy was slower on all")
            print("threads than on one, so other programs had the cores. Measure again without.")
    same = all(row.same for row in rows) and all(figure.same for figure in figures)
    return DONE if same else FAILED


def _bench_cases(args: argparse.Namespace) -> tuple[list[Case], list[str], list[str]]:
    """The copies, the first calls and the batches that the arguments ask for."""
    names = tuple(suites.SUITES) if "all" in args.suites else tuple(dict.fromkeys(args.suites))
    try:
        pattern = re.compile(args.case)
    except re.error as fault:
        raise _ArgumentError(f"--case {args.case} is no regular expression: {fault}") from None
    chosen = suites.select(names, args.quick, args.seed)
    cases = [
        case if case.suite == "small" else case.scaled(args.size)
        for case in comparison.matching(chosen, pattern)
    ]
    calls = [
        name
        for name in list(firstcall.COPIES)[: 1 if args.quick else None]
        if suites.FIRST_CALL in names and pattern.search(f"{suites.FIRST_CALL}/{name}")
    ]
    works = [
        name
        for name in (throughput.QUICK if args.quick else throughput.CASES)
        if suites.BATCH in names and pattern.search(f"{suites.BATCH}/{name}")
    ]
    if not cases and not calls and not works:
        raise _ArgumentError(f"no case of the suites matches --case {args.case}")
    return cases, calls, works


def _print_bench(
    rows: Sequence[Row],
    found: Sequence[Summary],
    first: Sequence[FirstCall],
    ways: Sequence[str],
) -> None:
    large = [row for row in rows if row.case.suite != "small"]
    small = [row for row in rows if row.case.suite == "small"]
    if large:
        faster = [f"faster than {way}" for way in ways]
        head = ("case", "shape", "MiB", "GB/s", "time/memcpy", "time/memcpy 1T", *faster, "same")
        _print_table(head, [_bench_row(row, ways) for row in large])
        print("\nGB/s: 10^9 bytes read and written a second. time/memcpy: our time over that of a")
        print("memcpy of as many bytes, on all threads, or on one (1T): lower is better.")
        print("faster than: their time over ours: higher is better.\n")
    if small:
        took = [f"{way} us" for way in ("shapejit", *ways)]
        lines = [_small_row(row, ways) for row in small]
        _print_table(("case", "bytes", *took, "beyond numpy us", "same"), lines)
        print("\nus: microseconds a call.\n")
    if first:
        lines = [
            (c.name, *(f"{s:.2f}" for s in (c.cold, c.cold_trivial, c.warm, c.warm_trivial)),
             f"{c.warm_beyond:+.2f}")
            for c in first
        ]  # fmt: skip
        head = ("first call", "cold s", "trivial cold s", "warm s", "trivial warm s", "beyond s")
        _print_table(head, lines)
        print("\nSeconds from import to result in a new process, numba's disk cache cold or warm;")
        print(
            "trivial: a parallel numba function that does nothing. beyond: warm - trivial warm.\n"
        )
    if found:
        lines = [
            (p.suite, p.dtype, str(p.cases), p.measure.replace("_", " "), f"{p.geometric_mean:.2f}",
             f"{p.worst:.2f}", p.worst_case)
            for p in found
        ]  # fmt: skip
        head = ("suite", "dtype", "cases", "measure", "geometric mean", "worst", "worst case")
        _print_table(head, lines)
        print()
    for row in rows:
        if not row.same:
            print(f"NOT the bits of NumPy's copy: {row.case.id}")
        for name in row.differing:
            print(f"another result than {name}'s: {row.case.id}")


def _print_figures(figures: Sequence[Figure]) -> None:
    lines = []
    for figure in figures:
        for goal in figure.goals:
            ratio, ours = figure.ratio(goal), f"{1e3 * figure.seconds['shapejit']:.4g}"
            measure = {"at most": "time over", "at least": "times faster than"}.get(goal.kind)
            value, limit = f"{ratio:.2f}x", f"{goal.kind} {goal.limit:g}x"
            if goal.kind == "beyond":
                measure, value = "us beyond", f"{1e6 * ratio:+.2f}"
                limit = f"at most {1e6 * goal.limit:g}"
            same = "yes" if figure.same else "NO"
            lines.append((figure.name, ours, f"{measure} {goal.way}", value, limit, same))
    if lines:
        _print_table(("batch", "ms", "measure", "found", "wanted", "same"), lines)
        print()


def _bench_row(row: Row, ways: Sequence[str]) -> tuple[str, ...]:
    case = row.case
    return (
        case.id,
        _sizes(case.shape)
        if case.axes is None or len(case.shape) < 9
        else f"{len(case.shape)} dims",
        f"{case.nbytes / 2**20:.0f}",
        f"{row.gb_per_s:.2f}",
        _ratio(row.over("memcpy")),
        _ratio(row.over("memcpy_one_thread")),
        *(_ratio(row.times_faster(way)) for way in ways),
        "yes" if row.same else "NO",
    )


def _small_row(row: Row, ways: Sequence[str]) -> tuple[str, ...]:
    taken = [row.seconds.get(way) for way in ("shapejit", *ways)]
    return (
        row.case.id,
        f"{row.case.nbytes}",
        *("-" if seconds is None else f"{1e6 * seconds:.2f}" for seconds in taken),
        f"{1e6 * (row.seconds['shapejit'] - row.seconds['numpy']):+.2f}",
        "yes" if row.same else "NO",
    )


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}x"


def _sizes(shape: Iterable[int]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"


def _printable(text: str) -> str:
    """Text that moves no cursor and breaks no line."""
    return text if text.isprintable() else repr(text)


def _print_json(value: object) -> None:
    print(json.dumps(value, indent=2))


def _print_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Columns of equal width; numbers to the right."""
    texts = [list(head), *([str(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    right = [bool(rows) and isinstance(value, int) for value in (rows[0] if rows else head)]
    for row in texts:
        cells = (
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(row, widths, right, strict=True)
        )
        print("  ".join(cells).rstrip())


if __name__ == "__main__":
    sys.exit(main())
