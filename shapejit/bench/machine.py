"""What was measured on."""

from __future__ import annotations

import os
import platform
import re
import sys
from pathlib import Path
from typing import Any

# What numba is told to compile for processors of lesser vectors: their name and features.
VECTORS = {"sse2": ("generic", ""), "avx2": ("haswell", "+avx2,+bmi,+bmi2")}


def processor() -> str:
    """The processor's name, as Linux or Python knows it."""
    try:
        found = re.search(r"^model name\s*: *(.+)$", Path("/proc/cpuinfo").read_text(), re.M)
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


def use_vectors(name: str | None) -> None:
    """Compile for the vectors of that name from here on; None: all that the processor has."""
    if name is None:
        return
    if platform.machine().lower() not in ("x86_64", "amd64") or "numba" in sys.modules:
        raise ValueError(f"--vectors {name}: only on x86, and before numba is imported")
    os.environ["NUMBA_CPU_NAME"], os.environ["NUMBA_CPU_FEATURES"] = VECTORS[name]


def thread_count() -> int:
    """How many threads copies have."""
    import numba

    return int(numba.get_num_threads())


def machine() -> dict[str, Any]:
    """Processor, cores, threads and versions."""
    import numba
    import numpy

    from .. import __version__
    from ..compilation import load

    return {
        "cpu": processor(),
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        "threads": thread_count(),
        "vector_bytes": load("memory").VECTOR,
        "load_average": os.getloadavg()[0],
        "python": platform.python_version(),
        "numba": numba.__version__,
        "numpy": numpy.__version__,
        "shapejit": __version__,
    }
