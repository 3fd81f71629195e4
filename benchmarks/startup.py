"""What a new process waits for: the import, a first view, a first copy."""

import subprocess
import sys

from .ratios import OURS, Ratios, installed

STATEMENTS = {
    "import": "import numpy, shapejit",
    "first-view": "import numpy, shapejit; shapejit.reshape(numpy.zeros((2, 3)), (3, 2))",
    "first-copy": "import numpy, shapejit; shapejit.ascontiguous(numpy.ones((1024, 1024)).T)",
}


def process(statement):
    """A function that runs it in a new Python."""
    command = [sys.executable, "-c", statement]
    return lambda: subprocess.run(command, check=True)


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
        installed("reshape", "ascontiguous")
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
        installed("reshape", "ascontiguous")

    def timeraw_process(self, what):
        return STATEMENTS[what]
