"""Record what `shapejit bench` measures at this commit: the figures of the README.

Each suite is recorded by itself and kept until it is recorded again. Options
that are not of this command go to `shapejit bench`, such as --peer.
"""

import argparse
import json
import subprocess
import sys

from .exits import ending
from .record import machine
from .repository import ROOT, RecordError, git

FIGURES = ROOT / "benchmarks" / "measured"
# What of a row is read again; shapes and axes stand in the tables.
KEPT = ("suite", "name", "dtype", "nbytes", "counted", "disturbed", "seconds", "goals")


def measured(suite, options):
    """What `shapejit bench` of one suite prints, shortened."""
    command = [sys.executable, "-m", "shapejit", "bench", "--suite", suite, "--json", *options]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise RecordError(f"{' '.join(command[1:])}: exit code {done.returncode}")
    found = json.loads(done.stdout)
    found["commit"] = git("rev-parse", "HEAD")
    found["rows"] = [_row(row) for row in found["rows"]]
    return found


def _row(row):
    kept = {key: row[key] for key in KEPT if key in row} if "seconds" in row else dict(row)
    if isinstance(kept.get("seconds"), dict):
        kept["seconds"] = {way: float(f"{s:.4g}") for way, s in kept["seconds"].items()}
    return kept


def recorded(name=None):
    """What is recorded of a machine; unless named, of the last one that has the most suites."""
    paths = [FIGURES / f"{name}.json"] if name else list(FIGURES.glob("*.json"))
    found = [json.loads(path.read_text()) for path in paths if path.is_file()]
    if not found:
        raise RecordError(f"no figures are recorded of {name or 'any machine'}")
    return max(found, key=lambda figures: (len(figures["suites"]), figures["recorded"]))


@ending
def main(argv=None):
    """0 recorded, 2 bad arguments or a measurement that failed."""
    from shapejit.bench.suites import SUITES

    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.figures",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--suite", action="append", choices=list(SUITES), help="all if none")
    parser.add_argument("--machine", metavar="NAME", help="if not by its processor and cores")
    args, options = parser.parse_known_args(argv)
    if git("status", "--porcelain", "--", "shapejit"):
        raise RecordError("shapejit/ has changes that are not committed")
    facts = machine(args.machine)
    path = FIGURES / f"{facts['machine']}.json"
    found = json.loads(path.read_text()) if path.is_file() else {"suites": {}}
    for suite in args.suite or SUITES:
        found["suites"][suite] = measured(suite, options)
        found["machine"] = facts
        found["recorded"] = int(git("log", "-1", "--format=%ct"))
        path.parent.mkdir(exist_ok=True)
        path.write_text(_text(found))
    return 0


def _text(found):
    """JSON with a line a row, so that a difference can be read."""
    suites = {
        suite: {
            **{key: value for key, value in part.items() if key not in ("rows", "summary")},
            "rows": ["@" + json.dumps(row) for row in part["rows"]],
            "summary": ["@" + json.dumps(row) for row in part["summary"]],
        }
        for suite, part in found["suites"].items()
    }
    lines = json.dumps({**found, "suites": suites}, indent=1).splitlines()
    return "\n".join(_unquoted(line) for line in lines) + "\n"


def _unquoted(line):
    text = line.strip()
    if not text.startswith('"@'):
        return line
    comma = "," if text.endswith(",") else ""
    return line[: len(line) - len(text)] + json.loads(text.removesuffix(","))[1:] + comma


if __name__ == "__main__":
    sys.exit(main())
