"""Record the measurements of `shapejit bench` at this commit: the figures of the READMEs.

All suites are of one commit and one machine. An entry in benchmarks/measured is named by its day
and machine; `readme` uses the last one. Options that this command lacks are passed to `shapejit
bench`, such as --peer.
"""

import io
import json
import sys
from contextlib import redirect_stdout
from importlib import import_module

from .exits import ending, parser_of
from .machines import keep, last, must_be_quiet
from .repository import ROOT, RecordError, git

FIGURES = ROOT / "benchmarks" / "measured"


def recorded():
    """The last entry."""
    return json.loads(last(FIGURES))


def measured(options):
    """What `shapejit bench` prints as JSON."""
    with redirect_stdout(io.StringIO()) as out:
        code = import_module("shapejit.__main__").main(["bench", "--json", *options])
    if code:
        raise RecordError(f"shapejit bench {' '.join(options)}: exit code {code}")
    return json.loads(out.getvalue())


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
    must_be_quiet(args.busy)
    options += [word for suite in args.suite or ["all"] for word in ("--suite", suite)]
    found = {"commits": [git("rev-parse", "HEAD")], **measured(options)}
    print(keep(FIGURES, text(found), args.machine))
    return 0


if __name__ == "__main__":
    sys.exit(main())
