"""Show that comparisons can be trusted: what is planted is found, and nothing else is.

In a clone that is thrown away, commits make a kernel take 1.5 and 1.1 times as long, and
compiling twice as long: comparing each has to fail. Another commit changes nothing: comparing
it, again and again, has to find nothing. Exit code 0 if all of that is so, otherwise 1; 2 if
something could not be measured.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from . import machine_code
from .catalogue import items
from .compare import WORSE, compare, text
from .exits import MeasureError, ending
from .repository import ROOT, RecordError, commit_named, git

SLOWER = '''

_swift = {name}


def {name}(*arguments):
    """The kernel, and {share} times as long once more."""
    from time import perf_counter

    start = perf_counter()
    _swift(*arguments)
    end = perf_counter() + (perf_counter() - start) * {share}
    while perf_counter() < end:
        pass
'''
LONGER = '''

_load, _save, _begun = {name}.load_overload, {name}.save_overload, []


def _begin(cache, *arguments):
    """Before a kernel is compiled, and those that it calls."""
    from time import process_time

    found = _load(cache, *arguments)
    if found is None:
        _begun.append(process_time())
    return found


def _end(cache, *arguments):
    """After it: once more as long, for those that it calls with it."""
    from time import process_time

    _save(cache, *arguments)
    end = 2 * process_time() - _begun.pop()
    while not _begun and process_time() < end:
        pass


{name}.load_overload, {name}.save_overload = _begin, _end
'''


class Plant(NamedTuple):
    """What is appended to a file, to what it defines, and how it has to be found."""

    title: str
    file: str
    name: str
    added: str
    found: Callable
    least: float = WORSE

    def commit(self, clone, base):
        """A commit with it on top of another."""
        git("checkout", "--quiet", base, cwd=clone)
        file = clone / self.file
        if not file.is_file() or not _defines(file, self.name):
            raise RecordError(f"commit {base[:8]} has no {self.name} in {self.file} to plant on")
        with file.open("a") as opened:
            opened.write(self.added)
        return _commit(clone, self.title)


def _defines(file, name):
    text = file.read_text()
    return f"\ndef {name}(" in text or f"\nclass {name}(" in text


def _slower(least, most):
    """Whether what is slower is what was planted: copies, by about as much."""

    def caught(found):
        changes = [v.change for v in found.slower if v.benchmark.startswith(COPIES)]
        return any(least < change < most for change in changes)

    return caught


def _longer(found):
    """Whether compiling takes longer by about as much as was planted."""
    return found.longer > machine_code.LONGER and 0.5 < found.longer < 1.7


TILES = "shapejit/kernels/tiles.py", "tiles"
PLANTS = {
    "half": Plant(
        "a kernel takes half as long again", *TILES, SLOWER.format(name="tiles", share=0.5),
        _slower(0.25, 0.9),
    ),
    "tenth": Plant(
        "a kernel takes 10 % longer", *TILES, SLOWER.format(name="tiles", share=0.1),
        _slower(0.04, 0.25), least=0.04,
    ),
    "compile": Plant(
        "compiling takes twice as long", "shapejit/kernels/jit.py", "_Cache",
        LONGER.format(name="_Cache"), _longer,
    ),
}  # fmt: skip
COPIES = "operations."  # the benchmarks in which a slower kernel shows
COMPILED = ["operations.Ttc"]  # the cases whose kernels are compiled to see how long it takes


def planted(folder, commit):
    """A clone of a commit, and one that changes nothing."""
    clone = Path(folder, "clone")
    git("clone", "--quiet", str(ROOT), str(clone))
    git("checkout", "--quiet", commit, cwd=clone)
    return clone, _commit(clone, "Nothing is changed")


def _commit(clone, message):
    name = ("-c", "user.name=demonstration", "-c", "user.email=demonstration@example.invalid")
    git(*name, "commit", "--quiet", "--all", "--allow-empty", "--message", message, cwd=clone)
    return commit_named("HEAD", clone)


def shown(title, clone, first, second, folder, chosen, least=WORSE):
    """Compare and print; return what is Found."""
    start = monotonic()
    found = compare(clone, first, second, folder, chosen, worse=least)
    print(f"== {title} ({monotonic() - start:.0f} s)", text(found), sep="\n", flush=True)
    if found.fails or not found.verdicts:
        raise MeasureError(f"{title}: not everything could be compared")
    return found


def compiled(title, clone, first, second):
    """The same of machine code, of some kernels."""
    found = machine_code.compare_commits(first, second, repository=clone, patterns=COMPILED)
    print(f"== {title}", found, sep="\n", flush=True)
    return found


def caught(names, clone, commit, folder, chosen):
    """{plant: whether it is found}."""
    made = {}
    for name in names:
        plant = PLANTS[name]
        other = plant.commit(clone, commit)
        if name == "compile":
            found = compiled(plant.title, clone, commit, other)
        else:
            place, copies = Path(folder, name), [i for i in chosen if str(i).startswith(COPIES)]
            found = shown(plant.title, clone, commit, other, place, copies, plant.least)
        made[name] = plant.found(found)
    return made


@ending
def main(argv=None):
    """0 shown, 1 not, 2 bad arguments or something that could not be measured."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.demonstration",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("commit", nargs="?", default="HEAD", metavar="COMMIT")
    parser.add_argument("--times", type=int, default=10, metavar="N", help="quiet comparisons")
    parser.add_argument("--plant", nargs="*", choices=list(PLANTS), default=list(PLANTS))
    parser.add_argument("--bench", action="append", default=[], metavar="REGEX")
    args = parser.parse_args(argv)
    if args.times < 0 or not (args.plant or args.times):
        parser.error("nothing is left to show")
    commit, chosen = commit_named(args.commit), items(args.bench)
    with tempfile.TemporaryDirectory(prefix="shapejit-demonstration-") as folder:
        clone, same = planted(folder, commit)
        seen = caught(args.plant, clone, commit, folder, chosen)
        alarms = 0
        for k in range(args.times):
            title = f"nothing changed, {k + 1}"
            found = shown(title, clone, commit, same, Path(folder, "same"), chosen)
            alarms += bool(found.slower)
        if args.times and "compile" in args.plant:
            alarms += compiled("nothing changed, compiled", clone, commit, same).worse
    for name, found in seen.items():
        print(f"{PLANTS[name].title}: {'' if found else 'NOT '}found")
    print(f"{alarms} of {args.times} comparisons of equal commits gave an alarm")
    return 0 if all(seen.values()) and not alarms else 1


if __name__ == "__main__":
    sys.exit(main())
