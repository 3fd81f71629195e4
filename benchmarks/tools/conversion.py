"""FP8 checkpoint to bfloat16: time and peak memory of `shapejit convert`, and of torch.

The checkpoint is one file with the shapes of DeepSeek-V3's. torch does it by hand: safetensors
loads the file, each weight is multiplied by the scales of its blocks in float32, and safetensors
saves the result. Both run in new, interleaved processes, with kernels on disk, and their results
are compared. --record stores the figures, from which `readme` makes the README's table.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from importlib.metadata import version
from math import prod
from pathlib import Path
from statistics import median

from .exits import SAME, WORSE, MeasureError, ending, parser_of
from .machines import described, keep, last, must_be_quiet
from .repository import ROOT

SHAPE = 2048, 7168  # of a weight
CONVERSIONS = ROOT / "benchmarks" / "measured" / "conversion"
BY_TORCH = """
import sys
import torch
from safetensors.torch import load_file, save_file

source, target = sys.argv[1:]
tensors = load_file(f"{source}/model.safetensors")
decoded = {}
for name, weight in tensors.items():
    scale = tensors.get(f"{name}_scale_inv")
    if scale is not None:
        blocks = weight.float().view(len(scale), 128, -1, 128)
        blocks *= scale[:, None, :, None]
        decoded[name] = blocks.view(weight.shape).to(torch.bfloat16)
    elif not name.endswith("_scale_inv"):
        decoded[name] = weight
save_file(decoded, f"{target}/model.safetensors")
"""
WAYS = {
    "shapejit": ("-m", "shapejit", "convert", "--to", "bf16"),
    "torch": ("-c", BY_TORCH),
}


def taken(way, source, target):
    """The seconds and the peak of resident bytes of a process that converts a folder."""
    command = [sys.executable, *WAYS[way], str(source), str(target)]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise MeasureError(f"{way} ended with {process.returncode}")
    return time.perf_counter() - start, 1024 * used.ru_maxrss


def measured(size, rounds):
    """The record: medians of rounds after one that does not count."""
    found = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory(prefix="shapejit-") as folder:
        source = Path(folder, "fp8")
        layers = max(1, round(size / prod(SHAPE)))
        checkpoint = import_module("shapejit.bench.demo").checkpoint(str(source), layers, SHAPE)
        nbytes = sum(tensor.nbytes for tensor in checkpoint.values())
        targets = {way: Path(folder, way) for way in WAYS}
        for _ in range(rounds + 1):
            for way, target in targets.items():
                target.mkdir(exist_ok=True)
                (target / "model.safetensors").unlink(missing_ok=True)
                os.sync()
                found[way].append(taken(way, source, target))
        same = _same(*targets.values())
    ways = {way: [*map(median, zip(*runs[1:], strict=True))] for way, runs in found.items()}
    return {"nbytes": nbytes, "same": same, "ways": ways}


def _same(first, second):
    """Whether two folders hold the same tensors, bit for bit."""
    found = import_module("shapejit").files.differences
    load = import_module("shapejit").load_file
    return not [*found(load(str(first)), load(str(second)))]


def table(record=None):
    """The lines of a README, of the last record if of no other."""
    record = record or json.loads(last(CONVERSIONS))
    (ours, own), (theirs, other) = (record["ways"][way] for way in WAYS)
    torch = f"torch {record['torch']} and safetensors, file by file"
    convert = "`shapejit convert model-fp8 model-bf16 --to bf16`"
    rows = [
        f"| {record['nbytes'] / 1e9:.1f} GB of FP8 weights to bfloat16 | time | memory |",
        "|---|---|---|",
        f"| {convert} | {ours:.1f} s | {own / 1e9:.2f} GB |",
        f"| {torch} | {theirs:.1f} s | {other / 1e9:.2f} GB |",
    ]
    return "\n".join(rows)


@ending
def main(argv=None):
    """0 measured, 1 the results differ, 2 bad arguments or something that could not be measured."""
    parser = parser_of(__file__, __doc__)
    parser.add_argument("--size", default="2GiB", help="of the checkpoint; 2GiB if not given")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--busy", action="store_true", help="even if others have the cores")
    args = parser.parse_args(argv)
    must_be_quiet(args.busy)
    size = import_module("shapejit.conversion").nbytes_of(args.size)
    record = described() | {"torch": version("torch"), **measured(size, args.rounds)}
    print(table(record), f"the results are {'' if record['same'] else 'NOT '}the same", sep="\n")
    if args.record:
        keep(CONVERSIONS, json.dumps(record, indent=1) + "\n")
    return SAME if record["same"] else WORSE


if __name__ == "__main__":
    sys.exit(main())
