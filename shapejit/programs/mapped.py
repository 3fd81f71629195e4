"""A Program of many tensors, all of which are checked before the first result is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..outputs import Kind
from ..places import Places
from .specialization import Specialization


class Mapped(NamedTuple):
    """Arrays that lie at `sources`, in groups that lie alike, and where their results go.

    `kind` is the dtype of the results. If they go to `out`, they begin at `targets`, and `kept`
    has to live until they are filled: a sequence may make its arrays when asked.
    """

    items: Sequence[Any]
    sources: Places
    groups: Sequence[tuple[Specialization, NDArray[np.intp]]]
    kind: Kind
    out: Any = None
    targets: Places | None = None
    kept: Any = None

    def results(self) -> Any:
        """The results: a list of new arrays, or `out`."""
        if self.targets is not None:
            for special, which in self.groups:
                special.fill(self.sources.begins(which), self.targets.begins(which))
            return self.out
        results: list[Any] = [None] * len(self.items)
        for special, which in self.groups:
            own = (self.items[i] for i in which.tolist())
            made = special.results(own, self.sources.begins(which), self.kind)
            if len(self.groups) == 1:
                return made
            for i, x in zip(which.tolist(), made, strict=True):
                results[i] = x
        return results
