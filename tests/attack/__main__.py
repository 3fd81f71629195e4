"""Attack the package at random: `python -m tests.attack --minutes 30`, from a clone.

Every attack takes its turn again and again until the time is over. Each failure is printed
with the command that repeats it. The exit code is 0 if there was none, else 1.
"""

import argparse
import sys
import time
from itertools import cycle
from secrets import randbits

from .runner import run
from .table import ATTACKS

TURN = 60  # seconds at most before the next attack has its turn


def main(argv=None):
    given = arguments(argv)
    names = given.only or list(ATTACKS)
    seed = randbits(32) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    for name in names:
        print(f"{name}: {ATTACKS[name].does}", flush=True)
    if given.cases:
        first, last = given.cases
        outcomes = {name: [run(name, seed, first, last, failed=show)] for name in names}
    else:
        outcomes = take_turns(names, seed, 60 * given.minutes)
    failures = 0
    for name, turns in outcomes.items():
        found = sum(len(turn.failures) for turn in turns)
        failures += found
        print(f"{name}: {sum(turn.cases for turn in turns)} cases, {found} failures")
    return 1 if failures else 0


def arguments(argv):
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30, help="how long (default: 30)")
    parser.add_argument("--seed", type=int, help="a number (default: another one each time)")
    parser.add_argument("--only", action="append", choices=list(ATTACKS), metavar="NAME",
                        help=f"one attack, or several: {', '.join(ATTACKS)}")  # fmt: skip
    parser.add_argument("--cases", type=numbers, metavar="FIRST:LAST", help="these cases alone")
    return parser.parse_args(argv)


def numbers(text):
    first, last = text.split(":")
    return int(first), int(last)


def take_turns(names, seed, seconds):
    """All attacks, again and again; a list of outcomes for each."""
    outcomes = {name: [] for name in names}
    done = dict.fromkeys(names, 0)
    end = time.monotonic() + seconds
    for name in cycle(names):
        if (left := end - time.monotonic()) <= 1:
            break
        waiting = len(names) - names.index(name)  # cases may take longer than their turn
        begun = time.monotonic()
        outcome = run(name, seed, done[name], seconds=min(TURN, left / waiting), failed=show)
        outcomes[name].append(outcome)
        first, done[name] = done[name], done[name] + outcome.cases
        took = time.monotonic() - begun
        print(f"{name}: cases {first}:{done[name]}, {len(outcome.failures)} failures, {took:.0f} s",
              flush=True)  # fmt: skip
    return outcomes


def show(failure):
    print(failure, flush=True)


if __name__ == "__main__":
    sys.exit(main())
