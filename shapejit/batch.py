"""Many unlike tensors: their shapes resolved in one compiled call, their copies in one launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import engine, operations, outputs, places
from .arrays import MOST_DIMS, check_possible, is_a, plain, possible
from .compilation import load
from .copying import is_numpys
from .engine import Addresses, address_of
from .errors import DTypeError, ReshapeError, about
from .kernels.constants import APART, COPY, VIEW
from .layout import Layout
from .places import Places, places_of
from .planning import planner
from .request import INVALID, MAX_RANK, MAX_SIZE, Request, integers
from .resolver import resolve, target_shape
from .tensor import Tensor, asarray

OWN = 1024 * 1024  # bytes of a result that has memory, a Plan and a launch of its own
SLAB = 64 * 1024 * 1024  # bytes of smaller new results that share an allocation
ALIGN = 64  # bytes: no line is written by two threads

ASKED_BY = "reshape_batch"


class _Asked(NamedTuple):
    """Target shapes as they were written: of all tensors, or one for all.

    `tokens[starts[i] : starts[i + 1]]` is the i-th; one for all has two starts.
    """

    shapes: Sequence[Any]
    tokens: Addresses
    starts: Addresses

    def shape(self, index: int) -> Any:
        """What is asked of a tensor."""
        return self.shapes[0] if len(self.shapes) == 1 else self.shapes[index]

    def request(self, index: int) -> Request:
        """The same for the resolver."""
        return operations.array_request(self.shape(index), ASKED_BY)

    def dims(self, index: int, targets: Addresses) -> list[int]:
        """What was found, among the dims of all."""
        if len(self.starts) == 2:
            rank = len(self.tokens)
            return list(targets[index * rank : (index + 1) * rank].tolist())
        return list(targets[self.starts[index] : self.starts[index + 1]].tolist())


class _Settled(NamedTuple):
    """What becomes of each tensor: see `kernels.shapes.settle`."""

    items: tuple[Any, ...]
    verdicts: Addresses
    groups: Addresses
    dtypes: list[np.dtype[Any]]
    targets: Addresses
    spans: NDArray[np.int64]
    parcels: Addresses
    places: Addresses


def reshape_batch(tensors: Any, shapes: Any, *, copy: bool | None = None, out: Any = None) -> Any:
    """Every one of many tensors in its own new shape: a list, or a dict with the same keys.

    `tensors` are ndarrays and Tensors of any shapes and dtypes, in a sequence
    or a dict; `shapes` (elements; Array API meaning as in `reshape`) is one
    shape for all, or as many in order, or a dict of them. `copy` and `out`, in
    the same arrangement as `tensors`, are those of `reshape`; so are the
    results. All shapes are resolved and all `out` checked before a byte is
    written, and the copies run together: an error names the index or the key of
    its tensor. New results below 1 MiB share allocations of up to 64 MiB.

    >>> import numpy as np
    >>> weights = {"a": np.ones((2, 3)).T, "b": np.ones((4, 5), np.int8)}
    >>> {name: x.shape for name, x in reshape_batch(weights, (-1,)).items()}
    {'a': (6,), 'b': (20,)}
    """
    if copy is not None and copy is not True and copy is not False:
        raise DTypeError(f"copy is None, True or False, not {copy!r}")
    if copy is False and out is not None:
        raise ReshapeError("copy=False and out= exclude each other", asked_by=ASKED_BY)
    keyed = is_a(tensors, Mapping)
    keys = tuple(tensors) if keyed else ()
    items = tuple(tensors[key] for key in keys) if keyed else tuple(tensors)
    names: Sequence[Any] = keys if keyed else range(len(items))
    asked = _asked(shapes, keyed, names)
    items = _without_subclasses(items, names, "tensor")
    outs = None if out is None else _arranged(out, keyed, names, "out=")
    if outs is not None:
        outs = _without_subclasses(outs, names, "out")
    lent: list[int] = []
    if Tensor in set(map(type, items)):
        ranks = np.broadcast_to(np.diff(asked.starts), len(items)).tolist()
        lent = [
            i
            for i, x in enumerate(items)
            if type(x) is Tensor
            and not x.dtype.packed
            and 0 not in x.shape
            and ranks[i] <= MOST_DIMS
            and possible(x.shape, x.dtype.bits // 8)
        ]
        items, outs = _as_arrays(lent, names, items, outs, asked)
    settled = _settled(items, names, asked, copy, outs)
    if outs is None:
        results = _new(settled, asked, copy)
        for i in lent:
            results[i] = asarray(results[i])
        return dict(zip(names, results, strict=True)) if keyed else results
    _fill(settled, asked, outs, _targets(settled, names, asked, outs))
    return out


def resolve_batch(source_shapes: Any, request: Request) -> NDArray[np.int64]:
    """The shapes that one request means for many tensors: an int64 array, one row a tensor.

    `source_shapes` (elements) is a 2-D array of integers, or a sequence of
    shapes of any ranks; `request` comes from a dialect, as in `resolve`. All of
    them run the resolver's own function in one compiled call. Raises
    ReshapeError, which names the index of the first shape that is refused.

    >>> import shapejit as sj
    >>> sj.resolve_batch([(2, 3, 4), (8, 5)], sj.onnx.request([0, -1]))
    array([[ 2, 12],
           [ 8,  5]])
    """
    if not is_a(request, Request):
        raise DTypeError(f"a request comes from a dialect's request(), not {request!r}")
    dims = np.array(request.dims, np.int64)
    kernels = load("shapes")
    rows = plain(source_shapes) if is_a(source_shapes, np.ndarray) else source_shapes
    if isinstance(rows, np.ndarray) and rows.ndim == 2 and rows.dtype == np.int64:
        sources = rows if rows.flags.carray else np.array(rows, order="C")
        targets = np.empty((len(rows), len(dims)), np.int64)
        facts = sources, dims, request.cancel, targets
        done = kernels.resolve_rows(*facts)
    elif (is_a(rows, Sequence) and not isinstance(rows, str | bytes | range)) or (
        isinstance(rows, np.ndarray) and rows.ndim == 2
    ):
        rows = tuple(rows)  # may have another length than it says
        sizes, starts = _tokens(rows, range(len(rows)), "the source shape")
        for i in np.flatnonzero(np.diff(starts) == 1).tolist():
            if isinstance(rows[i], int | np.integer):
                raise DTypeError(
                    f"tensor {i}: the source shape must be a sequence, not {rows[i]!r}"
                )
        targets = np.empty((len(rows), len(dims)), np.int64)
        parts = sizes, starts, dims, request.cancel, targets
        done = kernels.resolve_ragged(*parts)
    else:
        what = f"{rows.ndim}-D array" if isinstance(rows, np.ndarray) else type(rows).__name__
        raise DTypeError(f"source shapes are a sequence or a 2-D array, not a {what}")
    if done < len(targets):
        with about(f"tensor {done}"):
            resolve(rows[done], request)
    return targets


def _arranged(values: Any, keyed: bool, names: Sequence[Any], what: str) -> tuple[Any, ...]:
    """As many values as tensors, in their order."""
    if keyed != is_a(values, Mapping):
        kind = "a dict with the tensors' keys" if keyed else "a sequence"
        raise DTypeError(f"{what} must be {kind}, not {type(values).__name__} ({ASKED_BY})")
    if keyed:
        if values.keys() != set(names):
            missing = [name for name in names if name not in values]
            extra = [name for name in values if name not in set(names)]
            wrong = f"no {missing[0]!r}" if missing else f"{extra[0]!r}, which no tensor has"
            raise ReshapeError(f"{what} has {wrong}", asked_by=ASKED_BY)
        return tuple(values[name] for name in names)
    if not is_a(values, Sequence) and not is_a(values, np.ndarray):
        raise DTypeError(f"{what} must be a sequence, not {type(values).__name__} ({ASKED_BY})")
    count = len(names)
    arranged = tuple(islice(values, count + 1))  # it may have another length than it says
    if len(arranged) != count:
        found = f"more than {count}" if len(arranged) > count else len(arranged)
        raise ReshapeError(f"{what} has {found} entries for {count} tensors")
    return arranged


def _without_subclasses(items: tuple[Any, ...], names: Sequence[Any], what: str) -> tuple[Any, ...]:
    """The same with plain ndarrays for those of other classes, which could say what they like."""
    if set(map(type, items)) <= {np.ndarray, Tensor}:
        return items
    made = list(items)
    for i, x in enumerate(items):
        if is_a(x, np.ndarray) and type(x) is not np.ndarray:
            with about(f"{what} {names[i]!r}"):
                made[i] = plain(x)
    return tuple(made)


def _asked(shapes: Any, keyed: bool, names: Sequence[Any]) -> _Asked:
    if not is_a(shapes, Mapping) and _is_one(shapes):
        return _Asked((shapes,), *_tokens((shapes,), None, "the target shape"))
    rows = _arranged(shapes, keyed, names, "shapes")
    if len(rows) > 1 and rows[0] is rows[-1] and len(set(map(id, rows))) == 1:
        rows = rows[:1]
    return _Asked(rows, *_tokens(rows, names, "the target shape"))


def _as_arrays(
    which: Sequence[int],
    names: Sequence[Any],
    items: tuple[Any, ...],
    outs: tuple[Any, ...] | None,
    asked: _Asked,
) -> tuple[tuple[Any, ...], tuple[Any, ...] | None]:
    """The same items and outs, but those Tensors of whole bytes as ndarrays over their memory."""
    arrays, targets = list(items), None if outs is None else list(outs)
    for i in which:
        arrays[i] = items[i].numpy()
        if targets is not None:
            if type(targets[i]) is not Tensor or targets[i].dtype is not items[i].dtype:
                with about(f"tensor {names[i]!r}"):
                    _check(items[i], asked.request(i), None, targets[i])
            targets[i] = targets[i].numpy()
    return tuple(arrays), None if targets is None else tuple(targets)


def _is_one(shapes: Any) -> bool:
    """Whether `shapes` is one shape and not several."""
    if is_a(shapes, np.ndarray):
        return shapes.ndim < 2
    if is_a(shapes, Sequence):
        # A range of 10**30 ints is one shape, too, and refused as such.
        return not any(
            is_a(t, Sequence) or is_a(t, np.ndarray) for t in islice(shapes, MAX_RANK + 1)
        )
    return True


def _tokens(
    rows: tuple[Any, ...], names: Sequence[Any] | None, what: str
) -> tuple[Addresses, Addresses]:
    """The ints of many shapes, one after the other, and where each begins.

    What int64 cannot hold, and no shape can mean, is INVALID. An error names the
    row by its name, if it has one.
    """
    kernels = places.headers(len(rows))
    found: tuple[Addresses, Addresses] | None = None
    if kernels is not None:
        found = kernels.read_ints(rows)
    if found is not None:
        return found
    checked = []
    for i, row in enumerate(rows):
        shape = (row,) if isinstance(row, int | np.integer) else row
        with about(f"tensor {names[i]!r}") if names is not None else nullcontext():
            ints = integers(shape, what, ASKED_BY)
        checked.append([t if -1 <= t <= MAX_SIZE else INVALID for t in ints])
    starts = np.cumsum([0, *map(len, checked)])
    return np.array([*chain.from_iterable(checked)], np.int64), starts


def _settled(
    items: tuple[Any, ...],
    names: Sequence[Any],
    asked: _Asked,
    copy: bool | None,
    outs: tuple[Any, ...] | None,
) -> _Settled:
    """Resolve every shape, and refuse what cannot be done."""
    count = len(items)
    total = len(asked.tokens) * (count if len(asked.starts) == 2 else 1)
    facts = _Settled(
        items,
        verdicts=np.full(count, APART),
        groups=np.empty(count, np.int64),
        dtypes=[],
        targets=np.empty(total, np.int64),
        spans=np.zeros((count, 4), np.int64),
        parcels=np.empty(0, np.int64),
        places=np.empty(count, np.int64),
    )
    fault, apart = count, [*range(count)]
    headers = places.headers(count)
    if headers is not None:
        descrs, firsts = np.empty(headers.GROUPS, np.int64), np.empty(headers.GROUPS, np.int64)
        call = id(items), count, id(np.ndarray), facts.groups, descrs, firsts, facts.places
        found, words = headers.survey(*call)
        dtypes = [items[first].dtype for first in firsts[:found].tolist()]
        facts = facts._replace(dtypes=dtypes, parcels=np.empty(words, np.int64))
        fault = _settle(facts, asked, copy is True or outs is not None)
        refused = [fault] if fault < count else []
        if copy is False:
            refused += np.flatnonzero(facts.verdicts[:fault] == COPY).tolist()
        apart = sorted([*np.flatnonzero(facts.verdicts[:fault] == APART).tolist(), *refused])
    for i in apart:
        with about(f"tensor {names[i]!r}"):
            _check(items[i], asked.request(i), copy, None if outs is None else outs[i])
    assert fault == count  # or the check raised what the kernel refused
    return facts


def _settle(facts: _Settled, asked: _Asked, copies: bool) -> int:
    """Let the kernel fill the facts; return the index of the first tensor that it refuses."""
    own = [0 if is_numpys(dtype) else dtype.itemsize for dtype in facts.dtypes]
    shapes = load("shapes")
    arguments = (
        id(facts.items),
        facts.groups,
        np.array([*own, 0], np.int64),
        shapes.literal(asked.tokens),
        asked.starts,
        facts.targets,
        copies,
        facts.verdicts,
        facts.spans,
        facts.parcels,
        facts.places,
    )
    count = len(facts.items)
    return int(shapes.settle(*arguments, 0, count))


def _check(x: Any, request: Request, copy: bool | None, out: Any) -> None:
    """Refuse what `reshape` of this one tensor would refuse."""
    array = operations.checked(x)
    shape = target_shape(array.shape, request)
    view = places.place_of(array)[1].reshape(shape)
    outputs.wants_copy(view, array, request, copy, out)
    if out is not None:
        outputs.target(out, array.dtype, shape, (array,))
    elif isinstance(array, np.ndarray):
        check_possible(shape, array.itemsize)


def _new(settled: _Settled, asked: _Asked, copy: bool | None) -> list[Any]:
    """The results: views, and new arrays."""
    items, verdicts, spans = settled.items, settled.verdicts, settled.spans
    results: list[Any] = [None] * len(items)
    packed = []
    for i in np.flatnonzero(verdicts == APART).tolist():
        x, request = items[i], asked.request(i)
        if _moves_bits(x) and (copy or x.layout.reshape(target_shape(x.shape, request)) is None):
            packed.append(i)
        else:
            results[i] = operations.reshape_as(x, request, copy, None)
    _new_packed(packed, items, asked, results)
    viewed = np.flatnonzero(verdicts == VIEW).tolist()
    if len(asked.shapes) == 1:
        shape = asked.shapes[0]
        for i in viewed:
            results[i] = items[i].reshape(shape)
    else:
        for i in viewed:
            results[i] = items[i].reshape(asked.shapes[i])
    copied = np.flatnonzero(verdicts == COPY)
    large = spans[copied, 1] >= OWN
    for i in copied[large].tolist():
        results[i] = operations.reshape_as(items[i], asked.request(i), True, None)
    small = copied[~large]
    if len(small):
        targets = _slabs(settled, asked, small, results)
        _deliver(settled, small, targets, fresh=True)
    return results


def _moves_bits(x: Any) -> bool:
    return type(x) is Tensor and x.dtype.packed and x.size > 0


def _new_packed(
    which: Sequence[int], items: Sequence[Any], asked: _Asked, results: list[Any]
) -> None:
    """Copies of packed Tensors in new memory, in one launch for all that lie alike."""
    tensors = [items[i] for i in which]
    memory = [outputs.new_bytes(t.size * t.dtype.bits) for t in tensors]
    _copy_packed(tensors, memory, fresh=True)
    for i, t, raw in zip(which, tensors, memory, strict=True):
        shape = target_shape(t.shape, asked.request(i))
        results[i] = Tensor.trusted(raw, t.dtype, Layout.row_major(shape, t.dtype.bits))


def _copy_packed(
    tensors: Sequence[Tensor], memory: Sequence[NDArray[np.uint8]], fresh: bool
) -> None:
    """Row-major copies; `memory` is the bytes of each."""
    sources = places_of(tensors)
    targets = np.array([8 * address_of(raw) for raw in memory], np.int64)
    for layout, which in sources.groups():
        made = planner.compiled(layout, count=len(which))
        engine.run(made, sources.addresses[which] & ~7, targets[which], fresh)


def _slabs(settled: _Settled, asked: _Asked, which: Addresses, results: list[Any]) -> Addresses:
    """New memory for the results of the tensors `which`; return where each begins."""
    room = -(-settled.spans[which, 1] // ALIGN) * ALIGN
    ends = np.cumsum(room)
    targets = np.empty(len(which), np.int64)
    low = 0
    while low < len(which):
        begin = ends[low] - room[low]
        high = max(low + 1, int(np.searchsorted(ends, begin + SLAB, "right")))
        slab = np.empty(int(ends[high - 1] - begin) + ALIGN, np.uint8)
        shift = -address_of(slab) % ALIGN
        starts = ends[low:high] - room[low:high] - begin
        targets[low:high] = address_of(slab) + shift + starts
        _views(
            settled,
            asked,
            which[low:high],
            slab[shift : slab.size - ALIGN + shift],
            starts,
            results,
        )
        low = high
    return targets


def _views(
    settled: _Settled,
    asked: _Asked,
    which: Addresses,
    slab: NDArray[np.uint8],
    starts: Addresses,
    results: list[Any],
) -> None:
    """The results that begin at `starts` of a slab, as arrays of their own dtypes and shapes."""
    groups = settled.groups[which]
    for group in np.unique(groups).tolist():
        dtype = settled.dtypes[group]
        own = groups == group
        indices, firsts = which[own], starts[own]
        if ALIGN % dtype.itemsize:
            for i, first in zip(indices.tolist(), firsts.tolist(), strict=True):
                dims = asked.dims(i, settled.targets)
                results[i] = np.ndarray(dims, dtype, slab.data, first)
            continue
        base = slab.view(dtype)
        lows = firsts // dtype.itemsize
        highs = lows + settled.spans[indices, 1] // dtype.itemsize
        for i, low, high in zip(indices.tolist(), lows.tolist(), highs.tolist(), strict=True):
            results[i] = base[low:high]
        ranks = np.broadcast_to(np.diff(asked.starts), len(settled.items))
        for i in indices[ranks[indices] != 1].tolist():
            results[i] = results[i].reshape(asked.dims(i, settled.targets))


def _deliver(settled: _Settled, which: Addresses, targets: Addresses, fresh: bool) -> None:
    facts = settled.spans[which, 1], settled.parcels, settled.places[which]
    engine.copy_each(settled.spans[which, 0], targets, *facts, fresh=fresh)


def _targets(
    settled: _Settled, names: Sequence[Any], asked: _Asked, outs: tuple[Any, ...]
) -> Addresses:
    """Where the results begin in `outs`, which are fit for them and apart from everything."""
    items, verdicts = settled.items, settled.verdicts
    count = len(items)
    fits, addresses = np.zeros(count, np.int64), np.zeros(count, np.int64)
    if places.headers(count) is not None:
        match = load("shapes").match
        facts = id(items), id(outs), settled.groups, settled.targets, asked.starts, fits, addresses
        match(*facts)
    sources, targets = settled.spans[:, 2:].copy(), np.stack([addresses, addresses], 1)
    targets[:, 1] += settled.spans[:, 1]
    for i in np.flatnonzero((fits == 0) | (verdicts == APART)).tolist():
        with about(f"tensor {names[i]!r}"):
            if outs[i] is None:
                raise DTypeError("out= must be an array, not None")
            if verdicts[i] != APART:
                _check(items[i], asked.request(i), None, outs[i])
        if verdicts[i] != APART:
            addresses[i] = address_of(outs[i])
        sources[i], targets[i] = _reached(items[i]), _reached(outs[i])
    ends = targets[:, 0].copy(), targets[:, 1].copy()
    outputs.check_disjoint(ends, names)
    lows, highs = sources.T
    near = _near((lows, highs), ends)
    if len(near):
        pair = places.overlap(places_of_any([items[i] for i in near]), ends)
        if pair is not None:
            with about(f"tensor {names[near[pair[0]]]!r}"):
                raise ReshapeError("out= overlaps the source")
    return addresses


def _near(sources: places.Spans, targets: places.Spans) -> list[int]:
    """The sources that lie among the targets."""
    lows, highs = sources
    starts, ends = (each[targets[1] > targets[0]] for each in targets)
    if not len(starts):
        return []
    near: list[int] = np.flatnonzero((lows < ends.max()) & (highs > starts.min())).tolist()
    return near


def places_of_any(items: Sequence[Any]) -> Places:
    """Where arrays of any kinds lie."""
    known: dict[Layout, int] = {}
    found = [places.place_of(operations.checked(x)) for x in items]
    which = [known.setdefault(layout, len(known)) for _, layout in found]
    return Places(np.array([place for place, _ in found]), list(known), np.array(which, np.intp))


def _reached(x: Any) -> tuple[int, int]:
    if not x.size:
        return 0, 0
    place, layout = places.place_of(x)
    low, high = layout.span
    return (place + low) >> 3, (place + high + 7) >> 3


def _fill(settled: _Settled, asked: _Asked, outs: tuple[Any, ...], targets: Addresses) -> None:
    """The results in `outs`, whose memory begins at `targets`."""
    apart = settled.verdicts == APART
    copied = settled.verdicts == COPY
    large = copied & (settled.spans[:, 1] >= OWN)
    packed = []
    for i in np.flatnonzero(apart | large).tolist():
        if _moves_bits(settled.items[i]):
            packed.append(i)
        else:
            operations.reshape_as(settled.items[i], asked.request(i), None, outs[i])
    memory = [outs[i].buffer[outs[i].offset // 8 :] for i in packed]
    _copy_packed([settled.items[i] for i in packed], memory, fresh=False)
    small = np.flatnonzero(copied & ~large)
    if len(small):
        _deliver(settled, small, targets[small], fresh=False)
