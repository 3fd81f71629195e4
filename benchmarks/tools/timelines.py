"""The record of `tiers`: its limits, and the table and the sentence of the READMEs."""

import json
import textwrap
from math import inf
from typing import NamedTuple

from .lines import aligned
from .machines import last
from .repository import ROOT

TIERS = ROOT / "benchmarks" / "measured" / "tiers"
PEAK, OTHERS = 0.06, 0.01  # seconds beside NumPy's time of one call, and of all but five
FAST = 1.3  # times the kernels' time is as fast as they are, within the noise


class Limits(NamedTuple):
    """How long a call may take, in NumPy's times, and after how many seconds kernels do it."""

    times: float
    settled: float


CACHES = {"warm": Limits(1.5, 0.3), "empty": Limits(2.0, 5.0)}


def settled(curve, kernels):
    """After how many seconds of work calls are, and stay, as fast as kernels."""
    late = [k for k, (_, median) in enumerate(curve) if median > FAST * kernels]
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


def recorded():
    """The last record."""
    return json.loads(last(TIERS))


def table(record):
    """The lines of a README."""
    lines = []
    for name, row in record["rows"].items():
        for cache in CACHES:
            found = values(row, cache)
            lines.append((name, cache, *(_cell(*one) for one in found.values())))
    lines.insert(0, ("seconds", "cache", *found))
    where = f"{record['commit'][:8]} on {record['cpu']}, {record['threads']} threads"
    note = f"{len(unmet(record))} values are above their limits, marked with !"
    return "\n".join(["```text", *aligned(lines), "", f"{note}; {where}", "```"])


SHOWN = "transposed-4096x4096/bfloat16"  # the row that the README tells of


def sentence(record):
    """What first calls take, in words."""
    warm, empty = (values(record["rows"][SHOWN], cache) for cache in CACHES)
    numpy, kernels = (warm[name][0] for name in ("NumPy", "kernels"))

    def said(found):
        longest, after = (f"{found[name][0]:.2g} s" for name in ("longest", "as kernels after"))
        return f"takes {longest}, and kernels do the work after {after}"

    text = (
        "First calls do not wait for a compiler: NumPy does the work until kernels are ready. "
        f"Transposing 4096 x 4096 bfloat16 takes NumPy {numpy:.2g} s and a kernel {kernels:.2g} s. "
        f"In a new process that finds its kernels on disk the slowest call {said(warm)}. The first "
        f"process of all compiles them: its slowest call {said(empty)}."
    )
    return textwrap.fill(text, 100, break_on_hyphens=False)


def _cell(value, limit):
    return f"{value:.2g}{'!' if limit is not None and value > limit else ''}"
