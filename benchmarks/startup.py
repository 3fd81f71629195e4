"""What a new process waits for: the import, a first view, a first copy."""

import os
import subprocess
import sys

import numpy as np

from .ratios import OURS, Ratios, installed

# Small work of new processes is NumPy's, as it is for everybody: see `ratios`.
PATIENT = {name: value for name, value in os.environ.items() if name != "SHAPEJIT_PATIENCE"}

STATEMENTS = {
    "import": "import numpy, shapejit",
    "first-view": "import numpy, shapejit; shapejit.reshape(numpy.zeros((2, 3)), (3, 2))",
    "first-copy": "import numpy, shapejit; shapejit.ascontiguous(numpy.ones((1024, 1024)).T)",
    "first-pack": "import numpy, shapejit; shapejit.pack(numpy.ones((4, 4), numpy.uint8), 'int4')",
}


def process(statement):
    """A function that runs it in a new Python."""
    command = [sys.executable, "-c", statement]
    return lambda: subprocess.run(command, env=PATIENT, check=True)


class Startup(Ratios):
    """A new process, beside one that imports NumPy (numba, for the copy)"""

    params = list(STATEMENTS)
    param_names = ("what",)
    baseline = "import"
    compared = ()  # processes are slow to start, again and again
    turns = 3
    version = "1"

    def setup_cache(self):
        return self.measured()

    def ways(self, case):
        installed("reshape", "ascontiguous", "pack")
        base = "import numba" if case == "first-copy" else "import numpy"
        return {OURS: process(STATEMENTS[case]), "import": process(base)}

    def track_over_import(self, found, case):
        return self.over(found, case, "import")

    track_over_import.unit = "time / the import's"


class Seconds:
    """A new process, in seconds"""

    params = list(STATEMENTS)
    param_names = ("what",)
    version = "1"
    rounds = 1
    repeat = (3, 5, 3.0)
    warmup_time = 0
    number = 1

    def setup(self, what):
        installed("reshape", "ascontiguous", "pack")

    def timeraw_process(self, what):
        return STATEMENTS[what]


class Warm(Ratios):
    """Kernels that are compiled already, warmed once more, beside doing what they are for"""

    params = ("programs",)
    baseline = "plan"
    version = "1"

    def setup_cache(self):
        return self.measured()

    def ways(self, case):
        sj = installed("warmup", "plan")
        program = sj.plan((4, 64, 8), "float32", lambda t: t.permute_dims((1, 0, 2)))
        tensors = [np.zeros((4, 64, 8), np.float32)] * 100
        return {OURS: lambda: sj.warmup([case]), "plan": lambda: program.map(tensors)}

    def track_over_plan(self, found, case):
        return self.over(found, case, "plan")

    track_over_plan.unit = "time / plan's"
