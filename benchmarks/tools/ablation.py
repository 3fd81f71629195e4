"""What a strategy, a specialisation or a threshold earns: the cases with and without it.

    python -m benchmarks.tools.ablation planning.thresholds.NO_PLAN_MAX_BYTES=0 --bench small

Two processes of the working tree and one in which names of its modules have other values take turns
at every case, as `compare` does with commits. Geometric means of the suites are printed, and the
cases that differ by more than the noise. Exit code 1: a suite loses 3 % or a case 10 %.
"""

import ast
import sys

from .compare import WORSE, means, tell, text, timed
from .exits import SAME, WORSE as LOST, MeasureError, ending, parser_of
from .repository import ROOT
from .trials import Place, chosen

LEAST = 0.03  # of a suite's geometric mean


def given(word):
    """MODULE.NAME=VALUE, a Python literal."""
    name, found, value = word.partition("=")
    try:
        if not found or "." not in name:
            raise ValueError
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        raise MeasureError(f"{word}: wants MODULE.NAME=VALUE, the value a literal") from None


@ending
def main(argv=None):
    """0 nothing is lost, 1 something is, 2 bad arguments or nothing to measure."""
    parser = parser_of(__file__, __doc__)
    parser.add_argument("values", nargs="+", metavar="MODULE.NAME=VALUE")
    parser.add_argument("--bench", action="append", default=[], metavar="REGEX")
    parser.add_argument("--all", action="store_true", help="all cases, not only those recorded")
    args = parser.parse_args(argv)
    here = Place(str(ROOT))
    places = {"first": here, "again": here}
    places["second"] = here._replace(ablated=dict(map(given, args.values)))
    found = timed(chosen(args.bench, args.all), places, tell, WORSE)
    if not found.verdicts:
        raise MeasureError("nothing could be measured")
    print(text(found))
    lost = any(factor > 1 + LEAST for factor, _ in means(found.verdicts).values())
    return LOST if lost or found.slower else SAME


if __name__ == "__main__":
    sys.exit(main())
