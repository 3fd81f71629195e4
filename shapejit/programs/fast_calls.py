"""The small calls of a Program that go from Python straight to a kernel."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from .. import headers
from ..fast_calls import FastCall, fast_call
from .specialization import Specialization

MOST = 4  # kinds of arrays whose calls go straight to a kernel
CALLS = 3  # small calls before a kernel is looked for, for their sake


class FastCalls:
    """The fast calls of a Program, the last one found first; threads may add to them at once."""

    def __init__(self) -> None:
        self.known: tuple[FastCall, ...] = ()
        self._calls = 0

    def add(self, special: Specialization, x: NDArray[Any], out: NDArray[Any]) -> bool:
        """Let later calls with arrays like these be fast, if they may; whether `out` is filled."""
        self._calls += 1
        fill = headers.kernel(1, headers.FILL)
        if fill is None or special.small_plan is None:
            return False
        made = fast_call(fill, x, out, special.small_plan, special.source.span)
        if made is None:
            return False
        done = made.fill(x, out, made.key)
        if done:
            self.known = (made, *self.known[: MOST - 1])
        return done
