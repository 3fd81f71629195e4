"""The same copies compiled for processors of lesser vectors."""

import json
import subprocess
import sys

from . import ratios
from .ratios import OURS, Ratios, installed

SUITES = "ttc", "views", "packed", "casts"
CASES = ""  # a regular expression; tests take fewer


class Vectors(Ratios):
    """The worst case of some suites, with vectors of 16 bytes (SSE2) and of 32 (AVX2)"""

    params = ["sse2", "avx2"]
    baseline = "numpy"
    compared = ()  # kernels are compiled anew
    version = "1"
    timeout = 1200

    def setup_cache(self):
        try:
            installed("bench.machine.VECTORS")
        except NotImplementedError:  # n/a, where asv would have it that this failed
            return dict.fromkeys(self.params)
        return {case: self._measured(case) for case in self.params}

    def ways(self, case):
        """None: each is a process of its own."""
        raise NotImplementedError(case)

    def _measured(self, vectors):
        """Seconds of the case that is worst, ours and NumPy's; or what went wrong."""
        size = min(1, ratios.NBYTES / 2**28)
        options = [word for suite in SUITES for word in ("--suite", suite)]
        options += ["--vectors", vectors, "--quick", "--size", str(size), "--peer", "none"]
        command = [sys.executable, "-m", OURS, "bench", *options, "--case", CASES, "--json"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            return done.stderr[-500:]
        rows = [row["seconds"] for row in json.loads(done.stdout)["rows"]]
        return max((row for row in rows if "numpy" in row), key=lambda s: s[OURS] / s["numpy"])

    def track_over_numpy(self, found, case):
        return self.over(found, case, "numpy")

    track_over_numpy.unit = "time / NumPy's"
