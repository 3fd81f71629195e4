"""Benchmarks of packed tensors: copies, pack and unpack; NumPy has one element per byte."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import ttc, workloads
from .cases import MIB, OURS, Copy, Ints, Look, Ways, bits_of, permuted
from .worker import pattern

GROUP = "packed"
NBYTES = 32 * MIB


@dataclass(frozen=True)
class Packed(Copy):
    """A copy of a packed Tensor, or of joined parts; `work` is copy, pack or unpack."""

    work: str = "copy"

    @property
    def moved(self) -> int:
        """Half the bytes that are read and written: codes have a byte each."""
        if self.work in ("pack", "unpack"):
            return (self.source_nbytes + prod(self.shape)) // 2
        return super().moved

    def view(self, base: Any) -> Any:
        """The view of a Tensor or of an ndarray of codes; of a Tensor also a list of parts."""
        return super().view(base) if self.axes is None else permuted(base, self.axes)

    def ways(self, sj: Any) -> Ways:
        """Ours, and NumPy's: unpack, permute, pack."""
        bits, size = bits_of(self.dtype), prod(self.shape)
        if self.work == "pack":
            codes = (pattern(size) & np.uint8((1 << bits) - 1)).reshape(self.shape)
            return {
                OURS: partial(sj.pack, codes, self.dtype),
                "numpy": partial(packed_by_numpy, codes.reshape(-1), bits),
            }
        raw = pattern(self.source_nbytes)
        tensor = sj.Tensor.frombuffer(raw, self.dtype, self.shape)
        if self.work == "unpack":
            plainly = partial(unpacked_by_numpy, raw, bits, size)
            return {OURS: lambda: tensor.unpack().view(np.uint8), "numpy": plainly}
        memory = np.full(self.moved, 0, np.uint8)
        out = sj.Tensor.frombuffer(memory, self.dtype, self.result_shape)
        seen = self.view(tensor)
        ours = partial(sj.concat, axis=-1) if isinstance(seen, list) else sj.ascontiguous

        def by_numpy() -> NDArray[np.uint8]:
            codes = unpacked_by_numpy(raw, bits, size).reshape(self.shape)
            return packed_by_numpy(np.ascontiguousarray(self.view(codes)).ravel(), bits)

        return {OURS: partial(ours, seen, out=out), "numpy": by_numpy}


def unpacked_by_numpy(raw: NDArray[np.uint8], bits: int, size: int) -> NDArray[np.uint8]:
    """`size` codes of packed bytes, a byte each."""
    mask = np.uint8((1 << bits) - 1)
    if 8 % bits == 0:
        codes = np.empty((raw.size, 8 // bits), np.uint8)
        for k in range(8 // bits):
            np.bitwise_and(raw >> np.uint8(k * bits), mask, out=codes[:, k])
        return codes.reshape(-1)[:size]
    # Three bytes are one word of several whole elements.
    groups = np.zeros((-(-raw.size // 3), 4), np.uint8)
    whole = raw.size // 3
    groups[:whole, :3] = raw[: 3 * whole].reshape(-1, 3)
    groups[whole:, : raw.size % 3] = raw[3 * whole :]
    words = groups.view(np.uint32).reshape(-1)
    codes = np.empty((words.size, 24 // bits), np.uint8)
    for k in range(24 // bits):
        codes[:, k] = words >> np.uint32(k * bits) & np.uint32(mask)
    return codes.reshape(-1)[:size]


def packed_by_numpy(codes: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """The packed bytes of codes."""
    nbytes = -(-codes.size * bits // 8)
    word, kind = (8, "u1") if 8 % bits == 0 else (24, "u4")
    per_word = word // bits
    if codes.size % per_word:
        codes = np.concatenate([codes, np.zeros(-codes.size % per_word, np.uint8)])
    groups = codes.reshape(-1, per_word)
    words: NDArray[Any] = groups[:, 0].astype(kind)
    for k in range(1, per_word):
        words |= groups[:, k].astype(kind) << np.dtype(kind).type(k * bits)
    return words.view(np.uint8).reshape(words.size, -1)[:, : word // 8].reshape(-1)[:nbytes]


_WORKLOAD_NAMES = ("heads-split", "nchw-to-nhwc", "patchify", "kv-cache")
_PLANE = (16384, 8192)
_IMAGE_SHAPE = (900, 224, 224, 3)

_TRANSPOSED: tuple[tuple[str, tuple[tuple[int, int], ...]], ...] = (
    ("int4", ((16384, 8192), (8192, 28672), (151936, 3584))),
    ("int2", ((16384, 16384),)),
    ("float6_e2m3fn", ((8192, 11008), (9461, 9463), (3, 2**25))),
    ("uint3", ((16384, 11008), (13377, 13379))),
    ("int4", ((11587, 11589), (16384, 8193), (16387, 8192))),
    ("uint1", ((32768, 16384),)),
)
_VIEWS: tuple[tuple[str, Ints, Look], ...] = (
    ("rows-from-1", (16384, 8194), lambda t: t[:, 1:]),
    ("rows-inner", (16384, 8195), lambda t: t[:, 1:-1]),
    ("run-from-1", (2**27 + 3,), lambda t: t[1:]),
    ("flip-inner", _PLANE, lambda t: t[:, ::-1]),
    ("flip-outer", _PLANE, lambda t: t[::-1]),
    ("flip-both", _PLANE, lambda t: t[::-1, ::-1]),
    ("slice-step2", (16384, 16384), lambda t: t[:, ::2]),
    ("slice-rows", (32768, 8192), lambda t: t[::2]),
    ("channels-reversed", _IMAGE_SHAPE, lambda t: t[..., ::-1]),
)


def cases() -> tuple[Packed, ...]:
    """All cases of the group, each of about `NBYTES`."""
    made = [case.scaled(min(1.0, NBYTES / case.source_nbytes)) for case in _cases()]
    return tuple(made)


def _cases() -> Iterator[Packed]:
    for kind, shapes in _TRANSPOSED:
        for shape in shapes:
            yield Packed(GROUP, f"transposed-{shape[0]}x{shape[1]}/{kind}", kind, shape, (1, 0))
    for kind in ("int4", "float4_e2m1fn"):
        for workload in workloads.WORKLOADS:
            for sizes in workload.shapes if workload.name in _WORKLOAD_NAMES else ():
                name = f"{workload.name}-{'x'.join(map(str, sizes))}/{kind}"
                yield Packed(GROUP, name, kind, sizes, workload.axes).batched(NBYTES)
        for number in ttc.SUBSET:
            yield Packed(GROUP, f"ttc-{number:02}/{kind}", kind, *ttc.CASES[number - 1])
    for name, sizes, look in _VIEWS:
        yield Packed(GROUP, f"{name}/int4", "int4", sizes, look=look)
    yield Packed(GROUP, "channels-first/int4", "int4", _IMAGE_SHAPE, (0, 3, 1, 2))
    yield Packed(GROUP, "concat-odd/int4", "int4", (16384, 8195), look=_odd_parts)
    for work in ("pack", "unpack"):
        for kind, size in (("int4", 2**27), ("int2", 2**28), ("float6_e2m3fn", 3 * 2**25)):
            yield Packed(GROUP, f"{work}/{kind}", kind, (size,), (0,), work=work)


def _odd_parts(t: Any) -> Any:
    """Parts that begin within bytes; of an ndarray, their concatenation."""
    third = t.shape[1] // 6 * 2 + 1
    parts = [t[:, third:], t[:, : third // 2], t[:, third // 2 : third]]
    return np.concatenate(parts, -1) if isinstance(t, np.ndarray) else parts
