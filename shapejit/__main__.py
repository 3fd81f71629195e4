"""The command line: words to calls, results to stdout, progress and errors to stderr."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from typing import Any, NoReturn

from tqdm import tqdm

from . import __version__, conversion, demo, dtypes
from .conversion import Report
from .demo import Demo
from .errors import ShapeJitError
from .files import safetensors

DONE, FAILED, BAD_INPUT = 0, 1, 2
INTERRUPTED, BROKEN_PIPE = 130, 141  # 128 + SIGINT, 128 + SIGPIPE, as shells say


class _ArgumentError(Exception):
    """Arguments that argparse refuses."""


class _Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one line, printed where all errors are."""

    def error(self, message: str) -> NoReturn:
        raise _ArgumentError(f"{message} (see {self.prog} --help)")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns 0 done, 1 the check failed, 2 bad input or arguments."""
    try:
        code = _run(argv)
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_stdout()
        return BROKEN_PIPE
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED)
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


def _run(argv: Sequence[str] | None) -> int:
    with suppress(AttributeError):
        # A name that the terminal's encoding lacks is shown escaped.
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # TextIO
    try:
        args = _parser().parse_args(argv)
    except SystemExit as done:  # --help, --version
        return int(done.code or 0)
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
    parser = _Parser(
        prog="shapejit",
        description="Reshape and permute tensors of every dtype, exactly and fast.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"shapejit {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    json_option = _Parser(add_help=False)
    json_option.add_argument("--json", action="store_true", help="results as JSON")

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str) -> _Parser:
        made: _Parser = commands.add_parser(
            name, help=text, description=text, parents=[json_option], allow_abbrev=False
        )
        made.set_defaults(command=run)
        return made

    _convert_options(
        command("convert", _convert, "apply rules to the tensors of a safetensors file")
    )
    inspect = command("inspect", _inspect, "list the tensors of a safetensors file")
    inspect.add_argument("file", metavar="FILE")
    command("demo", _demo, "convert a checkpoint made up here, prove it, show the speed")
    command("dtypes", _dtypes, "print the dtype table")
    return parser


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
    parser.add_argument(
        "--spec", default="array", help="onnx, openvino, onednn or array (the default)"
    )
    parser.add_argument(
        "--special-zero", action="store_true", help="0 copies a dim (openvino, onednn)"
    )
    parser.add_argument(
        "--allowzero", action="store_true", help="0 is a size, it does not copy (onnx)"
    )


def _worded(option: str) -> Callable[[str], tuple[str, str]]:
    return lambda text: (option, text)


def _convert(args: argparse.Namespace) -> int:
    reshape = conversion.dialect(
        args.spec, special_zero=args.special_zero, allowzero=args.allowzero
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
    print("GB/s: bytes read and written a second, in memory; the median of rounds in turn.")


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
