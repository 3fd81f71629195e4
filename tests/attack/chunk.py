"""Some cases of one attack, in this process: `python -m attack.chunk TABLE NAME SEED ...`.

Each case that fails is a line of JSON on stdout. The number of the case at hand stands in a
file, where it is found if the process dies.
"""

import faulthandler
import importlib
import json
import mmap
import os
import resource
import sys
import time
import traceback
from random import Random

from guarded import guard_stages

MEMORY = 12 * 2**30  # bytes of address space: what asks for more than this gets a MemoryError


def main(table, name, seed, first, last, seconds, at):
    attack = importlib.import_module(table).ATTACKS[name]
    carry_out = attack.function()
    guard_stages()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    end, parent = time.monotonic() + seconds, os.getppid()
    with open(at, "r+b") as file, mmap.mmap(file.fileno(), 8) as number:
        for case in range(first, last):
            number[:] = case.to_bytes(8, "little")
            faulthandler.dump_traceback_later(attack.seconds, exit=True)
            try:
                carry_out(Random(f"{name} {seed} {case}"))
            except Exception:
                tell(case=case, report=traceback.format_exc())
            faulthandler.cancel_dump_traceback_later()
            if time.monotonic() > end or os.getppid() != parent:
                break
        tell(done=case + 1)


def tell(**facts):
    """One line for the runner."""
    print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    table, name, seed, first, last, seconds, at = sys.argv[1:]
    main(table, name, int(seed), int(first), int(last), float(seconds), at)
