"""What was measured on."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Any


def processor() -> str:
    """The processor's name, as Linux or Python knows it."""
    try:
        found = re.search(r"^model name\s*: *(.+)$", Path("/proc/cpuinfo").read_text(), re.M)
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


def thread_count() -> int:
    """How many threads copies have."""
    import numba

    return int(numba.get_num_threads())


def machine() -> dict[str, Any]:
    """Processor, cores, threads and versions."""
    import numba
    import numpy

    from .. import __version__

    return {
        "cpu": processor(),
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        "threads": thread_count(),
        "load_average": os.getloadavg()[0],
        "python": platform.python_version(),
        "numba": numba.__version__,
        "numpy": numpy.__version__,
        "shapejit": __version__,
    }
