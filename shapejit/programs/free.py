"""A function of one Tensor whose dim 0 has any length: a Program for each length that comes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..arrays import is_a, plain
from ..dtypes import DType
from ..errors import DTypeError, ReshapeError, about
from ..recent import Recent
from ..tensor import Tensor, is_array

if TYPE_CHECKING:
    from .program import Program

KEPT = 64  # lengths whose Programs are remembered


@dataclass(frozen=True, eq=False)
class FreeProgram:
    """What `plan` makes of a shape whose dim 0 is None; `fn` is traced for each new length.

    >>> import numpy as np
    >>> import shapejit as sj
    >>> rows = sj.plan((None, 2), "uint8", lambda t: t.T.cast("float32"))
    >>> [rows(np.ones((n, 2), np.uint8)).shape for n in (1, 3)]
    [(2, 1), (2, 3)]
    """

    shape: tuple[int, ...]  # without dim 0
    dtype: DType
    fn: Callable[[Tensor], Tensor]
    make: Callable[[tuple[int, ...], DType, Callable[[Tensor], Tensor]], Program]
    _known: Recent[int, Program] = field(default_factory=lambda: Recent(KEPT), init=False)

    def of(self, length: int) -> Program:
        """The Program for one length of dim 0 (elements)."""
        program = self._known.get(length)
        if program is None:
            program = self.make((length, *self.shape), self.dtype, self.fn)
            self._known.put(length, program)
        return program

    def __call__(self, x: Any, out: Any = None) -> Any:
        """As `Program.__call__`, for an array of any length. Raises ReshapeError, DTypeError."""
        return self.of(self._length(x))(x, out)

    def map(self, tensors: Iterable[Any], out: Sequence[Any] | None = None) -> list[Any]:
        """As `Program.map` of a sequence: a list of results; one launch per length.

        `out` is a sequence of as many arrays, which becomes the list.
        """
        items = list(tensors)
        outs = None if out is None else list(out)
        if outs is not None and len(outs) != len(items):
            raise ReshapeError(f"out= holds {len(outs)} arrays for {len(items)} tensors")
        lengths: dict[int, list[int]] = {}
        for i, x in enumerate(items):
            with about(f"tensor {i}"):
                lengths.setdefault(self._length(x), []).append(i)
        results: list[Any] = [None] * len(items)
        for length, which in lengths.items():
            targets = None if outs is None else [outs[i] for i in which]
            made = self.of(length).map([items[i] for i in which], targets)
            for i, result in zip(which, made, strict=True):
                results[i] = result
        return results

    def _length(self, x: Any) -> int:
        if not is_array(x):
            raise DTypeError(f"expected an ndarray or a Tensor, not {type(x).__name__}")
        shape = x.shape if is_a(x, Tensor) else plain(x).shape
        if shape[1:] != self.shape or not shape:
            want = ", ".join(["n", *map(str, self.shape)])
            raise ReshapeError(f"a tensor for this program has shape ({want}), not {shape}")
        return int(shape[0])
