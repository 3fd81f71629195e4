"""The parser and the exit codes of all commands: 0 as before, 1 worse, 2 no result."""

import re
import sys
import traceback
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from functools import wraps
from pathlib import Path

SAME, WORSE, UNKNOWN = 0, 1, 2


class MeasureError(ValueError):
    """Why nothing could be measured, or read of what was."""


def parser_of(file, text):
    """The parser of a command's file, whose help is this text as it stands."""
    name = f"python -m benchmarks.tools.{Path(file).stem}"
    return ArgumentParser(name, description=text, formatter_class=RawDescriptionHelpFormatter)


def ending(main):
    """Let a command end with 2 whatever fails in it, so that 1 says that something is worse."""
    name = Path(main.__code__.co_filename).stem

    @wraps(main)
    def ended(argv=None):
        try:
            return main(argv)
        except ModuleNotFoundError as fault:
            reason = f"no {fault.name}: pip install -e '.[bench]'"
        except (MeasureError, OSError, re.error) as fault:
            reason = fault
        except Exception:  # Python itself would end with 1
            traceback.print_exc()
            return UNKNOWN
        print(f"{name}: error: {reason}", file=sys.stderr)
        return UNKNOWN

    return ended
