"""A Program on many tensors: all are checked before the first result is written."""

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
    """The checked arrays of a call at `sources`, in groups of equal Layouts, and their outputs.

    With an `out` the results begin at `targets`, and `kept` must live until they are filled: a
    sequence may create its arrays on access.
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
    """Yield the results of `run` (tensors, outputs, index of the first) chunk by chunk.

    A chunk has at most `most` tensors. It ends when its sources have `ahead` bytes of `dtype`, and
    before an output that overlaps an earlier one of the chunk.
    """
    first = held = 0
    taken: list[Any] = []
    outs: list[Any] = []
    pending = outputs.Pending()

    def results() -> Any:
        """Run the current chunk, and empty it."""
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
