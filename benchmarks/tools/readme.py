"""Write the measured parts of READMEs from the recorded figures (`figures`).

README.md gets the table of `conversion`, a table of lines, the times of first calls, the list of
names and, in benchmarks/, its picture; shapejit/README.md the list of modules; benchmarks/README.md
the tables of all suites and of `tiers`.
"""

import re
import sys
import textwrap
from statistics import geometric_mean

from . import conversion, lines, names, picture, timelines
from .exits import ending, parser_of
from .figures import recorded
from .lines import aligned, numpys
from .repository import ROOT, RecordError

MARKER = "<!-- {}: written by python -m benchmarks.tools.readme -->\n{}<!-- /{} -->"
# What stands between the markers of each file.
PARTS = {
    "README.md": {
        "conversion": lambda figures: conversion.table(),
        "lines": lambda figures: "\n\n".join([lines.table(figures), _beside(figures)]),
        "first": lambda figures: timelines.sentence(timelines.recorded()),
        "names": lambda figures: names.listed(),
    },
    "shapejit/README.md": {"modules": lambda figures: names.modules()},
    "benchmarks/README.md": {
        "measured": lambda figures: table(figures),
        "tiers": lambda figures: timelines.table(timelines.recorded()),
    },
}
_NAMED = ("NumPy", "torch")  # whose times the lines have
HEAD = ("suite", "cases", "time/memcpy", "worst", "faster than NumPy")


def rows(figures):
    """The table: its head, then a row a suite."""
    peers = list(figures["machine"]["peers"])
    made = [(*HEAD, *(f"than {peer}" for peer in peers))]
    for suite in dict.fromkeys(row["suite"] for row in figures["rows"]):
        taken = [row["seconds"] for row in figures["rows"] if row["suite"] == suite]
        memcpy = [s["shapejit"] / s["memcpy"] for s in taken if "memcpy" in s]
        plain = (f"{geometric_mean(memcpy):.2f}", f"{max(memcpy):.2f}") if memcpy else ("-", "-")
        numpy = [n / s["shapejit"] for s in taken if (n := numpys(s))]
        faster = [[s[p] / s["shapejit"] for s in taken if p in s] for p in peers]
        cells = (f"{geometric_mean(ratios):.1f}x" if ratios else "-" for ratios in (numpy, *faster))
        made.append((suite, str(len(taken)), *plain, *cells))
    return made


def table(figures):
    """The lines between the markers."""
    return "\n".join([_where(figures), "", "```text", *aligned(rows(figures)), "```"])


def _where(figures):
    facts, settings = figures["machine"], figures["settings"]
    commits = ", ".join(commit[:8] for commit in figures["commits"])
    versions = {name: facts[name] for name in ("numpy", "numba")} | facts["peers"]
    less = " (part of the cases)" if settings["quick"] or settings["size"] != 1 else ""
    text = (
        f"Geometric means and worst cases of `shapejit bench --suite NAME`{less}, recorded at "
        f"{commits} on {facts['cpu']} ({facts['architecture']}, {facts['threads']} "
        f"threads; {', '.join(f'{name} {version}' for name, version in versions.items())}):"
    )
    return textwrap.fill(text, 100, break_on_hyphens=False)


def _beside(figures):
    """The libraries that the lines are compared with, and the machine."""
    facts = figures["machine"]
    versions = {"NumPy": facts["numpy"]} | facts["peers"]
    named = " and ".join(f"{name} {versions[name]}" for name in _NAMED if name in versions)
    commit, where = figures["commits"][0][:8], f"{facts['cpu']} with {facts['threads']} threads"
    text = (
        f"Medians, compared with {named}, recorded at {commit} on {where}; all results are "
        "compared bit for bit."
    )
    return textwrap.fill(text, 100, break_on_hyphens=False)


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
    drawn = lines.bars(figures), figures["machine"]["cpu"]
    for theme in picture.THEMES:
        texts[f"benchmarks/speed-{theme}.svg"] = picture.svg(*drawn, theme)
    return texts


@ending
def main(argv=None):
    """0 written, 2 where nothing is recorded."""
    parser = parser_of(__file__, __doc__)
    parser.parse_args(argv)
    for name, text in files(recorded()).items():
        (ROOT / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
