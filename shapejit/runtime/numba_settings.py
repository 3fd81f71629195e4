"""numba's configuration; while numba is not imported, its environment variables."""

from __future__ import annotations

import os
import sys
import warnings
from functools import cache
from typing import Any

NUMBA_CONFIG = "numba.core.config"


def text(name: str) -> str | None:
    """The value of the variable `name` as text, or None."""
    found = _loaded(name)
    return os.environ.get(name) if found is None else str(found)


def number(name: str, default: int) -> int:
    """The same as a number."""
    found = _loaded(name) if NUMBA_CONFIG in sys.modules else None
    return _parsed(name, default) if found is None else int(found)


def _loaded(name: str) -> Any:
    """numba's own value, which a program may have changed; None if numba is not imported."""
    config = sys.modules.get(NUMBA_CONFIG)
    names = name, name.removeprefix("NUMBA_")
    return next((vars(config)[n] for n in names if n in vars(config)), None) if config else None


@cache
def _parsed(name: str, default: int) -> int:
    given = os.environ.get(name)
    try:
        return default if given is None else int(given)
    except ValueError:
        warnings.warn(f"{name} is a number, not {given!r}", RuntimeWarning, stacklevel=2)
        return default
