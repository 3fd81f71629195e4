"""Ctrl-C ends the command line silently while its modules are imported.

This module is imported first, and imports next to nothing: importing NumPy and the rest takes some
tenths of a second. Only the process of the command line is affected.
"""

import os
import sys

INTERRUPTED = 130  # 128 + the signal's number, as shells have it


def _is_command() -> bool:
    """Whether this process runs the script `shapejit`, or `python -m shapejit`."""
    program = sys.orig_argv[-len(sys.argv) :][:1]  # the script, or what follows -m
    return [os.path.basename(name) for name in program] in (["shapejit"], ["-mshapejit"])


def _end_quietly() -> None:
    """Let Ctrl-C end the process, until `signals.raised` takes over and again at the end."""
    import signal  # which imports enum: a few milliseconds in which it may strike

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))


if _is_command():
    try:
        _end_quietly()
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)
