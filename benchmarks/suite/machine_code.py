"""Machine code of all kernels of the recorded cases: figures without a clock and without noise.

It is compiled for each instruction set on any machine. The seconds of compiling are recorded, too,
but not compared.
"""

import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

from .emission import COLUMNS, __file__ as EMISSION

ISAS = ("x86-64-v3", "x86-64-v4", "neoverse-v1")  # that are recorded with every commit

TIMEOUT = 900  # seconds for one instruction set


def emitted(isas=None, patterns=(), folder=""):
    """{instruction set: what `emission` says} of the package that this Python, or a folder, has.

    Of the cases that the history has and all `patterns` match.
    """
    names = list(isas or ISAS)
    with ThreadPoolExecutor(max_workers=len(names)) as pool:  # or a core waits for the last one
        made = pool.map(lambda isa: _process(isa, patterns, folder), names)
        return dict(zip(names, made, strict=True))


def _process(isa, patterns, folder):
    with tempfile.TemporaryDirectory(prefix="shapejit-emission-") as cache:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("NUMBA_", "PYTHONPATH"))}
        kept |= {"PYTHONHASHSEED": "0", "NUMBA_CACHE_DIR": cache}
        if folder:
            kept["PYTHONPATH"] = folder
        command = [sys.executable, EMISSION, isa, *patterns]
        options = {"capture_output": True, "text": True, "timeout": TIMEOUT, "check": False}
        try:
            done = subprocess.run(command, cwd=cache, env=kept, **options)
        except subprocess.TimeoutExpired:
            return {"kernels": {}, "failed": {isa: f"no end within {TIMEOUT} s"}}
    if done.returncode:
        return {"kernels": {}, "failed": {isa: done.stderr.strip()[-300:]}}
    return json.loads(done.stdout.splitlines()[-1])


def totals(found):
    """The sums of an instruction set's figures: {name: number}."""
    rows = found["kernels"].values()
    made = {name: sum(row.get(name, 0) for row in rows) for name in COLUMNS}
    return {"kernels": len(rows), **made}


FIGURES = "kernels", *COLUMNS


class MachineCode:
    """All kernels of the recorded cases"""

    params = list(ISAS)
    param_names = ("isa",)
    timeout = TIMEOUT
    version = "2"

    def setup_cache(self):
        return {isa: totals(found) for isa, found in emitted().items()}

    setup_cache.timeout = 2 * TIMEOUT

    def setup(self, found, isa):
        if not found[isa]["kernels"]:
            raise NotImplementedError(isa)


def _figure(name):
    def track(self, found, isa):
        return found[isa][name]

    track.unit = name
    return track


for _name in FIGURES:
    setattr(MachineCode, f"track_{_name.replace(' ', '_')}", _figure(_name))
