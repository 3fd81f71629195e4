"""The small calls of a Program that go from Python straight to a kernel."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from ..engine.fast_calls import FastCall, fast_call
from ..engine.patience import by_numpy
from .specialization import Specialization

MOST = 4  # kinds of arrays whose calls go straight to a kernel


class FastCalls:
    """The fast calls of a Program, the last one found first; threads may add to them at once."""

    def __init__(self) -> None:
        self.known: tuple[FastCall, ...] = ()

    def add(self, special: Specialization, x: NDArray[Any], out: NDArray[Any]) -> bool:
        """Let later calls with arrays like these be fast, if they may; whether `out` is filled."""
        if special.small_plan is None:
            return False
        made = fast_call(x, out, special.small_plan, special.source.span)
        if not isinstance(made, FastCall):
            with by_numpy(*made):
                special.into(x, out)
            return True
        done = made.fill(x, out, made.key)
        if done:
            self.known = (made, *self.known[: MOST - 1])
        return done
