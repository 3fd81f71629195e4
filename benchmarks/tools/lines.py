"""Lines of NumPy, their equivalents in shapejit, and the recorded case that measures both.

The table at the top of the README and the picture above it are made of these rows.
"""

from typing import NamedTuple


class Line(NamedTuple):
    """One row: what it does, both lines, and the recorded case (suite and name).

    `bar` is its name in the picture, where it is shown.
    """

    what: str
    theirs: str
    ours: str
    suite: str
    name: str
    bar: str = ""


LINES = (
    Line("a bfloat16 weight transposed",
         "np.ascontiguousarray(w.T)",
         "sj.ascontiguous(w.T)",
         "workloads", "weight-transposed-4096x14336-10/bfloat16", "transpose a bfloat16 weight"),
    Line("images, channels last",
         "np.ascontiguousarray(x.transpose(0, 2, 3, 1))",
         "sj.ascontiguous(sj.permute_dims(x, (0, 2, 3, 1)))",
         "workloads", "nchw-to-nhwc-32x3x224x224-0231/uint8", "images, channels last"),
    Line("attention keys transposed",
         "np.ascontiguousarray(k.swapaxes(2, 3))",
         "sj.ascontiguous(sj.matrix_transpose(k))",
         "workloads", "keys-transposed-8x32x2048x128-0132/bfloat16", "attention keys"),
    Line("attention heads merged",
         "x.transpose(0, 2, 1, 3).reshape(b, s, -1)",
         "sj.reshape(sj.permute_dims(x, (0, 2, 1, 3)), (b, s, -1))",
         "workloads", "heads-merge-8x32x2048x128-0213/bfloat16"),
    Line("the colours of images side by side",
         "np.stack([red, green, blue], axis=-1)",
         "sj.stack([red, green, blue], axis=-1)",
         "joins", "stack-3x4096x4096-2/uint8"),
    Line("uint8 images scaled, channels first",
         "np.ascontiguousarray((x * scale).transpose(0, 3, 1, 2))",
         "sj.dequantize(sj.permute_dims(x, (0, 3, 1, 2)), scale)",
         "casts", "images/uint8-float32", "scale images, channels first"),
    Line("an FP8 weight with block scales",
         "(w.astype(np.float32) * scales).astype(bf16)",
         'sj.schemes["fp8:block"].decode(parts)',
         "schemes", "fp8:block", "decode FP8 blocks"),
    Line("an MXFP4 weight, as gpt-oss has it",
         "table[codes] * 2.0**exponents",
         'sj.schemes["mxfp4:gpt-oss"].decode(parts)',
         "schemes", "mxfp4:gpt-oss"),
    Line("packed int4 transposed",
         "unpack, .T, pack",
         "t.T.ascontiguous()",
         "packed", "transposed-16384x8192/int4", "transpose packed int4"),
    Line("AWQ codes as GPTQ has them",
         "unpack, reorder, pack",
         'sj.repack(q, source="awq:gemm", target="gptq:qweight", …)',
         "repack", "awq:gemm-to-gptq:qweight", "AWQ to GPTQ"),
    Line("10000 small tensors, 4 KiB each",
         "for x, y in zip(xs, ys): np.copyto(y, x.mT)",
         "program.map(xs, out=ys)",
         "batch", "map-10000x4KiB"),
)  # fmt: skip


def seconds(figures, line):
    """What is recorded of a line's case: the seconds of each way; None where it is not."""
    for row in figures["rows"]:
        if (row["suite"], row["name"]) == (line.suite, line.name):
            return row["seconds"]
    return None


def numpys(taken):
    """What is held for NumPy's way, whatever it is called there; None where there is none."""
    return next((taken[way] for way in ("numpy", "ml_dtypes", "loop") if way in taken), None)


def table(figures):
    """The rows that are recorded, as Markdown; "-" is where torch was not measured."""
    rows = ["|  | NumPy | shapejit | times as fast as NumPy | as torch |", f"|{'---|' * 5}"]
    for line in LINES:
        if taken := seconds(figures, line):
            own, torch = taken["shapejit"], taken.get("torch")
            cells = [line.what, _code(line.theirs), _code(line.ours), _times(numpys(taken) / own)]
            rows.append(f"| {' | '.join([*cells, _times(torch / own) if torch else '-'])} |")
    return "\n".join(rows)


def bars(figures):
    """The bars of the README's picture: 1 is the speed of memcpy."""
    rows = []
    for line in LINES:
        taken = seconds(figures, line) if line.bar else None
        if taken and "memcpy" in taken:
            ours, theirs = (taken["memcpy"] / s for s in (taken["shapejit"], numpys(taken)))
            rows.append((line.bar, ours, theirs, f"{ours / theirs:.0f}x"))
    return rows


def aligned(made):
    """Rows of cells as lines: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*made, strict=True)]
    for first, *others in made:
        cells = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        yield "  ".join((first.ljust(widths[0]), *cells)).rstrip()


def _code(text):
    """A line of code; other words as they are."""
    return f"`{text}`" if "(" in text or "[" in text else text


def _times(ratio):
    return f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.1f}"
