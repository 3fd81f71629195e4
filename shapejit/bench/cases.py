"""A benchmark case: a name, a group, the ways to do it, and the bytes that it moves."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

import ml_dtypes  # noqa: F401  # lets NumPy know its names of dtypes
import numpy as np
from numpy.typing import NDArray

from .worker import pattern

MIB = 1024 * 1024
OURS = "shapejit"  # the way that is measured beside the others

_KEPT = 8  # dims up to this size make a case what it is, such as 3 channels or 4 x 4 patches
_PERIOD = 16  # a scaled dim keeps its remainder: rows that lay off the cache lines still do

Ints = tuple[int, ...]  # a shape, or axes
Look = Callable[[Any], Any]  # what is made of an array
Way = Callable[[], Any]
Ways = dict[str, Way]
Make = Callable[[Any, int], Ways]
Read = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Case(ABC):
    """A case with several ways to do it, which are timed interleaved."""

    group: str
    name: str

    @property
    def id(self) -> str:
        """GROUP/NAME, which `--case` searches."""
        return f"{self.group}/{self.name}"

    @property
    def moved(self) -> int:
        """Half the bytes that are read and written: a memcpy of so many bytes has equal traffic."""
        return 0

    @property
    def job(self) -> dict[str, Any] | None:
        """The request for peers in their own processes; None if they cannot do it."""
        return None

    @abstractmethod
    def ways(self, sj: Any) -> Ways:
        """Functions without arguments by name, `OURS` first, made with the given package.

        Those that return something return equal `result`s.
        """

    def result(self, sj: Any, made: Any) -> Any:
        """The part of a return value that is compared."""
        return made

    def scaled(self, factor: float) -> Case:
        """The case with about `factor` times the bytes."""
        return self


@dataclass(frozen=True)
class CallCase(Case):
    """A case whose ways are made by a function `make(sj, nbytes)`, for about `nbytes` bytes.

    `read(sj, made)` returns its `result`, if that is not what the ways return.
    """

    make: Make
    nbytes: int = 0
    moves: bool = False  # whether it copies just these bytes
    read: Read | None = None

    @property
    def moved(self) -> int:
        """The bytes, if all are copied once."""
        return self.nbytes if self.moves else 0

    def ways(self, sj: Any) -> Ways:
        """The results of `make`."""
        return self.make(sj, self.nbytes)

    def result(self, sj: Any, made: Any) -> Any:
        """The result of `read`."""
        return made if self.read is None or made is None else self.read(sj, made)

    def scaled(self, factor: float) -> Case:
        """The case with about `factor` times the bytes."""
        return replace(self, nbytes=int(self.nbytes * factor))


@dataclass(frozen=True)
class Copy(Case):
    """A row-major array of `shape` and `dtype`, viewed in another order and copied to row-major.

    The view is a permutation of dims, `axes`, or the result of `look`. The output starts `shift`
    bytes after an allocation. `fresh` copies have no out=.
    """

    dtype: str
    shape: Ints
    axes: Ints | None = None
    look: Look | None = None
    shift: int = 0
    fresh: bool = False

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return bits_of(self.dtype) // 8

    @property
    def source_nbytes(self) -> int:
        """Bytes of the array, packed if its elements are."""
        return packed_nbytes(self.shape, self.dtype)

    @property
    def moved(self) -> int:
        """Bytes of the result; for a slice or broadcast, not those of the array."""
        return packed_nbytes(self.result_shape, self.dtype)

    @property
    def result_shape(self) -> Ints:
        """The shape of the view, computed without memory."""
        shape: Ints = self.view(np.broadcast_to(np.uint8(0), self.shape)).shape
        return shape

    def view(self, base: Any) -> Any:
        """The view of an array of this case's shape that a copy makes row-major."""
        return base.transpose(self.axes) if self.look is None else self.look(base)

    def ways(self, sj: Any) -> Ways:
        """Ours and NumPy's, which gets its fastest type of that width."""
        view = self.view(filled(self.shape, self.dtype))
        # As `shift` asks, and mapped before the clock runs.
        memory = np.full(self.shift + view.nbytes, 0, np.uint8)
        out = memory[self.shift :].view(self.dtype).reshape(view.shape)
        ours = partial(sj.ascontiguous, view, out=out)
        if not self.fresh:
            return {OURS: ours, "numpy": partial(assigned, plain(out), plain(view))}
        by_numpy = partial(np.ascontiguousarray, plain(view))
        return {OURS: partial(sj.ascontiguous, view), "out=": ours, "numpy": by_numpy}

    @property
    def job(self) -> dict[str, Any] | None:
        """The copy in numbers: strides and offset count elements. No peer has packed elements."""
        if bits_of(self.dtype) < 8:
            return None
        # Never written nor read: its pages are not even mapped.
        base = np.empty(self.shape, np.dtype((np.void, self.itemsize)))
        view, whole = self.view(base), base.transpose(self.axes)
        permuted = (view.shape, view.strides) == (whole.shape, whole.strides)
        return {
            "itemsize": self.itemsize,
            "base": self.shape,
            "axes": self.axes if permuted else None,
            "shape": view.shape,
            "strides": [s // self.itemsize for s in view.strides],
            "offset": (view.ctypes.data - base.ctypes.data) // self.itemsize,
            "shift": self.shift,
            "fresh": self.fresh,
        }

    def batched(self, nbytes: int) -> Any:
        """The case with at least `nbytes` bytes; dim 0 of a permutation, or a new one, grows."""
        assert self.axes is not None
        times = -(-nbytes // self.source_nbytes)
        if times == 1:
            return self
        if self.axes[0] == 0:
            return replace(self, shape=(times * self.shape[0], *self.shape[1:]))
        return replace(self, shape=(times, *self.shape), axes=(0, *(1 + a for a in self.axes)))

    def scaled(self, factor: float) -> Any:
        """The case with about `factor` times the bytes: all larger dims are scaled alike."""
        return self if factor == 1 else replace(self, shape=_scaled(self.shape, factor))


def rows(
    group: str, table: Mapping[str, Make], nbytes: int = 0, reads: Mapping[str, Read] | None = None
) -> list[CallCase]:
    """The cases of a table."""
    found = reads or {}
    return [
        CallCase(group, name, make, nbytes, read=found.get(name)) for name, make in table.items()
    ]


def ways_of(case: Case, sj: Any, nbytes: int) -> Ways:
    """The ways of a case of about `nbytes` bytes, for a CallCase of another name."""
    return case.scaled(nbytes / case.moved).ways(sj)


def permuted(x: Any, axes: Ints) -> Any:
    """An ndarray, a Tensor or a traced tensor with its dims permuted."""
    return x.transpose(axes) if isinstance(x, np.ndarray) else x.permute_dims(axes)


def bits_of(dtype: str) -> int:
    """The width of an element, by the name of its dtype.

    >>> bits_of("float6_e2m3fn"), bits_of("bfloat16"), bits_of("int4")
    (6, 16, 4)
    """
    found = re.search(r"\d+", dtype)
    assert found is not None
    return int(found[0])


def named(name: str, shape: Ints, axes: Sequence[int], dtype: str) -> str:
    """The name of a case that permutes dims.

    >>> named("heads", (8, 32, 64), (1, 0, 2), "uint8")
    'heads-8x32x64-102/uint8'
    """
    return f"{name}-{'x'.join(map(str, shape))}-{''.join(map(str, axes))}/{dtype}"


def packed_nbytes(shape: Ints, dtype: str) -> int:
    """The bytes of packed elements."""
    return -(-prod(shape) * bits_of(dtype) // 8)


def filled(shape: Ints, dtype: Any) -> NDArray[Any]:
    """An array of pseudo-random bytes."""
    kind: np.dtype[Any] = np.dtype(dtype)
    made: NDArray[Any] = pattern(prod(shape) * kind.itemsize).view(kind).reshape(shape)
    return made


def plain(x: NDArray[Any]) -> NDArray[Any]:
    """The same elements as a NumPy type of that width."""
    size = x.dtype.itemsize
    return x.view(np.dtype("complex128") if size == 16 else np.dtype(f"u{size}"))


def assigned(out: NDArray[Any], x: NDArray[Any]) -> NDArray[Any]:
    """`out`, filled by NumPy."""
    np.copyto(out, x)
    return out


def _scaled(shape: Ints, factor: float) -> Ints:
    """The shape with about `factor` times the elements.

    >>> _scaled((7264, 7264), 0.25), _scaled((4095, 4097), 0.25), _scaled((2, 2, 2), 0.25)
    ((3632, 3632), (2047, 2049), (1, 1, 2))
    """
    wanted = factor * prod(shape)
    if max(shape, default=1) <= _KEPT:
        gone = next((k for k in range(len(shape)) if prod(shape[k:]) <= wanted), len(shape))
        return (1,) * gone + shape[gone:]
    low, high = 0.0, max(1.0, factor)
    for _ in range(40):
        middle = (low + high) / 2
        if prod(_dims(shape, middle)) < wanted:
            low = middle
        else:
            high = middle
    return min(_dims(shape, low), _dims(shape, high), key=lambda dims: abs(prod(dims) - wanted))


def _dims(shape: Ints, ratio: float) -> Ints:
    return tuple(_dim(size, ratio) for size in shape)


def _dim(size: int, ratio: float) -> int:
    if size <= _KEPT:
        return size
    # Dims below 128 would jump too far: they stay even or odd.
    period = _PERIOD if size * ratio >= 8 * _PERIOD else 2
    rest = size % period
    return max(_KEPT, period * round((size * ratio - rest) / period)) + rest
