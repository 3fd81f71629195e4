"""Record what `shapejit bench` measures at this commit: the figures of the READMEs.

All suites are of one commit and one machine. An entry in benchmarks/measured is named by its day
and machine; `readme` writes the last one. Options that are not of this command go to
`shapejit bench`, such as --peer.
"""

import json
import os
import subprocess
import sys

from .exits import ending, parser_of
from .machines import QUIET, entry
from .repository import ROOT, RecordError, git

FIGURES = ROOT / "benchmarks" / "measured"


def recorded(folder=None):
    """The last entry."""
    paths = sorted((folder or FIGURES).glob("*.json"))
    if not paths:
        raise RecordError("no figures are recorded: python -m benchmarks.tools.figures")
    return json.loads(paths[-1].read_text())


def measured(options):
    """What `shapejit bench` of all suites prints."""
    command = [sys.executable, "-m", "shapejit", "bench", "--json", *options]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise RecordError(f"{' '.join(command[1:])}: exit code {done.returncode}")
    return json.loads(done.stdout)


def text(found):
    """JSON with a line a row, so that a difference can be read."""
    rows = ",\n".join(json.dumps(_short(row)) for row in found["rows"])
    rest = {key: value for key, value in found.items() if key not in ("rows", "summary")}
    return json.dumps(rest)[:-1] + ',\n"rows": [\n' + rows + "\n]}\n"


def _short(row):
    seconds = {way: float(f"{s:.4g}") for way, s in row["seconds"].items()}
    return {"suite": row["suite"], "name": row["name"], "seconds": seconds}


@ending
def main(argv=None):
    """0 recorded, 2 bad arguments, a busy machine or a measurement that failed."""
    parser = parser_of(__file__, __doc__)
    parser.add_argument("--suite", action="append", metavar="NAME", help="all if none")
    parser.add_argument("--busy", action="store_true", help="even if others have the cores")
    parser.add_argument("--machine", metavar="NAME", help="if not by its processor and cores")
    args, options = parser.parse_known_args(argv)
    if git("status", "--porcelain", "--", "shapejit"):
        raise RecordError("shapejit/ has changes that are not committed")
    if os.getloadavg()[0] > QUIET and not args.busy:
        raise RecordError(f"load average {os.getloadavg()[0]:.1f}: other programs have the cores")
    options += [word for suite in args.suite or ["all"] for word in ("--suite", suite)]
    found = {"commits": [git("rev-parse", "HEAD")], **measured(options)}
    path = entry(FIGURES, ".json", args.machine)
    path.write_text(text(found))
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
