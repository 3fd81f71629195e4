"""Write one HTML file with all that is recorded: it opens from disk, without a network.

Curves of every benchmark over the commits, the steps in them and what `confirm` says of
each, the latest figures against memcpy, NumPy and the peers, the slowest cases, and the
noise floor.
"""

import argparse
import sys
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from statistics import geometric_mean

from . import charts, machine_code, steps
from .exits import ending
from .figures import recorded
from .history import CONTROL, benchmarks, runs, subjects
from .readme import HEAD, rows
from .repository import RESULTS, ROOT, RecordError

OUTPUT = ROOT / ".asv" / "report.html"
TEMPLATE = Path(__file__).with_name("report.html")
SLOWEST = 15
SHOWN, SHOWN_CHANGES = 3, 40  # commits and changes of machine code


def titles():
    """What each class measures, in words: the first line of its docstring."""
    from .catalogue import classes

    return {name: (kind.__doc__ or name).splitlines()[0].rstrip(".") for name, kind in classes()}


def page(found, known, figures):
    """The whole file, from the runs, asv's facts of the benchmarks, and the figures."""
    names = titles()
    latest = _latest(found)
    ratios = [n for n in known if n.split(".track_")[-1].startswith("over_") and n != CONTROL]
    others = [n for n in known if n not in ratios and n != CONTROL]
    said = subjects()
    curves = "".join(
        _card(charts.ratios(n, known[n]["unit"], _title(n, names), found, said)) for n in ratios
    )
    absolute = "".join(
        _card(charts.values(n, known[n]["unit"], _title(n, names), found, said)) for n in others
    )
    parts = {
        "when": datetime.now(UTC).strftime("%Y-%m-%d"),
        "facts": _facts(latest, found, said),
        "summary": _summary(latest, ratios, names),
        "figures": _figures(figures),
        "steps": _steps(steps.found(found, ratios), steps.verdicts(), said),
        "code": _code(machine_code.history(), said),
        "slowest": _card(charts.slowest(latest, ratios, SLOWEST)),
        "noise": _card(charts.noise(found, said)),
        "curves": curves,
        "absolute": absolute,
        "plotly": charts.library(),
    }
    text = TEMPLATE.read_text()
    for name, part in parts.items():
        text = text.replace(f"<!--{name}-->", part)
    return text


def _latest(found):
    """The newest commit's run."""
    return found[-1]


def _title(name, names):
    kind, _, measure = name.rpartition(".")
    words = measure.split("_", 1)[-1].replace("_", " ").replace("numpy", "NumPy")
    said = names.get(kind, kind)
    return f"{said}: {words}" if words.startswith(("over ", "thousand ")) else said


def _card(chart):
    return f'<div class="card">{chart}</div>' if chart else ""


def _facts(latest, found, said):
    pairs = {
        "Latest commit": f"{latest.commit[:8]} {said.get(latest.commit, '')}",
        "Machine": latest.curve,
        "Commits recorded": str(len({run.commit for run in found})),
        "Noise floor there": f"{latest.noise - 1:.0%}, the largest difference of a call to itself",
    }
    return "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in pairs.items())


def _summary(latest, ratios, names):
    """Geometric mean and worst case of each ratio at the latest commit."""
    lines = []
    for name in ratios:
        values = latest.values.get(name)
        if values:
            worst = max(values, key=values.get)
            over = name.rsplit("over_", 1)[-1]
            mean = geometric_mean(values.values())
            cells = (
                names.get(name.rsplit(".", 1)[0], name),
                {"memcpy": "memcpy", "numpy": "NumPy"}.get(over, over),
                f"{len(values)}",
                f"{mean:.2f}",
                f"{values[worst]:.2f}",
                worst,
            )
            lines.append(cells)
    head = ("benchmark", "time over that of", "cases", "geometric mean", "worst", "worst case")
    return _table(head, lines, numbers={2, 3, 4})


def _steps(found, judged, said):
    """Where ratios move from one level to another, and whether that was measured again."""
    if not found:
        return "<p>None are found.</p>"
    lines = [
        (
            f"{step.benchmark.rsplit('.track_', 1)[0]}({step.case})",
            step.curve,
            f"{step.first[:8]} {said.get(step.first, '')}",
            f"{step.second[:8]} {said.get(step.second, '')}",
            f"{step.before:.3g}",
            f"{step.after:.3g}",
            f"{step.change:+.0%}",
            verdict_text(step, judged.get(step.key)),
        )
        for step in found
    ]
    head = ("case", "machine", "between", "and", "from", "to", "time", "compared in one run")
    note = steps.lopsided(found)
    return (f"<p>{escape(note)}</p>" if note else "") + _table(head, lines, numbers={4, 5, 6})


def verdict_text(step, one):
    """What was found of a step, and where, if not on the machine whose curve has it."""
    if one is None:
        return "not measured again"
    where = one.get("machine")
    if where is None or step.curve.startswith(f"{where}, "):
        return one["verdict"]
    return f"{one['verdict']}, on {where}"


def _code(history, said):
    """Totals of the machine code of the newest commits, and what the newest one changed."""
    if not history:
        return "<p>None is recorded: <code>python -m benchmarks.machine_code --record</code>.</p>"
    lines = [
        (commit[:8], said.get(commit, ""), isa, *(str(row[c]) for c in row))
        for commit, found in reversed(history[-SHOWN:])
        for isa, row in machine_code.totals(found).items()
    ]
    head = ("commit", "", "vectors", "signatures", *machine_code.COLUMNS)
    table = _table(head, lines, numbers=set(range(3, len(head))))
    if len(history) < 2:
        return table
    (earlier, first), (latest, second) = history[-2:]
    made = machine_code.changes(first, second)
    changed = [
        (c.isa, c.kernel, c.figure, *("none" if n is None else str(n) for n in (c.first, c.second)))
        for c in made[:SHOWN_CHANGES]
    ]
    title = f"{len(made)} figures differ between {earlier[:8]} and {latest[:8]}"
    spilling = sum(change.spilling for change in made)
    title += f", {spilling} of them are more spills in a tile kernel." if spilling else "."
    head = ("vectors", "kernel", "figure", "from", "to")
    return f"{table}<p>{title}</p>" + (_table(head, changed, numbers={3, 4}) if changed else "")


def _figures(figures):
    """The README's table, with the peers."""
    if figures is None:
        return "<p>None are recorded: <code>python -m benchmarks.figures</code>.</p>"
    head, *lines = rows(figures)
    return _table(head, lines, numbers=set(range(1, len(HEAD) + 9)))


def _table(head, lines, numbers):
    def row(cells, tag):
        return "".join(
            f"<{tag}{' class=n' if k in numbers else ''}>{escape(cell)}</{tag}>"
            for k, cell in enumerate(cells)
        )

    body = "".join(f"<tr>{row(cells, 'td')}</tr>" for cells in lines)
    return f"<table><thead><tr>{row(head, 'th')}</tr></thead><tbody>{body}</tbody></table>"


@ending
def main(argv=None):
    """0 written, 2 where nothing is recorded."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.report",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("output", nargs="?", type=Path, default=OUTPUT, metavar="FILE")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER")
    args = parser.parse_args(argv)
    known, found = benchmarks(args.results), runs(args.results)
    if not found:
        raise RecordError(f"nothing is recorded in {args.results}")
    try:
        figures = recorded()
    except RecordError:
        figures = None
    text = page(found, known, figures)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(text)
    print(args.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
