"""What is recorded by `tiers`: its limits, the table and the picture of the README."""

import json
import textwrap
from math import inf, log10
from typing import NamedTuple

from .picture import THEMES, label
from .repository import ROOT

TIERS = ROOT / "benchmarks" / "measured" / "tiers"
PEAK, OTHERS = 0.06, 0.01  # seconds beside NumPy's time of one call, and of all but five
FAST = 1.3  # times the kernels' time is as fast as they are, within the noise
LEAST = 1e-3, 1e-2  # of the axes: seconds since the first call, times NumPy's time


class Limits(NamedTuple):
    """How long a call may take, in NumPy's times, and after how many seconds kernels do it."""

    times: float
    settled: float


CACHES = {"warm": Limits(1.5, 0.3), "empty": Limits(2.0, 5.0)}


def settled(curve, kernels):
    """After how many seconds of work calls are, and stay, as fast as kernels."""
    late = [k for k, (_, median, _) in enumerate(curve) if median > FAST * kernels]
    if not late:
        return 0.0
    return inf if late[-1] + 1 == len(curve) else curve[late[-1]][0]


def values(row, cache):
    """{column: (seconds, limit or None)} of a row of the record."""
    found, limits = row[cache], CACHES[cache]
    most = limits.times * found["numpy"]
    return {
        "NumPy": (found["numpy"], None),
        "2nd call": (found["second"], None),
        "longest": (found["longest"], most + PEAK),
        "all but 5": (found["sixth"], most + OTHERS),
        "as kernels after": (found["settled"], limits.settled),
        "at last": (found["last"], None),
        "kernels": (row["kernels"], None),
    }


def unmet(record):
    """What is above its limit, as "row, cache: column"."""
    return [
        f"{name}, {cache} cache: {column}"
        for name, row in record["rows"].items()
        for cache in CACHES
        for column, (value, limit) in values(row, cache).items()
        if limit is not None and value > limit
    ]


def last():
    """The last record; None if there is none."""
    paths = sorted(TIERS.glob("*.json"))
    return json.loads(paths[-1].read_text()) if paths else None


def table(record):
    """The lines of a README."""
    if record is None:
        return "None is recorded yet."
    lines = []
    for name, row in record["rows"].items():
        for cache in CACHES:
            found = values(row, cache)
            if not lines:
                lines.append(f"{'seconds':32}{'cache':6}" + "".join(f"{c:>18}" for c in found))
            cells = (_cell(*one) for one in found.values())
            lines.append(f"{name:32}{cache:6}{''.join(f'{cell:>18}' for cell in cells)}".rstrip())
    where = f"{record['commit'][:8]} on {record['cpu']}, {record['threads']} threads"
    note = f"{len(unmet(record))} values are above their limits, marked with !"
    return "\n".join(["```text", *lines, "", f"{note}; {where}", "```"])


SHOWN = "transposed-4096x4096/bfloat16"  # the row that the README tells of


def sentence(record):
    """What first calls take, in words."""
    row = record and record["rows"].get(SHOWN)
    if not row:
        return "None is recorded yet."
    warm, empty = (values(row, cache) for cache in CACHES)
    numpy, kernels = (warm[name][0] for name in ("NumPy", "kernels"))

    def said(found):
        longest, after = (f"{found[name][0]:.2g} s" for name in ("longest", "as kernels after"))
        return f"no call takes longer than {longest}, and kernels do the work after {after}"

    text = (
        "First calls do not wait for a compiler: NumPy does the work until kernels are ready. "
        f"Transposing 4096 x 4096 bfloat16 takes NumPy {numpy:.2g} s and a kernel {kernels:.2g} s. "
        f"In a new process that finds its kernels on disk {said(warm)}; with an empty cache, "
        f"once, {said(empty)}."
    )
    return textwrap.fill(text, 100, break_on_hyphens=False)


def _cell(value, limit):
    return f"{value:.2g}{'!' if limit is not None and value > limit else ''}"


# The picture: a panel a row, time of calls over the time since the first one.

WIDTH, COLUMNS, PANEL, GAP, TOP = 760, 2, 100, 44, 40


def svg(record, theme):
    """The record as a picture: the median of calls, and the longest ones as a faint line."""
    ink, faint, warm, empty = THEMES[theme][0], THEMES[theme][1], THEMES[theme][2], "#db6d28"
    rows = list(record["rows"].items())
    height = TOP + -(-len(rows) // COLUMNS) * (PANEL + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" font-family="system-ui, sans-serif" font-size="12">',
        "<title>Time of calls since the first one of a process</title>",
        label(12, 20, "Time of a call / NumPy's, by seconds since the first call", ink, size=15),
    ]
    for x, name, colour in ((470, "kernels on disk", warm), (610, "empty cache", empty)):
        parts += [_line([(x, 16), (x + 18, 16)], colour, 2), label(x + 24, 20, name, ink, size=12)]
    for k, (name, row) in enumerate(rows):
        wide = (WIDTH - 24) / COLUMNS
        left, top = 12 + k % COLUMNS * wide, TOP + k // COLUMNS * (PANEL + GAP) + 16
        parts += _panel(left, top, wide - 24, name, row, (ink, faint), (warm, empty))
    return "\n".join([*parts, "</svg>", ""])


def _panel(left, top, wide, name, row, inks, colours):
    seconds, least = _ends(row)

    def place(at, times):
        x = log10(max(at, LEAST[0]) / LEAST[0]) / log10(seconds / LEAST[0])
        y = log10(max(times, least) / least) / log10(10 / least)
        return left + wide * x, top + PANEL * (1 - min(y, 1))

    numpy = row["warm"]["numpy"]
    parts = [label(left, top - 5, name, inks[0], size=12)]
    for times, text in ((1, "NumPy"), (row["kernels"] / numpy, "kernels")):
        ends = [place(LEAST[0], times), place(seconds, times)]
        parts += [_line(ends, inks[1], 1, 'stroke-dasharray="2 3"')]
        parts.append(label(left + wide, ends[1][1] - 3, text, inks[1], anchor="end", size=10))
    for cache, colour in zip(CACHES, colours, strict=True):
        curve = row[cache]["curve"]
        for part, more in ((2, 'opacity="0.3"'), (1, "")):
            parts.append(_line([place(p[0], p[part] / numpy) for p in curve], colour, 1.6, more))
    for power in range(-3, int(log10(seconds)) + 1):
        x, y = place(10.0**power, least)
        parts.append(label(x, y + 12, f"{10.0**power:g} s", inks[1], anchor="middle", size=9))
    return parts


def _ends(row):
    """The ends of the axes: most seconds, least times NumPy's time."""
    ends = [row[cache]["curve"][-1][0] for cache in CACHES]
    return max(ends), min(LEAST[1], row["kernels"] / row["warm"]["numpy"] / 2)


def _line(points, colour, width, more=""):
    text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return (
        f'<polyline points="{text}" fill="none" stroke="{colour}" stroke-width="{width}" {more}/>'
    )
