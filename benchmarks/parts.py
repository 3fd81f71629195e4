"""What items cost: a folder converted by executors, or in parts, beside one run of one process.

All ways take turns, in a folder in memory; pools are warm. A commit reads all bytes once more.
The folder has several files, as released checkpoints have: one run computes the checksums of
all but the last one, with which an interrupted conversion is resumed, too.
"""

import argparse
import os
import shutil
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context

from .files import folder


def measured(home, kind, sizes, rounds):
    """Seconds of each way, round by round."""
    import shapejit as sj
    from shapejit.bench import checkpoints

    size, item, shard = sizes
    source, target = os.path.join(home, "in"), os.path.join(home, "out")
    checkpoints.make(kind, source, size)
    rules = [] if kind == "bfloat16" else [("to", "bf16")]
    found = {}

    def run(way, **options):
        start = time.perf_counter()
        sj.files.convert(source, target, rules, max_shard_size=shard, proof=False, **options)
        found.setdefault(way, []).append(time.perf_counter() - start)

    count = os.cpu_count()
    with ExitStack() as stack:
        pools = {
            "1 thread": ThreadPoolExecutor(1),
            f"{count} threads": ThreadPoolExecutor(count),
            f"{count} processes": ProcessPoolExecutor(count, get_context("spawn")),
        }
        for pool in pools.values():
            stack.enter_context(pool)
        for _ in range(rounds + 1):  # the first one loads kernels
            shutil.rmtree(target, ignore_errors=True)
            run("one run")
            for way, pool in pools.items():
                shutil.rmtree(target)
                run(way, executor=pool, item_size=item)
            shutil.rmtree(target)
            run("part 1/1", part=(1, 1), item_size=item)
            run("commit 1", commit=1, item_size=item)
    return {way: seconds[1:] for way, seconds in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", default="deepseek-v3", help="see shapejit.bench.checkpoints")
    parser.add_argument("--size", default="1GiB", help="of the tensors of the source")
    parser.add_argument("--item-size", default="64MiB")
    parser.add_argument("--max-shard-size", default="256MiB")
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    from shapejit.conversion import nbytes_of

    with ExitStack() as stack:
        home = tempfile.mkdtemp(dir=folder(stack))
        sizes = [*map(nbytes_of, (args.size, args.item_size, args.max_shard_size))]
        found = measured(home, args.kind, sizes, args.rounds)
    for way, seconds in found.items():
        ratios = [s / one for s, one in zip(seconds, found["one run"], strict=True)]
        over = statistics.median(ratios) - 1
        print(f"{way:12} {statistics.median(seconds):7.3f} s  {100 * over:+6.1f} %")


if __name__ == "__main__":
    main()
