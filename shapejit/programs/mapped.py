"""A Program of many tensors, all of which are checked before the first result is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import foreign
from ..dtypes.table import DType
from ..engine import outputs
from ..engine.addresses import Places
from ..shapes.arithmetic import MAX_SIZE
from .specialization import Specialization


class Mapped(NamedTuple):
    """Arrays that lie at `sources`, in groups that lie alike, and where their results go.

    If results go to `out`, they begin at `targets`, and `kept` has to live until they are
    filled: a sequence may make its arrays when asked.
    """

    items: Sequence[Any]
    sources: Places
    groups: Sequence[tuple[Specialization, NDArray[np.intp]]]
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
            made = special.results(own, self.sources.begins(which))
            if len(self.groups) == 1:
                return made
            for i, x in zip(which.tolist(), made, strict=True):
                results[i] = x
        return results


def in_chunks(
    run: Callable[[Sequence[Any], Any, int], Any],
    tensors: Iterator[Any],
    out: Any,
    most: int,
    ahead: int,
    dtype: DType,
) -> Iterator[Any]:
    """The results of `run` (tensors, outputs, number of the first), which has some at a time.

    `most` tensors at a time, and no more than reach `ahead` bytes of `dtype`. Nothing is given
    to `run` together with an output that it has not filled yet.
    """
    first = held = 0
    taken: list[Any] = []
    outs: list[Any] = []
    pending = outputs.Pending()

    def results() -> Any:
        """The results of what was taken, which is forgotten."""
        nonlocal first, held, taken, outs, pending
        made = run(taken, None if out is None else outs, first)
        first, held, taken = first + len(taken), 0, []
        outs, pending = [], outputs.Pending()
        return made

    for x in tensors:
        if out is not None:
            into = out(first + len(taken))
            lent = foreign.native(into)
            if not pending.add(lent):
                yield from results()
                pending.add(lent)
            outs.append(into)
        taken.append(x)
        if ahead < MAX_SIZE:
            held += dtype.nbytes(prod(getattr(x, "shape", ())))
        del x  # a source may live no longer than its chunk
        if len(taken) == most or held >= ahead:
            yield from results()
    yield from results()
