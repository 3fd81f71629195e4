"""Object files for a wheel: the common kernels, for all processors of a level.

`python -m shapejit.builder.bundle FOLDER LEVEL ...` writes them; no kernel is run, so this
processor need not support the level.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ..runtime import processor


def main(folder: str, *levels: str) -> None:
    """Build for all levels, each in its own process."""
    code = "import sys; from shapejit.builder import bundle; bundle.build(*sys.argv[1:])"
    started = []
    for level in levels:
        variables = {"NUMBA_CPU_NAME": level, "NUMBA_CPU_FEATURES": processor.LEVELS[level]}
        command = [sys.executable, "-c", code, str(Path(folder, level)), level]
        started.append(subprocess.Popen(command, env=os.environ | variables))
    if {process.wait() for process in started} - {0}:
        raise OSError(f"not all objects of {', '.join(levels)} could be built")


def build(folder: str, level: str) -> None:
    """Build all kernels that `warmup` requests, for the processor that numba is configured for."""
    from ..programs import warming
    from ..runtime import object_files
    from .objects import built

    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    for name in warming.names():
        code = built(name, object_files.symbol(name, level))
        if not object_files.write(name, code, place, level):
            raise OSError(f"cannot write to {folder}")


if __name__ == "__main__":
    main(*sys.argv[1:])
