"""Instructions of the main loops of kernels for processors that cannot be timed here.

Copies of elements of 1 to 16 bytes, packs and casts are compiled for x86-64-v3 (AVX2), x86-64-v4
(AVX-512), Neoverse V1 (Graviton 3) and Apple's M2; of each the innermost loop that stores most is
counted, per 16 bytes stored: an element of complex128, 16 of uint8. Vectors of x86-64-v3 are twice
as wide as NEON's. `--record` keeps the figures, of which README.md has a table by
`benchmarks.tools.readme`. Exit code 1: for an ARM processor a kernel has more than 2.5 times the
instructions of x86-64-v3, and no line of `WHY` says why; 2: nothing could be compiled.
"""

import json
import re
import sys
from statistics import geometric_mean

from ..suite.machine_code import emitted
from .exits import SAME, WORSE, MeasureError, ending, parser_of
from .repository import ROOT, git

RECORD = ROOT / "benchmarks" / "processors.json"
ISAS = ("x86-64-v3", "x86-64-v4", "neoverse-v1", "apple-m2")
BASE, ARM = "x86-64-v3", ("neoverse-v1", "apple-m2")
MOST = 2.5  # times the instructions of x86-64-v3
# Elements of 1, 2, 4, 8 and 16 bytes; all casts; packs.
CASES = (
    "^ttc(-dtypes)?/ttc-(01|07|16)/|^small/(16x16|64x64)/|^casts/"
    "|^packed/(transposed-16384x|pack/|unpack/)"
)
KERNELS = re.compile(
    r"copies\.run|tiles\.tiles|bit_tiles|codes\.(un)?pack|small\.blocks|shapejit_convert"
)
# Of copies, the last tag is the widest vector of the processor, in other words: how it is done.
HOW = re.compile(r"(tiles\(\w+), \w+\)")
# By the beginning of a kernel's name: why it has more.
WHY: dict[str, str] = {}


def counted(folder=ROOT):
    """{kernel: {processor: instructions per 16 bytes that its main loop stores}}."""
    figures = {}
    found = emitted(ISAS, patterns=[CASES], folder=str(folder), everything=True)
    for processor in ISAS:
        if not found[processor]["kernels"]:
            raise MeasureError(f"{processor}: {found[processor]['failed']}")
        for name, row in found[processor]["kernels"].items():
            if KERNELS.match(name) and row["loop bytes"]:
                each = round(16 * row["loop instructions"] / row["loop bytes"], 2)
                figures.setdefault(HOW.sub(r"\1)", name), {})[processor] = each
    return {name: row for name, row in sorted(figures.items()) if row.keys() == {*ISAS}}


def unexplained(figures):
    """The kernels that have too many instructions, without a line that says why."""
    return [
        name
        for name, row in figures.items()
        if max(row[processor] for processor in ARM) > MOST * row[BASE]
        and not name.startswith(tuple(WHY))
    ]


def table():
    """The recorded figures by what kernels do, as lines of a README."""
    found = json.loads(RECORD.read_text())
    kinds = {}
    for name, row in found["kernels"].items():
        kinds.setdefault(_kind(name), []).append(row)
    lines = [
        f"Instructions per 16 bytes stored, at {found['commit'][:8]} (geometric means; worst: the"
        " kernel that has",
        f"the most times the instructions of {BASE}, whose vectors are twice as wide as NEON's):",
        "",
        f"| kernel | kernels | {' | '.join(ISAS)} | worst |",
        f"|---|{'---:|' * (len(ISAS) + 2)}",
    ]
    for kind, rows in kinds.items():
        means = (f"{geometric_mean(row[isa] for row in rows):.1f}" for isa in ISAS)
        worst = max(row[isa] / row[BASE] for row in rows for isa in ARM)
        lines.append(f"| {kind} | {len(rows)} | {' | '.join(means)} | {worst:.1f}x |")
    return "\n".join(lines)


def _kind(name):
    """What a kernel does, in words: of copies their names, of conversions from what to what."""
    if not name.startswith("shapejit_convert"):
        return name
    kinds = re.findall(r"\b(?:u?int|float)(?= \d)", name)
    done = "dequantize" if "dequantize" in name else "cast"
    return f"{done}: {kinds[0].removeprefix('u')}s to {kinds[1].removeprefix('u')}s"


@ending
def main(argv=None):
    """0 as expected, 1 a kernel has too many instructions, 2 nothing could be compiled."""
    parser = parser_of(__file__, __doc__)
    parser.add_argument("--record", action="store_true", help="keep the figures")
    args = parser.parse_args(argv)
    figures = counted()
    print(f"{'instructions per 16 bytes':60}", *(f"{processor:>12}" for processor in ISAS))
    for name, row in figures.items():
        print(f"{name[:60]:60}", *(f"{row[processor]:12}" for processor in ISAS))
    if args.record:
        record = {"commit": git("rev-parse", "HEAD"), "kernels": figures}
        RECORD.write_text(json.dumps(record, indent=1) + "\n")
    for name in unexplained(figures):
        print(f"TOO MANY INSTRUCTIONS: {name}")
    return WORSE if unexplained(figures) else SAME


if __name__ == "__main__":
    sys.exit(main())
