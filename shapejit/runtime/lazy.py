"""Properties that are computed on first access, and stored."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, TypeVar

Value = TypeVar("Value")


def cached_property(compute: Callable[[Any], Value]) -> functools.cached_property[Value]:
    """functools.cached_property without the lock that it has before Python 3.12.

    All instances share that lock: a child that is forked while another thread computes the property
    would wait forever. Here two threads may both compute it.
    """
    made = functools.cached_property(compute)
    made.lock = nullcontext()  # type: ignore[attr-defined]  # gone since Python 3.12
    return made
