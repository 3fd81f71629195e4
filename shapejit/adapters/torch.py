"""For torch's DataLoader: a `collate_fn` that copies and converts a batch in one pass.

>>> from torch.utils.data import DataLoader
>>> import shapejit as sj
>>> images = [(np.full((4, 4, 3), i, np.uint8), i) for i in range(6)]
>>> for batch, labels in DataLoader(images, batch_size=3, collate_fn=collate_fn):
...     print(tuple(batch.shape), labels.tolist())
(3, 4, 4, 3) [0, 1, 2]
(3, 4, 4, 3) [3, 4, 5]
>>> load = sj.plan((4, 4, 3), "uint8", lambda t: t.permute_dims((2, 0, 1)).dequantize(1 / 255))
>>> batch, labels = next(iter(DataLoader(images, batch_size=6, collate_fn=Collate(load))))
>>> tuple(batch.shape), batch.dtype
((6, 3, 4, 4), torch.float32)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from multiprocessing import reduction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.foreign import native
from ..arrays.libraries import library
from ..dtypes.table import DType, fixed_width
from ..engine import outputs
from ..errors import DTypeError, ReshapeError, ShapeJitError, about
from ..operations.joining import stack
from ..programs.program import Program
from ..programs.sources import check_source
from ..runtime.ndarrays import is_a, plain
from ..runtime.system import SHARES_MEMORY
from .shared_slabs import Sent, Slabs, received

try:
    import torch
    from torch.multiprocessing.reductions import reduce_tensor
    from torch.utils.data import get_worker_info
    from torch.utils.data._utils.collate import collate, default_collate_fn_map
except ImportError as missing:
    raise ImportError(
        "shapejit.adapters.torch needs torch: pip install 'shapejit[torch]'", name="torch"
    ) from missing

Allocate = Callable[[tuple[int, ...], np.dtype[Any]], NDArray[Any]]


class Collate:
    """A `collate_fn` that stacks samples as torch's `default_collate` does, with fewer copies.

    Arrays and tensors within the samples, at any nesting, are copied straight into one tensor;
    torch collates numbers and strings. `program` (a permutation, a cast, a normalisation) is
    applied in the same pass to arrays of its dtype and shape; a free dim 0 matches any length. All
    others are only stacked. A batch is refused if the program fits none of its arrays, or some
    arrays that would be stacked, and not all. Torch collates tensors of a subclass that do not
    match, and keeps the subclass.

    On Linux, in a worker process of a DataLoader, the batch is in shared memory, which the main
    process maps, and which is reused once that process has freed the batch. `allocate` (shape,
    dtype) may return another ndarray to write to, such as a slab in
    `multiprocessing.shared_memory`; then a batch must not be used after the next one is requested.
    Instances pickle.

    Raises what `default_collate` raises; with a program DTypeError, ReshapeError and FormatError
    for arrays that it does not fit, or whose memory NumPy cannot read, such as those with grad.

    >>> Collate()([{"x": np.zeros(2), "y": "a"}, {"x": np.ones(2), "y": "b"}])
    {'x': tensor([[0., 0.],
            [1., 1.]], dtype=torch.float64), 'y': ['a', 'b']}
    """

    def __init__(self, program: Program | None = None, *, allocate: Allocate | None = None) -> None:
        if program is not None and not is_a(program, Program):
            raise DTypeError(
                f"program must be a Program, made by plan(), not {type(program).__name__}"
            )
        self.program = program
        self.allocate = allocate

    def __call__(self, batch: Sequence[Any]) -> Any:
        """The samples as one batch."""
        misfits: list[ShapeJitError | None] = []  # why the program does not fit arrays

        def stacked(arrays: Sequence[Any], *, collate_fn_map: Any = None) -> Any:
            return self._stacked(arrays, misfits)

        own = {np.ndarray: stacked, torch.Tensor: stacked}
        made = collate(batch, collate_fn_map={**default_collate_fn_map, **own})
        if misfits and None not in misfits:
            raise ReshapeError(f"no array of the samples fits the program: {misfits[0]}")
        return made

    def _stacked(self, batch: Sequence[Any], misfits: list[ShapeJitError | None]) -> Any:
        """Arrays or tensors as one tensor; one of `misfits` is added."""
        items, program = _arrays(batch), self.program
        if program is not None:
            found = [self._misfit(x) for x in (batch if items is None else items[:1])]
            wrong = next(filter(None, found), None)
            if wrong is not None and None in found:
                with about(f"sample {found.index(wrong)}"):
                    raise wrong
            misfits.append(wrong)
            program = program.fitted(items[0].shape) if items and wrong is None else None
        if items is None:
            return _by_torch(batch)
        first = items[0]
        kind = fixed_width(first.dtype) if program is None else program.result_dtype
        # Of elements narrower than a byte torch has only pairs.
        held = kind.numpy is not None and kind.torch is not None and not kind.packed
        if program is None:
            subclass = any(is_a(x, torch.Tensor) and type(x) is not torch.Tensor for x in batch)
            if subclass or not held:
                return _by_torch(batch)
        elif not held:
            return library(torch.Tensor).leave(program.map(np.stack(items)), None)
        shape = len(items), *(program or first).shape
        target, made = self._allocated(shape, kind, prod(shape) * kind.bits // 8)
        if program is None:
            stack(items, out=target)
        else:
            program.map(items, out=target)
        return made

    def _misfit(self, x: Any) -> ShapeJitError | None:
        """Why an array or tensor is not of the program's shape and dtype, if it is not."""
        program = self.program
        assert program is not None
        try:
            array = plain(x) if is_a(x, np.ndarray) else native(x)
            check_source(array, False, program.dtype, program.source_shape)
        except ShapeJitError as error:
            return error
        return None

    def _allocated(
        self, shape: tuple[int, ...], kind: DType, nbytes: int
    ) -> tuple[NDArray[Any], Any]:
        """Memory for a batch, and the tensor over it."""
        assert kind.numpy is not None
        slab = None
        if self.allocate is not None:
            target = self.allocate(shape, kind.numpy)
        elif get_worker_info() is None or not (nbytes and SHARES_MEMORY):
            target = outputs.new_array(kind.numpy, shape)[0]
        else:
            slab = _slabs_of(os.getpid()).take(nbytes)
            target = slab.memory(nbytes).view(kind.numpy).reshape(shape)
        memory = target.reshape(-1).view(np.uint8)
        made = torch.from_numpy(memory).view(getattr(torch, str(kind.torch))).view(shape)
        if slab is not None:
            made = made.as_subclass(_InSlab)
            made.slab = slab
        return target, made


collate_fn = Collate()


class _InSlab(torch.Tensor):  # type: ignore[misc]  # Any: torch is not type-checked
    """A batch in a slab: a queue sends its memory, not its contents.

    Operations on it return ordinary tensors.
    """

    __torch_function__ = torch._C._disabled_torch_function_impl

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.as_subclass(torch.Tensor).__reduce_ex__(protocol)


def _reduced(batch: Any) -> Any:
    plain_tensor = batch.as_subclass(torch.Tensor)
    sent = batch.slab.sent()
    if sent is None:
        return reduce_tensor(plain_tensor)
    return _received, (sent, tuple(batch.shape), batch.dtype)


def _received(sent: Sent, shape: tuple[int, ...], kind: Any) -> Any:
    memory = received(sent)
    return torch.from_numpy(memory[: prod(shape) * kind.itemsize]).view(kind).view(shape)


reduction.ForkingPickler.register(_InSlab, _reduced)


@lru_cache(maxsize=1)
def _slabs_of(process: int) -> Slabs:
    """The slabs of a process: after a fork the child has its own."""
    return Slabs()


def _arrays(batch: Sequence[Any]) -> list[NDArray[Any]] | None:
    """The samples as ndarrays, if they have one kind and NumPy can read their memory."""
    try:
        items = [plain(x) if is_a(x, np.ndarray) else native(x) for x in batch]
        first = items[0]
        fixed_width(first.dtype)
    except ShapeJitError:
        return None
    alike = all(type(x) is np.ndarray and x.dtype == first.dtype for x in items)
    return items if alike and len({x.shape for x in items}) == 1 else None


def _by_torch(batch: Sequence[Any]) -> Any:
    """The result, or the error, of torch's `default_collate`."""
    return collate(batch, collate_fn_map=default_collate_fn_map)
