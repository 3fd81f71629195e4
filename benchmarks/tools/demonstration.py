"""Show that comparisons can be trusted: what is planted is found, and nothing else is.

In a clone that is thrown away, commits make a kernel take 1.5 and 1.1 times as long, and compiling
twice as long: comparing each has to find that. Another commit changes nothing: comparing it, again
and again, has to find nothing. With --record what is printed is kept in
benchmarks/measured/demonstration. Exit code 0 if all of that is so, otherwise 1; 2 if something
could not be measured.
"""

import sys
import tempfile
from pathlib import Path

from . import machine_code
from .compare import WORSE, compare, text
from .exits import MeasureError, ending, parser_of
from .machines import entry
from .repository import ROOT, RecordError, commit_named, git
from .trials import items

AUTHOR = ("-c", "user.name=demonstration", "-c", "user.email=demonstration@example.invalid")
# What is appended to how kernels are called: that of tiles takes a share of its time once more.
SLOWER = '''

_swift = bound


def bound(entry, arguments):
    """The kernel, slowed down; asleep, since threads that spin would wait for one another."""
    from time import perf_counter, sleep

    run = _swift(entry, arguments)

    def slow(*given):
        start = perf_counter()
        run(*given)
        sleep((perf_counter() - start) * {share})

    return slow if entry.kernel == "tiles.tiles" else run
'''
# And to the builder: once more the time that each kernel took, with those that it calls.
LONGER = '''

_quick = optimised


def optimised(*arguments):
    """The kernel, after twice the time."""
    from time import process_time

    start = process_time()
    made = _quick(*arguments)
    end = 2 * process_time() - start
    while process_time() < end:
        pass
    return made
'''
# What is planted: its file, what is appended, and the least change and the largest that it is.
PLANTS = {
    "half": ("shapejit/runtime/kernels.py", SLOWER.format(share=0.5), 0.25, 0.9),
    "tenth": ("shapejit/runtime/kernels.py", SLOWER.format(share=0.1), 0.04, 0.25),
    "compile": ("shapejit/builder/objects.py", LONGER, 0.5, 1.7),
}
COPIES = ("ttc", "workloads", "odd")  # the suites in which a slower kernel shows
COMPILED = {"patterns": ["^ttc/"], "isas": ["x86-64-v3"]}


def commit(clone, base, file=None, added=""):
    """A commit on top of another in which something is appended to a file, or nothing changed."""
    git("checkout", "--quiet", base, cwd=clone)
    if file is not None:
        if not Path(clone, file).is_file():
            raise RecordError(f"commit {base[:8]} has no {file} to plant on")
        with Path(clone, file).open("a") as opened:
            opened.write(added)
    message = ("--allow-empty", "--message", file or "Nothing is changed")
    git(*AUTHOR, "commit", "--quiet", "--all", *message, cwd=clone)
    return commit_named("HEAD", clone)


def changes(clone, first, second, folder, chosen, least):
    """How much slower what got slower is, with all that was found in words."""
    found = compare(clone, first, second, folder, chosen, worse=least)
    if found.fails or not found.verdicts:
        raise MeasureError(f"not everything could be compared\n{text(found)}")
    return [v.change for v in found.slower], text(found)


def planted(name, clone, base, folder, chosen):
    """Whether a plant is found, and what was found in words."""
    file, added, least, most = PLANTS[name]
    other = commit(clone, base, file, added)
    if name == "compile":
        found = machine_code.compare_commits(base, other, clone, **COMPILED)
        return least < found.longer < most, str(found)
    copies = [item for item in chosen if str(item).startswith(COPIES)]
    found, said = changes(clone, base, other, Path(folder, name), copies, min(least, WORSE))
    return any(least < change < most for change in found), said


@ending
def main(argv=None):
    """0 shown, 1 not, 2 bad arguments or something that could not be measured."""
    parser = parser_of(__file__, __doc__)
    parser.add_argument("commit", nargs="?", default="HEAD", metavar="COMMIT")
    parser.add_argument("--times", type=int, default=10, metavar="N", help="quiet comparisons")
    parser.add_argument("--plant", nargs="*", choices=list(PLANTS), default=list(PLANTS))
    parser.add_argument("--bench", action="append", default=[], metavar="REGEX")
    parser.add_argument("--record", action="store_true")
    args = parser.parse_args(argv)
    base, chosen, lines, wrong = commit_named(args.commit), items(args.bench), [], 0

    def show(title, right, said):
        nonlocal wrong
        wrong += not right
        lines.append(f"== {title}: {'as it should be' if right else 'WRONG'}\n{said}")
        print(lines[-1], flush=True)

    with tempfile.TemporaryDirectory(prefix="shapejit-demonstration-") as folder:
        clone = Path(folder, "clone")
        git("clone", "--quiet", str(ROOT), str(clone))
        for name in args.plant:
            show(f"{name} is found", *planted(name, clone, base, folder, chosen))
        same = commit(clone, base)
        for k in range(args.times):
            found, said = changes(clone, base, same, Path(folder, "same"), chosen, WORSE)
            show(f"nothing changed, {k + 1}", not found, said)
    if args.record:
        path = entry(ROOT / "benchmarks" / "measured" / "demonstration", ".txt")
        path.write_text("\n".join([f"commit {base}", *lines]) + "\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
