"""reshape_batch: many different tensors, resolved in one compiled call and copied in one launch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from ..arrays import foreign
from ..arrays.foreign import Other, Out, Scalar
from ..arrays.tensor import Tensor
from ..engine import array_structs, execution, outputs
from ..engine.addresses import bit_address_of, span_of
from ..engine.patience import by_numpy
from ..errors import DTypeError, ReshapeError, about
from ..kernels.constants import APART, COPY, MAX_RANK, REFUSED, VIEW
from ..kernels.object_layouts import BATCH_PLAN, ROOM_WORDS
from ..operations import views
from ..planning import thresholds
from ..runtime.launches import Addresses, address_of
from ..runtime.ndarrays import check_possible, distinct, is_a, is_mapping, plain
from ..shapes.arithmetic import INFER, INVALID
from ..shapes.layout import Layout
from ..shapes.resolver import target_shape
from . import plain_batches
from .target_shapes import ASKED_BY, TargetShapes, arranged

Key = TypeVar("Key")

SLAB = 64 * 1024 * 1024  # bytes of smaller new results that share an allocation
ALIGN = 64  # bytes: no line is written by two threads


@overload
def reshape_batch(
    tensors: Mapping[Key, NDArray[Scalar]], shapes: Any, *, copy: bool | None = None
) -> dict[Key, NDArray[Scalar]]: ...
@overload
def reshape_batch(
    tensors: Mapping[Key, Other], shapes: Any, *, copy: bool | None = None
) -> dict[Key, Other]: ...
@overload
def reshape_batch(
    tensors: Iterable[NDArray[Scalar]], shapes: Any, *, copy: bool | None = None
) -> list[NDArray[Scalar]]: ...
@overload
def reshape_batch(
    tensors: Iterable[Other], shapes: Any, *, copy: bool | None = None
) -> list[Other]: ...
@overload
def reshape_batch(tensors: Any, shapes: Any, *, copy: bool | None = None, out: Out) -> Out: ...


def reshape_batch(tensors: Any, shapes: Any, *, copy: bool | None = None, out: Any = None) -> Any:
    """Reshape many tensors, each to its own shape: a list, or a dict with the same keys.

    `tensors` are ndarrays, Tensors and arrays of DLPack libraries (torch's), of any shapes and
    dtypes, in a sequence or a dict (a `state_dict()`). `shapes` (in elements, as in `reshape`) is
    one shape for all, or a sequence or dict of shapes. `copy` and `out` are those of `reshape`;
    `out` and the results are arranged like `tensors`. All shapes are resolved and all `out` checked
    before a byte is written, and the copies run together. Errors name the index or the key of the
    tensor. New results below 1.5 MiB share allocations of up to 64 MiB. Raises
    ReshapeError, DTypeError, FormatError.

    >>> import numpy as np
    >>> weights = {"a": np.ones((2, 3)).T, "b": np.ones((4, 5), np.int8)}
    >>> {name: x.shape for name, x in reshape_batch(weights, (-1,)).items()}
    {'a': (6,), 'b': (20,)}
    """
    if copy is not None and copy is not True and copy is not False:
        raise DTypeError(f"copy must be None, True or False, not {copy!r}")
    if copy is False and out is not None:
        raise ReshapeError("copy=False and out= exclude each other", asked_by=ASKED_BY)
    resolve = array_structs.kernel(array_structs.RESOLVE_ALL)
    keyed = type(tensors) is not list and is_mapping(tensors)
    keys = tuple(tensors) if keyed else ()
    items = tuple(tensors[key] for key in keys) if keyed else tuple(tensors)
    names: Sequence[Any] = keys if keyed else range(len(items))
    unready = execution.unready_copies()
    if resolve is None:  # both are built in the same time
        unready += (array_structs.work_of(array_structs.RESOLVE_ALL),)
    with by_numpy(*unready) if unready else nullcontext():
        given = keyed, names, shapes, copy, out
        results: Any = plain_batches.reshaped(items, *given, bool(unready))
        if results is None:
            wanted, came, outs = TargetShapes.of(shapes, keyed, names), items, None
            items = _natives(items, names, "tensor")
            if out is not None:
                outs = _natives(arranged(out, keyed, names, "out="), names, "out")
                if Tensor in map(type, items):
                    items, outs = zip(*map(_lent, items, outs), strict=True)
            batch = _Batch(items, names, wanted, copy, outs)
            batch.resolve_all(None if unready else resolve)
            results = batch.made()
            if items is not came and out is None:
                pairs = zip(results, items, came, strict=True)
                results = [made if x is y else foreign.to_library(made, y) for made, x, y in pairs]
    if out is not None:
        return out
    return dict(zip(names, results, strict=True)) if keyed else results


def _natives(items: tuple[Any, ...], names: Sequence[Any], what: str) -> tuple[Any, ...]:
    """The tensors as exact ndarrays and Tensors: a subclass could override `shape`, say.

    Arrays of other libraries become ndarrays or Tensors over their memory.
    """
    if {*map(type, items)} <= foreign.NATIVE:
        return items
    made = list(items)
    for i, x in enumerate(items):
        if type(x) not in foreign.NATIVE:
            with about(f"{what} {names[i]!r}"):
                made[i] = plain(x) if is_a(x, np.ndarray) else foreign.native(x)
    return tuple(made)


def _lent(x: Any, out: Any) -> tuple[Any, Any]:
    """A Tensor of whole bytes and its output as ndarrays over their memory, which kernels read.

    Others are returned as they are: only arrays of one kind and dtype may become alike.
    """
    if type(x) is type(out) is Tensor and x.dtype is out.dtype and not x.dtype.packed:
        with suppress(ReshapeError):  # more dims than NumPy has
            return x.numpy(), out.numpy()
    return x, out


class _Batch:
    """The tensors of one call, and what is done with each: see `kernels.shapes.resolve_all`."""

    def __init__(
        self,
        items: tuple[Any, ...],
        names: Sequence[Any],
        shapes: TargetShapes,
        copy: bool | None,
        outs: tuple[Any, ...] | None,
    ) -> None:
        self.items, self.names, self.shapes, self.copy, self.outs = items, names, shapes, copy, outs
        count = len(items)
        self.ranks = np.diff(shapes.starts)
        self.verdicts = np.full(count, APART)
        self.targets = np.empty(len(shapes.tokens), np.int64)  # dims
        self.spans = np.zeros((count, 6), np.int64)
        self.plans = np.empty((count, BATCH_PLAN), np.int64)

    def _check(self, i: int) -> None:
        """Raise the error of `reshape` for this tensor."""
        with about(f"tensor {self.names[i]!r}"):
            array, request = views.checked(self.items[i]), self.shapes.request(i)
            shape = target_shape(array.shape, request)
            view = bit_address_of(array)[1].reshape(shape)
            out = None if self.outs is None else self.outs[i]
            outputs.wants_copy(view, array, request, self.copy, out)
            if self.outs is not None:
                if out is None:
                    raise DTypeError("out= must be an array, not None")
                outputs.target(out, array.dtype, shape, (array,))
            elif isinstance(array, np.ndarray):
                check_possible(shape, array.itemsize)

    def resolve_all(self, resolve: Callable[..., Any] | None) -> None:
        """Resolve every shape; raises for the first one that is impossible."""
        fault = count = len(self.items)
        if resolve is not None:
            tokens = self.shapes.tokens
            fault = resolve(
                self.items,
                self.outs or (),
                np.ndarray,
                np.where(tokens < INFER, INVALID, tokens),  # sizes below -1 are invalid
                self.shapes.starts,
                self.targets,
                int(self.copy is True or self.outs is not None),
                self.verdicts,
                self.spans,
                self.plans,
                np.empty(ROOM_WORDS, np.int64),
            )  # the index of the first tensor that it refuses
        verdicts = self.verdicts[: fault + 1]
        asked = (verdicts == APART) | (verdicts == REFUSED)
        if self.copy is False:
            asked |= verdicts == COPY
        for i in np.flatnonzero(asked).tolist():
            self._check(i)
        assert fault == count  # otherwise the check has raised

    def made(self) -> list[Any]:
        """The results, written to `outs` if given, after these are checked."""
        addresses = None if self.outs is None else self._check_outs()
        results: list[Any] = [None] * len(self.items)
        copied = self.verdicts == COPY
        large = copied & (self.spans[:, 1] >= thresholds.PARALLEL_FROM)
        small = np.flatnonzero(copied & ~large)
        for i in np.flatnonzero((self.verdicts == APART) | large).tolist():
            into = None if self.outs is None else self.outs[i]
            request = self.shapes.request(i)
            results[i] = views.reshape_as(self.items[i], request, self.copy, into)
        for i in np.flatnonzero(self.verdicts == VIEW).tolist():
            results[i] = self.items[i].reshape(self.shapes.shapes[i])
        if len(small):
            targets, fresh = (
                self._allocate(small, results) if addresses is None else (addresses[small], False)
            )
            sources, nbytes = self.spans[small, 0], self.spans[small, 1]
            execution.copy_each(
                sources, targets, nbytes, self.plans.reshape(-1), small * BATCH_PLAN, fresh
            )
        return results

    def _allocate(self, which: Addresses, results: list[Any]) -> tuple[Addresses, bool]:
        """New memory for the results of `which`: the address of each, and whether any is fresh."""
        room = -(-self.spans[which, 1] // ALIGN) * ALIGN
        ends = np.cumsum(room)
        targets = np.empty(len(which), np.int64)
        low, any_fresh = 0, False
        while low < len(which):
            begin = ends[low] - room[low]
            high = max(low + 1, int(np.searchsorted(ends, begin + SLAB, "right")))
            slab, fresh = outputs.new_bytes(8 * (int(ends[high - 1] - begin) + ALIGN))
            any_fresh |= fresh
            shift = -address_of(slab) % ALIGN
            starts = ends[low:high] - room[low:high] - begin
            targets[low:high] = address_of(slab) + shift + starts
            aligned = slab[shift : slab.size - ALIGN + shift]
            self._arrays(which[low:high], aligned, starts, results)
            low = high
        return targets, any_fresh

    def _arrays(
        self, which: Addresses, slab: NDArray[np.uint8], starts: Addresses, results: list[Any]
    ) -> None:
        """The results that begin at `starts` of a slab, in their own dtypes and shapes."""
        dtypes = self.spans[which, 4]
        for address in distinct(dtypes).tolist():
            own = dtypes == address
            indices, firsts = which[own], starts[own]
            dtype = self.items[indices[0]].dtype
            rows: Any = self._alike(indices, firsts, dtype, slab)
            if rows is None and ALIGN % dtype.itemsize:
                places = zip(map(self._dims, indices.tolist()), firsts.tolist(), strict=True)
                rows = [np.ndarray(dims, dtype, slab.data, first) for dims, first in places]
            elif rows is None:
                base, lows = slab.view(dtype), firsts // dtype.itemsize
                highs = lows + self.spans[indices, 1] // dtype.itemsize
                bounds = zip(lows.tolist(), highs.tolist(), strict=True)
                rows = [base[low:high] for low, high in bounds]
                others = np.flatnonzero(self.ranks[indices] != 1)
                for k, i in zip(others.tolist(), indices[others].tolist(), strict=True):
                    rows[k] = rows[k].reshape(self._dims(i))
            for i, row in zip(indices.tolist(), rows, strict=True):
                results[i] = row

    def _dims(self, i: int) -> list[int]:
        """The resolved shape of a tensor."""
        return list(self.targets[self.shapes.starts[i] : self.shapes.starts[i + 1]].tolist())

    def _alike(
        self, which: Addresses, firsts: Addresses, dtype: np.dtype[Any], slab: NDArray[np.uint8]
    ) -> NDArray[Any] | None:
        """Results of one shape that are evenly spaced, as one array; None for others."""
        rank, steps = int(self.ranks[which[0]]), np.diff(firsts)
        even = len(steps) and rank and (steps == steps[0]).all()
        if not even or (self.ranks[which] != rank).any() or rank == MAX_RANK:
            return None
        dims = self.targets[self.shapes.starts[which][:, None] + np.arange(rank)]
        if (dims != dims[0]).any():
            return None
        shape = (*dims[0].tolist(),)
        strides = Layout.row_major(shape, dtype.itemsize).strides
        every = (len(which), *shape), dtype, slab.data, int(firsts[0]), (int(steps[0]), *strides)
        return np.ndarray(*every)

    def _check_outs(self) -> Addresses:
        """The addresses of `outs`; raises if one does not fit, or overlaps a source or another."""
        items, outs = self.items, self.outs
        assert outs is not None
        sources, addresses = self.spans[:, 2:4].T.copy(), self.spans[:, 5].copy()
        targets = np.stack([addresses, addresses + self.spans[:, 1]])
        alone = self.verdicts == APART
        for i in np.flatnonzero((addresses == 0) | alone).tolist():
            if not alone[i]:
                self._check(i)
                addresses[i] = address_of(outs[i])
            sources[:, i], targets[:, i] = span_of(items[i]), span_of(outs[i])
        outputs.check_disjoint((targets[0], targets[1]), self.names)
        outputs.check_all_apart(
            (sources[0], sources[1]),
            (targets[0], targets[1]),
            lambda i: bit_address_of(items[i]),
            self.names,
        )
        return addresses
