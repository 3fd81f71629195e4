"""The suite of schemes: quantised weights decoded to bfloat16, with the limits that they have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.tensor import Tensor
from ..dtypes.table import dtype
from ..quantization import sizes
from ..quantization.content import content_of
from ..quantization.forms import Part
from ..quantization.parts import Parts
from ..quantization.settings import group_of
from ..quantization.table import schemes
from .cases import Case, pattern
from .packed import Group, PackedCase, raw_of

SUITE = "schemes"
SHAPE = (4096, 14336)  # rows and columns of Llama 3's largest weights
_ROWS = 32  # what rows of all schemes are multiples of; columns are of 512
_PLAIN = Group("decoded to bfloat16", 1.6)
_K_QUANTS = Group("K-quants of GGUF decoded to bfloat16", 2.5)
# Elements that share a scale, where a scheme leaves that open.
_GROUPS = {"int4:compressed-tensors": 32, "matmulnbits": 32, "bnb:nf4": 64, "bnb:fp4": 64}


@dataclass(frozen=True)
class SchemeCase(PackedCase):
    """A weight of `shape` (out, in), stored as the scheme `name`, decoded to `dtype`."""

    @property
    def _known(self) -> dict[str, int]:
        rows, columns = self.shape
        group = _GROUPS.get(self.name, 128)
        form = schemes[self.name].row.forms[0]
        return {"g": group, "b": 4, **form.usual, "N": rows, "K": columns, "n": rows * columns}

    def _shape_of(self, part: Part) -> tuple[int, ...]:
        found = [sizes.value(size, self._known) for size in part.dims.split()]
        return tuple(size for size in found if size is not None)

    @property
    def _parts(self) -> list[Part]:
        form = schemes[self.name].row.forms[0]
        return [part for part in form.parts if part.dims != "?" and not part.optional]

    def _others(self) -> dict[str, Any]:
        """The parts beside the codes: scales that are powers of two, bytes that look random."""
        form, made = schemes[self.name].row.forms[0], dict[str, Any]()
        for part in self._parts:
            kind, shape = dtype(part.kinds[0]).codes, self._shape_of(part)
            raw = pattern(prod(shape) * kind.itemsize)
            if "e8m0" in part.dtypes:
                raw = raw // 8 + 112
            elif "e4m3" in part.dtypes:
                raw &= 0x77
            elif kind.kind == "f" or kind.itemsize == 2:
                raw = np.ldexp(1.0, pattern(prod(shape)).astype(np.int32) % 8 - 6).astype(kind)
            made[part.key] = raw.view(kind).reshape(shape)
        if form.writes is not None and form.result == "n":
            table = SimpleNamespace(shape=self.shape, result=None, values=form.codes.table)
            made |= form.writes(table, self._known)
        return made

    def parts(self, base: Any) -> Parts:
        """The parts, `base` those of the codes, with their settings."""
        settings = {"bits": 4, "group_size": self._known["g"], "K": self.shape[1]}
        return Parts({**self._others(), schemes[self.name].row.forms[0].codes.part: base}, settings)

    @property
    def source_nbytes(self) -> int:
        """Bytes of all parts."""
        return sum(prod(self._shape_of(p)) * dtype(p.kinds[0]).codes.itemsize for p in self._parts)

    @property
    def _result_shape(self) -> tuple[int, ...]:
        turned = schemes[self.name].row.forms[0].result == "K N"
        return self.shape[::-1] if turned else self.shape

    @property
    def nbytes(self) -> int:
        """Bytes of the result."""
        return dtype(self.dtype).nbytes(prod(self.shape))

    @property
    def moved(self) -> int:
        """Half the bytes that are read and written: so many does a memcpy of as many copy."""
        return (self.source_nbytes + self.nbytes) // 2

    def source(self) -> Any:
        """The stored codes: bytes that look random, no NaNs among them."""
        form = schemes[self.name].row.forms[0]
        part, kind = form.part(form.codes.part), dtype(form.part(form.codes.part).kinds[0]).codes
        raw = pattern(prod(self._shape_of(part)) * kind.itemsize)
        if kind.kind == "f" or kind.name.startswith("float8") or form.scales[0].part == part.key:
            raw &= 0x3B  # of float16, too, small numbers only
            if "e8m0" in form.scales[0].dtype:
                raw |= 0x40  # and none so small that processors take a detour
        return raw.view(kind).reshape(self._shape_of(part))

    def output(self) -> Any:
        """A Tensor over mapped memory for the result."""
        return Tensor.frombuffer(np.full(self.nbytes, 0, np.uint8), self.dtype, self._result_shape)

    def ours(self, base: Any, out: Any) -> Callable[[], object]:
        """The call that is measured."""
        parts, scheme = self.parts(base), schemes[self.name]
        return lambda: scheme.decode(parts, dtype=self.dtype, out=out)

    def rivals(self) -> dict[str, Callable[[], object]]:
        """What NumPy makes of plain codes and scales."""
        content = self._content(self.source())
        return {"numpy": lambda: _plain(content).astype(dtype(self.dtype).codes)}

    def asked(self) -> dict[str, Any]:
        """The weight that a peer is asked to decode."""
        group = self._known["g"]
        return {"work": "decode", "scheme": self.name, "shape": self.shape, "group": group}

    def proved(self, base: Any, out: Any) -> bool:
        """Whether our result is, bit for bit, what NumPy makes."""
        wanted = _plain(self._content(base)).astype(dtype(self.dtype).codes)
        if self._result_shape != self.shape:
            wanted = wanted.T
        found = np.asarray(out.numpy()).reshape(wanted.shape)
        return bool(
            np.array_equal(
                raw_of(np.ascontiguousarray(found)), raw_of(np.ascontiguousarray(wanted))
            )
        )

    def _content(self, base: Any) -> Any:
        return content_of(group_of(self.name, schemes[self.name].row.forms, self.parts(base), {}))

    def scaled(self, factor: float) -> Case:
        """About `factor` times the rows, or columns as well where few rows are left."""
        if factor == 1:
            return self
        rows = max(_ROWS, round(self.shape[0] * factor / _ROWS) * _ROWS)
        columns = self.shape[1] if rows > _ROWS else 512
        return replace(self, shape=(rows, columns))


def _plain(content: Any) -> NDArray[np.float32]:
    """A content's weight by NumPy, (out, in)."""
    if isinstance(content.values, tuple):
        values = np.array(content.values, np.float32)[content.codes]
    elif content.values == "integer":
        values = content.codes.astype(np.float32)
    else:
        values = content.codes.view(dtype(content.values).codes).astype(np.float32)

    def each(x: Any) -> Any:
        for axis, size in enumerate(content.blocks):
            x = x.repeat(size, axis).take(range(content.shape[axis]), axis)
        return x

    scale = content.scale.astype(np.float32)
    if content.factor is not None:
        scale = scale * content.factor if content.step == "*" else scale / content.factor
    zeros = content.zeros
    if isinstance(zeros, np.ndarray):
        zeros = each(zeros).astype(np.float32)
    made = (values if zeros is None else values - np.float32(zeros)) * each(scale)
    if content.offset is not None:
        made = made + each(content.offset.astype(np.float32))
    whole: NDArray[np.float32] = made
    return whole.reshape(content.shape if content.result is None else content.result)


def cases() -> tuple[SchemeCase, ...]:
    """All of the suite: one case per scheme."""
    return tuple(
        SchemeCase(
            SUITE,
            name,
            "bfloat16",
            SHAPE,
            (0, 1),
            group=_K_QUANTS if name.endswith("_k") else _PLAIN,
        )
        for name, scheme in schemes.items()
        if scheme.row.forms[0].codes.read is None  # no package of others decodes it
    )
