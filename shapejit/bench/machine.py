"""The machine that a measurement was made on: its processor, caches and versions."""

from __future__ import annotations

import os
import platform
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from ..runtime import system
from .memcpy import thread_count

# The settings of numba that compile for processors of lesser vectors: their name and features.
VECTORS = {"sse2": ("generic", ""), "avx2": ("haswell", "+avx2,+bmi,+bmi2")}


# As /proc/cpuinfo has them on x86 and on ARM.
_FACTS = {
    "name": "model name",
    "vendor": "vendor_id|CPU implementer",
    "family": "cpu family|CPU architecture",
    "model": "model|CPU part",
    "flags": "flags|Features",
}
CPUINFO = Path("/proc/cpuinfo")


def fact(name: str) -> str:
    """A fact about the processor, as the system states it; empty if it does not."""
    try:
        found = re.search(rf"^(?:{_FACTS[name]})\s*: *(.+)$", CPUINFO.read_text(), re.M)
    except OSError:
        return ""
    return found[1].strip() if found else ""


def processor() -> str:
    """The processor's name, as Linux or Python knows it."""
    return fact("name") or platform.processor() or platform.machine()


def use_vectors(name: str | None) -> None:
    """Compile for vectors of that name from here on; None: all that the processor has."""
    if name is None:
        return
    if platform.machine().lower() not in ("x86_64", "amd64") or "llvmlite" in sys.modules:
        raise ValueError(f"--vectors {name}: only on x86, and before kernels are looked for")
    os.environ["NUMBA_CPU_NAME"], os.environ["NUMBA_CPU_FEATURES"] = VECTORS[name]


def machine() -> dict[str, Any]:
    """Processor, cores, threads and versions."""
    from .. import __version__

    return {
        "cpu": processor(),
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        "threads": thread_count(),
        "load_average": system.load_average(),
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in ("numba", "numpy")},
        "shapejit": __version__,
    }
