"""Reshapes without a copy, and a few that need one: what a call costs beside NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Reshape(NamedTuple):
    """`look` at an array of `shape`, reshaped to `target`; `copied` where no view exists."""

    name: str
    shape: tuple[int, ...]
    look: Callable[[NDArray[Any]], NDArray[Any]]
    target: tuple[int, ...]
    copied: bool = False

    def view(self) -> NDArray[Any]:
        """The array that is reshaped: float32 zeros."""
        return self.look(np.zeros(self.shape, np.float32))


_CUBE = (64, 64, 64)

RESHAPES = (
    Reshape("contiguous", _CUBE, lambda a: a, (4096, 64)),
    Reshape("inferred", _CUBE, lambda a: a, (64, -1)),
    Reshape("sliced", _CUBE, lambda a: a[:, :, :32], (4096, 4, 8)),
    Reshape("permuted", _CUBE, lambda a: a.transpose(2, 0, 1), (64, 4096)),
    Reshape("flipped", _CUBE, lambda a: a[::-1], (64, 4096)),
    Reshape("units", (1, 64, 1, 4096, 1), lambda a: a, (64, 1, 64, 64)),
    Reshape("many-dims", (2,) * 18, lambda a: a, (8, 8, 8, 8, 8, 8)),
    Reshape("broadcast", (64, 1, 64), lambda a: np.broadcast_to(a, _CUBE), (64, 8, 8, 64)),
    Reshape("sliced-rows", (64, 64), lambda a: a[:, :32], (2048,), copied=True),
    Reshape("transposed", (64, 64), lambda a: a.T, (4096,), copied=True),
    Reshape("flipped-rows", (64, 64), lambda a: a[:, ::-1], (4096,), copied=True),
)
