"""Two checkpoints compared: bits where both store a weight alike, numbers where they do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.tensor import Tensor, asarray
from ..dtypes.table import DType
from ..errors import DTypeError, FormatError, about, quoted, shape_text, shown
from ..operations.casts import cast
from ..operations.equality import blocks, first_difference, place
from ..quantization.account import Held, Quantised, unaccounted
from ..quantization.configuration import declared
from ..quantization.detection import detected
from ..quantization.parts import Found
from ..quantization.scheme import DECODED
from ..quantization.table import schemes
from ..runtime.ndarrays import is_a

__all__ = ["Difference", "Weights", "differences"]


@dataclass(frozen=True)
class Difference:
    """What is not equal: a name, why, and the index of the first element that differs.

    `values` are the two elements as text, of A and of B.
    """

    name: str
    reason: str
    index: tuple[int, ...] | None = None
    values: tuple[str, str] | None = None

    def __str__(self) -> str:
        if self.values is None:
            return f"{shown(self.name)}: {self.reason}"
        values = " against ".join(self.values)
        return f"{shown(self.name)}{list(self.index or ())}: {values}{self.reason}"


class Weights(Mapping[str, "Tensor | Found"]):
    """The tensors of a checkpoint by name, quantised ones as one group under the weight's name.

    `tensors` and `config` are those of `schemes.detect`, `warnings` what it finds odd. What
    fits no scheme stays as it is. `scales` are those of a quantised cache of keys and values.

    >>> import numpy as np
    >>> codes = np.zeros((4, 8), np.float32)
    >>> parts = schemes["fp8:channel"].encode(codes)
    >>> weights = Weights({"norm": codes} | {f"fc.{key}": t for key, t in parts.items()})
    >>> list(weights), weights["fc.weight"].scheme
    (['norm', 'fc.weight'], 'fp8:channel')
    """

    def __init__(self, tensors: Mapping[str, Any], config: Mapping[str, Any] | None = None) -> None:
        self._tensors = tensors
        self.declared = declared(config or {})
        self._groups = dict[str, Found]()
        found = detected(tensors, self.declared)
        self.warnings = [*found.warnings, *map(str, found.unclear)]
        used = {name for each in found for name in each.parts.names.values()}
        self.scales = self.declared.cache_scales(tensors) if found else set[str]()
        self._plain = [name for name in tensors if name not in used]
        plain = set(self._plain)
        for each in found:
            weight, codes = each.parts.weight, next(iter(each.parts.names.values()))
            self._groups[codes if weight in plain or weight in self._groups else weight] = each

    def __getitem__(self, name: str) -> Tensor | Found:
        if name in self._groups:
            return self._groups[name]
        x = self._tensors[name]
        return asarray(x.data if hasattr(x, "tensor_type") else x)

    def __iter__(self) -> Iterator[str]:
        yield from self._plain
        yield from self._groups

    def __len__(self) -> int:
        return len(self._plain) + len(self._groups)

    @property
    def plain(self) -> dict[str, Held]:
        """The tensors of no group; those that a file or a conversion has are not loaded."""
        made = dict[str, Held]()
        for name in self._plain:
            x = self._tensors[name]
            if not is_a(getattr(x, "dtype", None), DType):
                x = asarray(x.data if hasattr(x, "tensor_type") else x)
            made[name] = Held(name, x.dtype, x.size)
        return made

    @property
    def groups(self) -> Mapping[str, Found]:
        """The quantised weights, by their names."""
        return self._groups

    @property
    def quantised(self) -> bool:
        """Whether there are groups."""
        return bool(self._groups)


def differences(
    a: Weights | Mapping[str, Any],
    b: Weights | Mapping[str, Any],
    tolerance: float | None = None,
    done: Callable[[str], object] | None = None,
) -> Iterator[Difference]:
    """Each name whose weights differ, in the order of `a`, with the first element that does.

    `a` and `b` are mappings of names to tensors, or Weights where a config tells of them.
    Tensors are equal if their dtypes, shapes and the bits of all elements are; groups of one
    scheme with the same settings if all their tensors are. Where the schemes differ, or only
    one side is quantised, the decoded numbers are compared: as the other side's dtype, or as
    float32. NaNs are equal there, and zeros of either sign, but for those of float8.

    `tolerance` accepts floats, decoded ones too, that differ by at most `tolerance` times the
    largest finite magnitude in the tensor of `a`; dtypes may then differ as well. Scales of a
    quantised cache count only where the other side has quantised weights, too. One
    tensor or group of each side is in memory at a time; `done` is called with each name that
    has been compared. Raises FormatError for what
    cannot be decoded, and for a tolerance that is negative or NaN.

    >>> import numpy as np
    >>> a, b = ({"w": np.array([[1, 2], [3, x]], np.float32)} for x in (4, 4.5))
    >>> print(*differences(a, b))
    w[1, 1]: 4.0 against 4.5
    >>> list(differences(a, b, tolerance=0.125))
    []
    """
    if tolerance is not None and not tolerance >= 0:
        raise FormatError(f"a tolerance is a number from 0 on, not {tolerance}")
    a, b = (x if is_a(x, Weights) else Weights(x) for x in (a, b))
    strange = _unaccounted(a, b)
    for name in a:
        if name in strange:
            yield Difference(name, strange[name])
        elif name in b:
            with about(f"tensor {quoted(name)}"):
                found = _difference(name, a[name], b[name], tolerance)
            if found is not None:
                yield found
            if done is not None:
                done(name)
        elif name not in a.scales or b.quantised:
            yield Difference(name, "only in A")
    for name in b:
        if name not in a and (name not in b.scales or a.quantised):
            yield Difference(name, "only in B")


def _unaccounted(a: Weights, b: Weights) -> dict[str, str]:
    """Tensors of both sides that belong to quantised weights which one side stores in another way.

    Their bits may be equal, but they mean nothing without these weights, or their config.
    """
    made = dict[str, str]()
    alike = {n for n in a.groups if n in b.groups and _stored_alike(a.groups[n], b.groups[n])}
    for one, other in ((a, b), (b, a)):
        names = {
            name: [*each.parts.names.values()]
            for name, each in one.groups.items()
            if name in other and name not in alike
        }
        if names or (one.declared.tells and one.declared != other.declared):
            decoded = [
                Quantised(one.groups[n].scheme, own[0], frozenset(own)) for n, own in names.items()
            ]
            plain, there = one.plain, other.plain
            held = {name: x for name, x in plain.items() if name in there}
            made |= unaccounted(decoded, held, told=bool(alike))
    return made


def _difference(name: str, p: Any, q: Any, tolerance: float | None) -> Difference | None:
    """How two weights differ, None if they are equal."""
    if is_a(p, Found) and is_a(q, Found) and _stored_alike(p, q):
        each = ((p.parts.names[key], p.parts[key], q.parts[key]) for key in p.parts)
        found = next(filter(None, (_bits(*three) for three in each)), None)
        if found is None or tolerance is None:
            return found
    if is_a(p, Tensor) and is_a(q, Tensor):
        found = _bits(name, p, q)
        floats = p.shape == q.shape and p.dtype.kind == q.dtype.kind == "float"
        if found is None or tolerance is None or not floats:
            return found
        return _numbers(name, p, q, tolerance)
    kind = next((x.dtype.name for x in (p, q) if is_a(x, Tensor)), "float32")
    if kind not in DECODED:
        return Difference(name, f"{_words(p)} against {_words(q)}")
    turned = is_a(p, Found) and is_a(q, Found) and _is_turned(p) != _is_turned(q)
    x, y = (_decoded(each, kind) for each in (p, q))
    if turned:
        y = y.mT
    if x.shape != y.shape:
        return Difference(name, f"{_words(p, x.shape)} against {_words(q, y.shape)}")
    signed = tolerance is None and all(map(_is_signed, (p, q)))
    return _numbers(name, x, y, tolerance or 0.0, signed)


def _is_signed(x: Tensor | Found) -> bool:
    """Whether all projects decode a weight to zeros of the same sign: they do so for float8."""
    if isinstance(x, Tensor):
        return True
    codes = next(iter(x.parts.values())).dtype
    return bool(codes.kind == "float" and codes.bits == 8)


def _stored_alike(p: Found, q: Found) -> bool:
    """Whether the same tensors mean the same."""
    alike = p.scheme == q.scheme and p.parts.settings == q.parts.settings
    return alike and p.parts.keys() == q.parts.keys()


def _is_turned(found: Found) -> bool:
    """Whether the decoded weight has its inputs before its outputs."""
    return schemes[found.scheme].row.forms[0].result == "K N"


def _decoded(x: Tensor | Found, kind: str) -> Tensor:
    return schemes[x.scheme].decode(x.parts, dtype=kind) if isinstance(x, Found) else x


def _words(x: Any, shape: tuple[int, ...] | None = None) -> str:
    """What a weight is, for a message."""
    what, own = (x.scheme, ()) if is_a(x, Found) else (x.dtype.name, x.shape)
    sizes = own if shape is None else shape
    return f"{what} {shape_text(sizes)}" if sizes or not is_a(x, Found) else what


def _bits(name: str, x: Tensor, y: Tensor) -> Difference | None:
    if x.dtype is not y.dtype or x.shape != y.shape:
        return Difference(name, f"{_words(x)} against {_words(y)}")
    index = first_difference(x, y)
    return None if index is None else _at(name, index, x, y)


def _numbers(
    name: str, x: Tensor, y: Tensor, tolerance: float, signed: bool = False
) -> Difference | None:
    """The first floats of two tensors of one shape that are too far apart.

    Zeros are equal, unless they are `signed`.
    """
    if x.dtype is y.dtype and first_difference(x, y) is None:
        return None
    wide = "float64" if "float64" in (x.dtype.name, y.dtype.name) else "float32"
    bits = max(t.dtype.bits for t in (x, y))
    indices = [*blocks(x.shape, bits)]
    most = max((_most(_wide(x, index, wide)) for index in indices), default=0.0) if tolerance else 0
    for index in indices:
        u, v = _wide(x, index, wide), _wide(y, index, wide)
        with np.errstate(invalid="ignore", over="ignore"):
            near = (u == v) | (np.isnan(u) & np.isnan(v))
            if signed:
                near &= (u != 0) | (np.signbit(u) == np.signbit(v))
            if tolerance:
                near |= np.abs(u - v) <= most * tolerance
        if not near.all():
            at = place(index, u.shape, int(near.argmin()))
            how = f", the largest magnitude is {most:g}" if tolerance else ""
            return replace(_at(name, at, x, y), reason=how)
    return None


def _wide(t: Tensor, index: Any, kind: str) -> NDArray[Any]:
    return np.asarray(cast(t[index], kind).numpy())


def _most(x: NDArray[Any]) -> float:
    """The largest finite magnitude."""
    return float(np.abs(x, where=np.isfinite(x), out=np.zeros_like(x)).max(initial=0))


def _at(name: str, index: tuple[int, ...], x: Tensor, y: Tensor) -> Difference:
    """Two elements that differ, with their bits where their numbers look the same."""
    one, other = x[index], y[index]
    first, second = _text(one), _text(other)
    if first == second:
        first, second = (f"{first} (0x{t.tobytes()[::-1].hex()})" for t in (one, other))
    return Difference(name, "", index, (first, second))


def _text(x: Tensor) -> str:
    with suppress(DTypeError):
        return str(np.asarray(x)[()])
    return str(x.unpack()[()])
