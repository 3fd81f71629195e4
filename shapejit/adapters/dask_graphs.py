"""Graphs of dask: arrays whose chunks are made of the chunks of others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise, product
from math import prod
from typing import Any

import numpy as np
from dask import array
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph

from . import chunk_work, chunks
from .chunks import Chunks, Grid, Group, Overlap

SMALL = 16  # chunks of dims that a reshape moves grow to 1/16 of the most they may have

Index = tuple[int, ...]
Graph = dict[Any, Any]


def mapped(
    what: str,
    x: Any,
    work: Callable[..., Any],
    cut: Chunks,
    dtype: np.dtype[Any],
    source: Callable[[Index], Index] = lambda at: at,
    operands: Sequence[Any] = (),
    keys: Callable[[Index], list[Any]] = lambda at: [],
) -> Any:
    """An array whose chunk `at` is `work` of the chunk source(at) of `x`, and of `keys(at)`."""
    name = f"shapejit-{what}-{tokenize(x.name, work, cut, [o.name for o in operands])}"
    graph = {
        (name, *at): (work, (x.name, *source(at)), *keys(at))
        for at in product(*(range(len(sizes)) for sizes in cut))
    }
    return _array(name, graph, cut, dtype, [x, *operands])


def _array(name: str, graph: Graph, cut: Chunks, dtype: np.dtype[Any], sources: list[Any]) -> Any:
    layers = HighLevelGraph.from_collections(name, graph, dependencies=sources)
    return array.Array(layers, name, cut, meta=np.empty((0,) * len(cut), dtype))


def reshaped(x: Any, target: Index, most: int) -> Any:
    """`x`, which has elements, in a shape of as many, in chunks of at most `most`."""
    groups = chunks.groups(x.shape, target)
    found = [tuple(x.chunks[i] for i in group.source) for group in groups]
    own = [prod(map(max, sizes)) for sizes in found]
    # A dim that stays keeps its chunks, unless they are too large.
    totals = [prod(map(sum, sizes)) for sizes in found]
    limits = [n if g.same else total for g, n, total in zip(groups, own, totals, strict=True)]
    long = chunks.lengths(own, limits, most, most // SMALL)
    cuts, ordered = _cuts(x.shape, target, groups, found, long)
    if not all(map(chunks.are_runs, found)):
        before = list(x.chunks)
        for group, sizes in zip(groups, ordered, strict=True):
            for axis, part in zip(group.source, sizes, strict=True):
                before[axis] = part
        x = x.rechunk(tuple(before), block_size_limit=most * x.dtype.itemsize)
    return _Reshape(x, target, groups, cuts).array()


def _cuts(
    source: Index, target: Index, groups: list[Group], found: list[Chunks], long: list[int]
) -> tuple[list[Chunks], list[Chunks]]:
    """The chunks of each group of the target, and those that its source needs if rechunked."""
    cuts, ordered = list[Chunks](), list[Chunks]()
    for group, sizes, length in zip(groups, found, long, strict=True):
        if group.same:
            cuts.append((Grid().cut(sizes[0], length),))
            ordered.append(cuts[-1])
            continue
        cuts.append(chunks.runs([target[i] for i in group.target], length))
        fit = chunks.are_runs(sizes) and prod(map(max, sizes)) <= length
        ordered.append(sizes if fit else chunks.runs([source[i] for i in group.source], length))
    return cuts, ordered


class _Reshape:
    """The graph of a reshape; each chunk of `x` is a range of the elements of every group."""

    def __init__(self, x: Any, target: Index, groups: list[Group], cuts: list[Chunks]) -> None:
        self.x, self.target, self.groups, self.cuts = x, target, groups, cuts
        self.found = [tuple(x.chunks[i] for i in group.source) for group in groups]
        sizes = tuple(x.chunks), [len(cut) for cut in cuts]
        self.token = tokenize(x.name, target, cuts, sizes)
        self.name = f"shapejit-reshape-{self.token}"
        self.graph: Graph = {}

    def array(self) -> Any:
        """The result."""
        cut: list[tuple[int, ...]] = [(1,)] * len(self.target)
        for group, sizes in zip(self.groups, self.cuts, strict=True):
            for axis, part in zip(group.target, sizes, strict=True):
                cut[axis] = part
        for chosen in product(*map(_numbered, self.cuts, map(self._shares, self.cuts, self.found))):
            self._chunk(chosen)
        return _array(self.name, self.graph, tuple(cut), self.x.dtype, [self.x])

    @staticmethod
    def _shares(cut: Chunks, found: Chunks) -> list[list[Overlap]]:
        """For each chunk of a group of the target: what the source's chunks give to it."""
        source, ends = chunks.edges(found), chunks.edges(cut)
        return [[*chunks.overlaps(source, a, b)] for a, b in pairwise(ends)]

    def _chunk(self, chosen: tuple[Any, ...]) -> None:
        """Add the tasks of the chunk that is chosen by an index in each group."""
        at, shape = [0] * len(self.target), [1] * len(self.target)
        for group, (index, sizes, _) in zip(self.groups, chosen, strict=True):
            for axis, i, n in zip(group.target, index, sizes, strict=True):
                at[axis], shape[axis] = i, n
        flat = tuple(prod(sizes) for _, sizes, _ in chosen)
        boxes, keys = [], []
        for parts in product(*(shares for _, _, shares in chosen)):
            boxes.append(tuple(part.written for part in parts))
            keys.append(self._part(parts))
        work = partial(chunk_work.assembled, boxes, flat, tuple(shape))
        self.graph[(self.name, *at)] = (work, *keys)

    def _part(self, parts: tuple[Overlap, ...]) -> Any:
        """The key of what a chunk of the source gives."""
        at, sizes = [0] * self.x.ndim, []
        for group, found, part in zip(self.groups, self.found, parts, strict=True):
            index = np.unravel_index(part.chunk, tuple(map(len, found)))
            for axis, i in zip(group.source, index, strict=True):
                at[axis] = int(i)
            sizes.append(tuple(c[int(i)] for c, i in zip(found, index, strict=True)))
        key = (self.x.name, *at)
        if all(part.whole for part in parts):
            return key
        ranges = [part.read for part in parts]
        cut = (f"shapejit-cut-{self.token}", *at, *(x.start for x in ranges))
        self.graph[cut] = (partial(chunk_work.cut, ranges, sizes), key)
        return cut


def _numbered(cut: Chunks, shares: list[list[Overlap]]) -> Iterator[tuple[Any, ...]]:
    """The chunks of a group: the index, the sizes, and the shares of each."""
    indices = product(*(range(len(sizes)) for sizes in cut))
    return zip(indices, product(*cut), shares, strict=True)
