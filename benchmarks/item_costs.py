"""What an item of a distributed conversion costs on this machine; `scaling` reads it.

    python -m benchmarks.item_costs

measures how long the local converter takes for files of several sizes on one core (in /dev/shm:
storage is a parameter of the model), and what dask's client and scheduler take per task with two
worker processes here, and writes both to benchmarks/costs/MACHINE.json. All are seconds of a core,
the least of several rounds: others may use the machine.
"""

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
import time

from .record import machine
from .repository import ROOT, git

COSTS = ROOT / "benchmarks" / "costs"
MIB = 1 << 20
SIZES = (1, 16, 64)  # MiB of a file that is read: float8 with a scale per 128 x 128 elements
ROUNDS = 9
TASKS = 2000

# One process per measurement: `shapejit bench` and the tests have threads and caches of their own.
CONVERT = """
import json, os, sys, time
import numpy as np
import shapejit as sj
folder, sizes, rounds = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
rng = np.random.default_rng(0)
for size in sizes:
    x = rng.normal(0, 1, (size * 256, 4096)).astype(np.float32)
    parts = sj.schemes["fp8:block"].encode(x)
    sj.save_file({f"w.{k}": v for k, v in parts.items()}, f"{folder}/{size}.safetensors")
seconds = {size: [] for size in sizes}
written = {}
for n in range(rounds + 1):
    for size in sizes:
        target = f"{folder}/out.safetensors"
        begin = time.process_time()
        sj.files.convert(f"{folder}/{size}.safetensors", target, [("to", "bf16")])
        if n:
            seconds[size].append(time.process_time() - begin)
        written[size] = os.path.getsize(target) / os.path.getsize(f"{folder}/{size}.safetensors")
        os.remove(target)
print(json.dumps([seconds, written]))
"""


def conversion(sizes=SIZES, rounds=ROUNDS):
    """Seconds that the local converter takes on one thread, per item and per byte read."""
    environment = {**os.environ, "NUMBA_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        command = [sys.executable, "-c", CONVERT, folder, json.dumps(sizes), str(rounds)]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    seconds, written = json.loads(done.stdout)
    best = {int(size) * MIB: min(found) for size, found in seconds.items()}
    small, large = min(best), max(best)
    per_byte = (best[large] - best[small]) / (large - small)
    return {
        "seconds_per_item": max(0.0, best[small] - per_byte * small),
        "seconds_per_byte": per_byte,
        "written_per_byte": written[str(large // MIB)],
        "measured": {f"{size // MIB} MiB": s for size, s in best.items()},
    }


def scheduling(tasks=TASKS, rounds=ROUNDS):
    """Seconds per task that dask's client and scheduler take, which share a process here."""
    from distributed import Client, LocalCluster

    settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    settings["silence_logs"] = logging.CRITICAL  # what workers say as they are closed
    best = float("inf")
    with LocalCluster(**settings) as cluster, Client(cluster) as client:
        for _ in range(rounds):
            begin = time.process_time()
            client.gather(client.map(abs, range(tasks), pure=False))
            best = min(best, (time.process_time() - begin) / tasks)
    return best


def main(argv=None):
    """0 measured and written."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.item_costs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--machine", metavar="NAME", help="if not by its processor and cores")
    args = parser.parse_args(argv)
    facts = machine(args.machine)
    found = {
        "machine": facts,
        "commit": git("rev-parse", "HEAD"),
        "recorded": time.strftime("%Y-%m-%d", time.gmtime()),
        "load_average": os.getloadavg()[0],
        **conversion(),
        "seconds_per_task": scheduling(),
    }
    COSTS.mkdir(exist_ok=True)
    path = COSTS / f"{facts['machine']}.json"
    path.write_text(json.dumps(found, indent=1) + "\n")
    print(path.read_text(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
