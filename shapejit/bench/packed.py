"""The suite of packed tensors: views on the bits themselves, pack and unpack, and rivals to them.

A rival does what is done without packed arrays: it unpacks to a byte an element,
lets NumPy move the bytes, and packs them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.tensor import Tensor, asarray
from ..dtypes.table import DType, dtype
from ..operations import joining, views
from . import ttc, workloads
from .cases import MIB, Case, pattern

SUITE = "packed"
RIVAL_BYTES = 4 * MIB  # packed; a rival takes about a second for 64 MiB
_CHUNK = 8 * MIB  # elements that are proved together
_TTC_BYTES = 88 * MIB  # roundly: small dims jump far
_ONNX = ("int4", "uint4", "int2", "uint2", "float4_e2m1fn")  # what onnx.numpy_helper packs

# Which figure of a group has a limit.
WORST, MEAN, TOLD = "worst at most", "mean at most", "no limit"


@dataclass(frozen=True)
class Group:
    """Cases with one limit: their time / memcpy, `limit`, in the worst case or on the mean."""

    name: str
    limit: float | None = None
    counts: str = WORST

    def __str__(self) -> str:
        return self.name if self.limit is None else f"{self.name}: {self.counts} {self.limit}"


@dataclass(frozen=True)
class PackedCase(Case):
    """A Case of a packed Tensor: `work` is copy, concat (of what `look` gives), pack or unpack.

    `pack` makes the packed Tensor of `shape` from codes, `unpack` the reverse.
    """

    group: Group = Group("views", None, TOLD)
    work: str = "copy"

    @property
    def _kind(self) -> DType:
        return dtype(self.dtype)

    @property
    def source_nbytes(self) -> int:
        """Packed bytes of the array."""
        return self._kind.nbytes(prod(self.shape))

    @property
    def nbytes(self) -> int:
        """Packed bytes of the result, or of what is unpacked."""
        return self._kind.nbytes(prod(self._result_shape))

    @property
    def part(self) -> str:
        """The group and its limit."""
        return str(self.group)

    @property
    def moved(self) -> int:
        """Half the bytes that are read and written: so many does a memcpy of as many copy."""
        unpacked = prod(self.shape) if self.work in ("pack", "unpack") else self.nbytes
        return (self.nbytes + unpacked) // 2

    @property
    def _result_shape(self) -> tuple[int, ...]:
        seen = self.view(np.broadcast_to(np.empty((), np.uint8), self.shape))
        if isinstance(seen, list):
            return (*seen[0].shape[:-1], sum(part.shape[-1] for part in seen))
        shape: tuple[int, ...] = seen.shape
        return shape

    def view(self, base: Any) -> Any:
        """The view of a Tensor or an ndarray of codes; a list of parts for concat."""
        if self.look is not None:
            return self.look(base)
        return base if self.axes is None else views.permute_dims(base, self.axes)

    def source(self) -> Any:
        """A Tensor of bytes that look random; for pack an ndarray of codes."""
        if self.work == "pack":
            codes = pattern(prod(self.shape))
            codes &= (1 << self._kind.bits) - 1
            return codes.view(self._kind.codes).reshape(self.shape)
        return Tensor.frombuffer(pattern(self.source_nbytes), self.dtype, self.shape)

    def output(self) -> Any:
        """Mapped memory for the result: a Tensor; for unpack an ndarray of codes."""
        shape = self._result_shape
        if self.work == "unpack":
            return _mapped(prod(shape)).view(self._kind.codes).reshape(shape)
        return Tensor.frombuffer(_mapped(self.nbytes), self.dtype, shape)

    def ours(self, base: Any, out: Any) -> Callable[[], object]:
        """The call that is measured."""
        seen = self.view(base)
        match self.work:
            case "concat":
                return lambda: joining.concat(seen, axis=-1, out=out)
            case "unpack":
                return lambda: seen.unpack(out)
            case "pack":
                # What `pack` ends in; codes of ml_dtypes are a Tensor a byte apart.
                return lambda: views.ascontiguous(asarray(seen), out=out)
        return lambda: views.ascontiguous(seen, out=out)

    def rivals_case(self, most: float) -> PackedCase:
        """What rivals are measured with: a case of `most` bytes where they would take long."""
        smaller = self.scaled(min(1, most / self.nbytes))
        assert isinstance(smaller, PackedCase)
        return smaller

    def rivals(self) -> dict[str, Callable[[], object]]:
        """The same with NumPy and ml_dtypes, and with onnx.numpy_helper where it can."""
        ways: dict[str, Callable[[], object]] = {
            "numpy": self._by(unpacked_by_numpy, packed_by_numpy)
        }
        if self.dtype in _ONNX and find_spec("onnx") is not None:
            ways["onnx"] = self._by_onnx()
        return ways

    def _by(
        self,
        unpacked: Callable[[NDArray[np.uint8], int, int], NDArray[np.uint8]],
        packed: Callable[[NDArray[np.uint8], int], NDArray[np.uint8]],
    ) -> Callable[[], object]:
        base, kind, bits = self.source(), self._kind, self._kind.bits
        if self.work == "pack":
            return lambda: packed(base.view(np.uint8), bits)
        raw, size = raw_of(base), prod(self.shape)

        def run() -> object:
            codes = unpacked(raw, bits, size).view(kind.codes).reshape(self.shape)
            if self.work == "unpack":
                return codes
            moved = np.ascontiguousarray(_joined(self.view(codes.view(np.uint8))))
            return packed(moved.reshape(-1), bits)

        return run

    def _by_onnx(self) -> Callable[[], object]:
        from onnx import numpy_helper

        base = self.source()
        if self.work == "pack":
            return lambda: numpy_helper.from_array(base)
        proto = numpy_helper.from_array(base.unpack())
        if self.work == "unpack":
            return lambda: numpy_helper.to_array(proto)

        def run() -> object:
            moved = _joined(self.view(numpy_helper.to_array(proto)))
            return numpy_helper.from_array(np.ascontiguousarray(moved))

        return run

    def asked(self) -> dict[str, Any] | None:
        """The work that peers are asked for (see `peer_numbers`); None: they have none such."""
        return None

    def proved(self, base: Any, out: Any) -> bool:
        """Whether our result is, bit for bit, what NumPy makes of codes."""
        bits, size = self._kind.bits, prod(self.shape)
        codes = raw_of(base)
        if self.work != "pack":
            codes = unpacked_by_numpy(codes, bits, size)
        if self.work == "unpack":
            return np.array_equal(raw_of(out), codes)
        made = raw_of(out)
        at = 0
        for part in _chunks(_joined(self.view(codes.reshape(self.shape)))):
            expected = packed_by_numpy(part.reshape(-1), bits)
            if not np.array_equal(made[at : at + expected.size], expected):
                return False
            at += expected.size
        return at == made.size


def raw_of(x: Any) -> NDArray[np.uint8]:
    """The bytes of a row-major ndarray or of a Tensor's buffer."""
    raw: NDArray[np.uint8] = x.buffer if isinstance(x, Tensor) else x.reshape(-1).view(np.uint8)
    return raw


def _mapped(nbytes: int) -> NDArray[np.uint8]:
    return np.full(nbytes, 0, np.uint8)


def _joined(x: Any) -> Any:
    return np.concatenate(x, -1) if isinstance(x, list) else x


def _chunks(x: NDArray[np.uint8]) -> Iterator[NDArray[np.uint8]]:
    """Consecutive parts of an array, each of them but the last one a multiple of 8 elements."""
    if x.ndim == 0 or x.size <= _CHUNK:
        yield x
        return
    row = x.size // len(x)
    step = 8 * max(1, _CHUNK // (8 * row))
    for first in range(0, len(x), step):
        yield x[first : first + step]


def unpacked_by_numpy(raw: NDArray[np.uint8], bits: int, size: int) -> NDArray[np.uint8]:
    """`size` codes, a byte each, of packed bytes."""
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
    per_word = 8 // bits if 8 % bits == 0 else 24 // bits
    if codes.size % per_word:
        codes = np.concatenate([codes, np.zeros(-codes.size % per_word, np.uint8)])
    groups = codes.reshape(-1, per_word)
    if 8 % bits == 0:
        packed = groups[:, 0].copy()
        for k in range(1, per_word):
            packed |= groups[:, k] << np.uint8(k * bits)
        return packed
    words = groups[:, 0].astype(np.uint32)
    for k in range(1, per_word):
        words |= groups[:, k].astype(np.uint32) << np.uint32(k * bits)
    return words.view(np.uint8).reshape(-1, 4)[:, :3].reshape(-1)[:nbytes]


_TRANSPOSED = Group("int4 transposed", 1.8)
_LAYOUTS = Group("int4, float4 layouts", 2.0)
_TTC = Group("int4, float4 TTC", 2.0, MEAN)
_CRUMBS = Group("int2 transposed", 2.5)
_ODD = Group("float6, uint3, odd dims", 8.0)
_ROWS = Group("rows at odd nibbles", 1.5)
_WHOLE = Group("pack, unpack 4, 2 bits", 1.3)
_SIX = Group("pack, unpack 6 bits", 2.5)
_VIEWS = Group("views", None, TOLD)
_LAYOUT_NAMES = ("heads-split", "nchw-to-nhwc", "patchify", "kv-cache")
_SWAP = (1, 0)


def cases() -> tuple[PackedCase, ...]:
    """All of the suite, group by group."""
    return (*_transposed(), *_layouts(), *_ttc(), *_rows(), *_packs(), *_views())


def _transposed() -> Iterator[PackedCase]:
    table: tuple[tuple[Group, str, tuple[tuple[int, int], ...]], ...] = (
        (_TRANSPOSED, "int4", ((16384, 8192), (8192, 28672), (151936, 3584))),
        (_CRUMBS, "int2", ((16384, 16384),)),
        (_ODD, "float6_e2m3fn", ((8192, 11008), (9461, 9463))),
        (_ODD, "uint3", ((16384, 11008), (13377, 13379))),
        (_ODD, "int4", ((11587, 11589), (16384, 8193), (16387, 8192))),
    )
    for group, kind, shapes in table:
        for shape in shapes:
            name = "transposed-" + "x".join(map(str, shape))
            yield PackedCase(SUITE, name, kind, shape, _SWAP, group=group)


def _layouts() -> Iterator[PackedCase]:
    for kind in ("int4", "float4_e2m1fn"):
        for workload in workloads.WORKLOADS:
            if workload.name in _LAYOUT_NAMES:
                name = f"{workload.name}-{'x'.join(map(str, workload.shape))}"
                shape, axes, note = workload.shape, workload.axes, workload.note
                case = PackedCase(
                    SUITE, name, kind, shape, axes, note=note, group=_LAYOUTS
                ).batched()
                assert isinstance(case, PackedCase)
                yield case


def _ttc() -> Iterator[PackedCase]:
    for kind in ("int4", "float4_e2m1fn"):
        for number in ttc.SUBSET:
            shape, axes = ttc.CASES[number - 1]
            case = PackedCase(SUITE, f"ttc-{number:02}", kind, shape, axes, group=_TTC)
            sized = case.sized(_TTC_BYTES)
            assert isinstance(sized, PackedCase)
            yield sized


def _rows() -> Iterator[PackedCase]:
    table: tuple[tuple[str, tuple[int, ...], str, Callable[[Any], Any]], ...] = (
        ("rows-from-1", (16384, 8194), "t[:, 1:]", lambda t: t[:, 1:]),
        ("rows-inner", (16384, 8195), "t[:, 1:-1]", lambda t: t[:, 1:-1]),
        ("run-from-1", (2**27 + 3,), "t[1:]", lambda t: t[1:]),
    )
    for name, shape, note, look in table:
        yield PackedCase(SUITE, name, "int4", shape, look=look, note=note, group=_ROWS)


def _packs() -> Iterator[PackedCase]:
    table = ((_WHOLE, "int4", 2**27), (_WHOLE, "int2", 2**28), (_SIX, "float6_e2m3fn", 3 * 2**25))
    for work in ("pack", "unpack"):
        for group, kind, size in table:
            yield PackedCase(SUITE, work, kind, (size,), (0,), group=group, work=work)


def _views() -> Iterator[PackedCase]:
    plane = (16384, 8192)
    table: tuple[tuple[str, tuple[int, ...], str, Callable[[Any], Any]], ...] = (
        ("flip-inner", plane, "t[:, ::-1]", lambda t: t[:, ::-1]),
        ("flip-outer", plane, "t[::-1]", lambda t: t[::-1]),
        ("flip-both", plane, "t[::-1, ::-1]", lambda t: t[::-1, ::-1]),
        ("slice-step2", (16384, 16384), "t[:, ::2]", lambda t: t[:, ::2]),
        ("slice-rows", (32768, 8192), "t[::2]", lambda t: t[::2]),
        ("channels-first", (900, 224, 224, 3), "NHWC to NCHW",
         lambda t: views.permute_dims(t, (0, 3, 1, 2))),
        ("channels-reversed", (900, 224, 224, 3), "t[..., ::-1]", lambda t: t[..., ::-1]),
        ("broadcast-outer", (1024, 8192), "t[None] to (16, m, n)",
         lambda t: views.broadcast_to(t, (16, *t.shape))),
        ("broadcast-inner", (16384, 1), "t to (m, 8192)",
         lambda t: views.broadcast_to(t, (t.shape[0], 8192))),
    )  # fmt: skip
    for name, shape, note, look in table:
        yield PackedCase(SUITE, name, "int4", shape, look=look, note=note, group=_VIEWS)
    shape, note = (16384, 8195), "odd parts: of t[:, 3001:], t[:, :1501] and what is between"
    yield PackedCase(
        SUITE, "concat-odd", "int4", shape, look=_odd_parts, note=note, group=_VIEWS, work="concat"
    )


def _odd_parts(t: Any) -> Any:
    return [t[:, 3001:], t[:, :1501], t[:, 1501:3001]]
