"""Write what READMEs say of speed from the recorded figures (`benchmarks.figures`).

README.md gets a table of lines, the list of names and, in benchmarks/, its picture;
benchmarks/README.md the table of all suites.
"""

import argparse
import re
import sys
from statistics import median

from . import names, picture
from .exits import ending
from .figures import recorded
from .lines import table as lines_table
from .repository import ROOT, RecordError

MARKER = "<!-- {}: written by python -m benchmarks.readme -->\n{}<!-- /{} -->"
# What stands between the markers of each file.
PARTS = {
    "README.md": {"lines": lines_table, "names": lambda figures: names.listed()},
    "benchmarks/README.md": {"measured": lambda figures: table(figures)},
}
HEAD = ("suite", "cases", "time/memcpy", "worst", "faster than NumPy")


def rows(figures):
    """The table: its head, then a row a suite."""
    suites = {name: part for name, part in figures["suites"].items() if part["summary"]}
    peers = list(dict.fromkeys(p for part in suites.values() for p in part["machine"]["peers"]))
    made = [(*HEAD, *(f"than {peer}" for peer in peers))]
    for suite, part in suites.items():
        for dtype in _dtypes(suite, part["summary"]):
            found = {s["measure"]: s for s in part["summary"] if s["dtype"] == dtype}
            made.append(_row(suite if dtype == "all" else f"{suite} {dtype}", found, peers))
    return made


def table(figures):
    """The lines between the markers."""
    made = rows(figures)
    widths = [max(map(len, column)) for column in zip(*made, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if k == 0 else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in made
    ]
    more = [*_batch(figures), *_first_call(figures)]
    return "\n".join([_where(figures), "", "```text", *lines, "```", *more])


def _batch(figures):
    """Many tensors at once, if that is recorded: a line a measure."""
    lines = []
    for row in figures["suites"].get("batch", {}).get("rows", []):
        ours = row["seconds"]["shapejit"]
        taken = f"{1e3 * ours:.3g} ms" if ours > 1e-4 else f"{1e6 * ours:.2f} us"
        for goal in row["goals"]:
            way, ratio = goal["way"], goal["ratio"]
            said = {
                "at least": f"{ratio:.1f}x faster than a {way}",
                "at most": f"{ratio:.2f} x the time of {way}",
                "beyond": f"{1e6 * ratio:+.2f} us beyond {way}",
            }[goal["kind"]]
            lines.append(f"{row['name']:20}  {taken:>8}  {said}")
    return ["", "Many tensors at once:", "", "```text", *lines, "```"] if lines else []


def _first_call(figures):
    """What a new process waits for, if that is recorded."""
    rows = figures["suites"].get("first-call", {}).get("rows")
    if not rows:
        return []
    beyond = median(row["warm_beyond"] for row in rows)
    cold = [row["cold"] - row["cold_trivial"] for row in rows]
    text = (
        f"The first copy in a new process costs {beyond:.2f} s beyond the first call of any cached "
        f"parallel numba function; compiled without a cache, {min(cold):.1f} to {max(cold):.1f} s "
        f"beyond it."
    )
    return ["", _wrapped(text)]


def _dtypes(suite, summary):
    """One line a suite; one a dtype of those that are about dtypes."""
    found = list(dict.fromkeys(s["dtype"] for s in summary))
    return found[1:] if suite.endswith("-dtypes") and len(found) > 1 else found[:1]


def _row(name, found, peers):
    memcpy = found.get("over_memcpy")
    cases = max(s["cases"] for s in found.values())
    # A rival may have been measured on less: then its name says so behind the way's.
    faster = [
        next((s for m, s in found.items() if f"{m}_".startswith(f"times_faster_than_{way}_")), None)
        for way in ("numpy", *peers)
    ]
    return (
        name,
        str(cases),
        f"{memcpy['geometric_mean']:.2f}" if memcpy else "-",
        f"{memcpy['worst']:.2f}" if memcpy else "-",
        *(f"{s['geometric_mean']:.1f}x" if s else "-" for s in faster),
    )


def _where(figures):
    parts = list(figures["suites"].values())
    facts = parts[-1]["machine"]
    commits = list(dict.fromkeys(part["commit"][:8] for part in parts))
    versions = {name: facts[name] for name in ("numpy", "numba")}
    for part in parts:
        versions |= part["machine"]["peers"]
    less = any(part["settings"]["quick"] or part["settings"]["size"] != 1 for part in parts)
    text = (
        f"Geometric means and worst cases of `shapejit bench --suite NAME`"
        f"{' (part of the cases)' if less else ''}, recorded at "
        f"{', '.join(commits)} on {facts['cpu']} ({facts['architecture']}, {facts['threads']} "
        f"threads; {', '.join(f'{name} {version}' for name, version in versions.items())}):"
    )
    return _wrapped(text)


def _wrapped(text, width=100):
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) >= width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(lines)


def written(name, text, figures):
    """The text of a README with its parts as these figures make them."""
    for part, make in PARTS[name].items():
        pattern = re.compile(MARKER.format(part, "(.*?)", part), re.DOTALL)
        if not pattern.search(text):
            raise RecordError(f"{name} has no part {part!r} between markers")
        made = MARKER.format(part, f"{make(figures)}\n", part)
        text = pattern.sub(lambda _, made=made: made, text)
    return text


def files(figures):
    """Every file that is written, and its text."""
    texts = {name: written(name, (ROOT / name).read_text(), figures) for name in PARTS}
    pictures = {f"benchmarks/speed-{t}.svg": picture.svg(figures, t) for t in picture.THEMES}
    return texts | pictures


@ending
def main(argv=None):
    """0 written, 2 where nothing is recorded."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.readme", description=__doc__)
    parser.add_argument("--machine", metavar="NAME", help="if not the one recorded last")
    args = parser.parse_args(argv)
    for name, text in files(recorded(args.machine)).items():
        (ROOT / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
