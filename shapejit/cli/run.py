"""Runs one command: its streams, its errors and its exit code."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress

from ..errors import ShapeJitError, message, shown
from . import signals
from .command import BAD_INPUT, ArgumentError
from .parser import parse
from .startup import INTERRUPTED

_BROKEN_PIPE = 141  # 128 + SIGPIPE, as shells have it


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return 0 for success, 1 for a failed check, 2 for bad input or arguments.

    Results go to stdout, progress and errors to stderr.
    """
    with _open_streams():
        try:
            args = _parsed(argv)  # until then `startup` ends the process: modules are imported
            with signals.raised():
                code = args if isinstance(args, int) else int(args.command.module.run(args))
                sys.stdout.flush()
        except BrokenPipeError:
            _discard_stdout()
            return _BROKEN_PIPE
        except KeyboardInterrupt:
            return _fail("interrupted", INTERRUPTED)
        except signals.Terminated as stop:
            return _fail("terminated", *stop.args)
        except (ArgumentError, ShapeJitError, ImportError) as fault:
            return _fail(str(fault))
        except MemoryError:
            return _fail("not enough memory")
        except OSError as fault:
            # If stdout failed, flushing the rest of it would fail again at exit.
            _discard_stdout()
            where = "" if fault.filename is None else f"{shown(str(fault.filename))}: "
            return _fail(f"{where}{fault.strerror or fault}")
        return code


def _parsed(argv: Sequence[str] | None) -> Namespace | int:
    """The arguments, or the exit code if no command is to run."""
    with suppress(AttributeError):
        # Characters that the terminal's encoding lacks are shown escaped.
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a TextIO may lack it
    try:
        args = parse(None if argv is None else list(argv))
    except SystemExit as done:  # --help, --version
        return int(done.code or 0)
    return BAD_INPUT if args is None else args


def _fail(text: str, code: int = BAD_INPUT) -> int:
    with suppress(OSError):
        print(f"shapejit: error: {message(text)}", file=sys.stderr)
    return code


@contextmanager
def _open_streams() -> Iterator[None]:
    """Replace a stdout or stderr that was closed (`>&-`) by one that discards its output."""
    with ExitStack() as stack:
        for stream, redirect in ((sys.stdout, redirect_stdout), (sys.stderr, redirect_stderr)):
            if stream is None:
                # This takes the lowest free descriptor, the closed one. Otherwise the next file
                # to be opened would get it, and what libraries print would be written there.
                stack.enter_context(redirect(stack.enter_context(open(os.devnull, "w"))))
        yield


def _discard_stdout() -> None:
    """Discard what stdout still buffers after its reader has gone."""
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
