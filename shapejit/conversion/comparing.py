"""Two checkpoints compared: bit for bit where both store a weight alike, by value elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..arrays.tensor import Tensor, asarray
from ..dtypes.table import dtype
from ..errors import DTypeError, FormatError, about, quoted, shape_text, shown
from ..files.checkpoint import LazyMapping
from ..files.in_memory import MemoryFile
from ..files.planned import Planned, both, first_difference
from ..files.stored import Stored
from ..operations import equality
from ..operations.casts import cast
from ..quantization.account import unaccounted
from ..quantization.configuration import declared
from ..quantization.detection import detected
from ..quantization.parts import Found
from ..quantization.scheme import DECODED_DTYPES
from ..runtime.ndarrays import is_a
from .weights import LAST_RESULT, Decoded


@dataclass(frozen=True)
class Difference:
    """A difference: the name, the reason, and the index of the first element that differs.

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


class Weights(LazyMapping[Planned | Found]):
    """The tensors of a checkpoint by name; a quantised weight is one group under its own name.

    `tensors` and `config` are as in `schemes.detect`, `warnings` are its warnings. Other tensors
    stay single, and are taken from `tensors` on each access. `groups` are the quantised weights by
    name, `scales` those of a quantised KV cache.

    >>> import numpy as np, shapejit as sj
    >>> codes = np.zeros((4, 8), np.float32)
    >>> parts = sj.schemes["fp8:channel"].encode(codes)
    >>> weights = Weights({"norm": codes} | {f"fc.{key}": t for key, t in parts.items()})
    >>> list(weights), weights["fc.weight"].scheme
    (['norm', 'fc.weight'], 'fp8:channel')
    """

    def __init__(self, tensors: Mapping[str, Any], config: Mapping[str, Any] | None = None) -> None:
        self.declared = declared(config or {})
        self.groups = groups = dict[str, Found]()
        found = detected(tensors, self.declared)
        self.warnings = [*found.warnings, *map(str, found.unclear)]
        self.scales = self.declared.cache_scales(tensors) if found else set[str]()
        used = {name for each in found for name in each.named.values()}
        names = dict.fromkeys(name for name in tensors if name not in used)
        for each in found:
            weight, codes = each.parts.weight, each.codes
            name = codes if weight in names else weight
            groups[name], names[name] = each, None
        super().__init__(names, lambda name, _: groups.get(name) or _planned(name, tensors[name]))


def _planned(name: str, x: Any) -> Planned:
    """A tensor that is read some rows at a time."""
    if isinstance(x, Planned):
        return x
    with about(f"tensor {quoted(name)}"):
        t = asarray(x.data if hasattr(x, "tensor_type") else x)
    return Stored(MemoryFile("", t.buffer), name, 0, t.dtype, t.layout)


def _stored(name: str, x: Planned | Found) -> dict[str, Planned]:
    """The tensors of a weight by their names, those of a group with the codes first."""
    if not isinstance(x, Found):
        return {name: x}
    names = zip(x.named.values(), x.parts.sources.values(), strict=True)
    return {name: _planned(name, source) for name, source in names}


def _floats(x: Planned | Found, kind: str, turned: bool = False) -> Planned:
    """A weight as plain floats, decoded or read some rows at a time."""
    if not isinstance(x, Found):
        return x
    made = Decoded.of(x, dtype(kind))
    if not turned:
        return made
    *lead, rows, columns = range(len(made.shape))
    return made.with_layout(made.layout.permute((*lead, columns, rows)))


def differences(
    a: Weights | Mapping[str, Any],
    b: Weights | Mapping[str, Any],
    tolerance: float | None = None,
    done: Callable[[str], object] | None = None,
) -> Iterator[Difference]:
    """Each name whose weights differ, in the order of `a`, with the first element that does.

    `a` and `b` are mappings of names to tensors, or Weights if a config describes them. Tensors are
    equal if their dtypes, shapes and all bits of elements are; weights of one scheme with the same
    settings if all their tensors are. If the schemes differ, or only one side is quantised, decoded
    numbers are compared, in the other side's dtype or float32. Then NaNs are equal, and so are 0.0
    and -0.0, except in float8.

    `tolerance` accepts floats, decoded ones too, that differ by at most `tolerance` times the
    largest finite magnitude in the tensor of `a`; dtypes may then differ as well. Scales of a
    quantised KV cache are ignored if the other side has no quantised weights. Only some rows of
    each side are in memory at a time; `done` is called with each name after its comparison. Raises
    FormatError for weights that cannot be decoded, and for a negative or NaN tolerance.

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
    for name in dict.fromkeys((*a, *b)):
        if name in strange:
            yield Difference(name, strange[name])
        elif name in a and name in b:
            with about(f"tensor {quoted(name)}"):
                found = _difference(name, a[name], b[name], tolerance)
            LAST_RESULT.clear()
            if found is not None:
                yield found
            if done is not None:
                done(name)
        else:
            one, other, side = (a, b, "A") if name in a else (b, a, "B")
            if name not in one.scales or other.groups:
                yield Difference(name, f"only in {side}")


def _unaccounted(a: Weights, b: Weights) -> dict[str, str]:
    """Tensors of both sides that belong to quantised weights stored differently on one side.

    Their bits may be equal, but mean nothing without these weights or their config.
    """
    made = dict[str, str]()
    alike = {n for n in a.groups if n in b.groups and _stored_alike(a.groups[n], b.groups[n])}
    for one, other in ((a, b), (b, a)):
        decoded = [x for name, x in one.groups.items() if name in other and name not in alike]
        if decoded or (one.declared.tells and one.declared != other.declared):
            plain = one.keys() & other.keys() - one.groups.keys() - other.groups.keys()
            held = {name: one[name] for name in plain}
            made |= unaccounted(decoded, held, described=bool(alike))
    return made


def _difference(
    name: str, p: Planned | Found, q: Planned | Found, tolerance: float | None
) -> Difference | None:
    """The difference of two weights; None if they are equal."""
    groups = [x for x in (p, q) if isinstance(x, Found)]
    plain = [x for x in (p, q) if not isinstance(x, Found)]
    if not groups or (not plain and _stored_alike(*groups)):
        tensors = zip(_stored(name, p).items(), _stored(name, q).values(), strict=True)
        how = f", as stored in {groups[0].scheme}, not decoded" if groups else ""
        found = next(filter(None, (_bits(one, x, y, how) for (one, x), y in tensors)), None)
        numbers = all(x.dtype.kind == "float" and x.shape == plain[0].shape for x in plain)
        if found is None or tolerance is None or not numbers:
            return found
    kind = plain[0].dtype.name if plain else "float32"
    if groups and kind not in DECODED_DTYPES:
        return _unlike(name, (p, q))
    # Whether one of two, decoded, has its inputs before its outputs.
    turned = len({group.group.form.result == "K N" for group in groups}) > 1
    x, y = _floats(p, kind), _floats(q, kind, turned)
    if x.shape != y.shape:
        return _unlike(name, (p, q), (x.shape, y.shape))
    wide = "float64" if "float64" in (x.dtype.name, y.dtype.name) else "float32"
    how, limit = "", 0.0
    if tolerance:
        limit = max((_largest(some, wide) for _, some, _ in both(x, y)), default=0.0)
        how = f", the largest magnitude is {limit:g}"
    # All projects decode zeros of float8 with the same sign.
    codes = [next(iter(group.parts.values())).dtype for group in groups]
    signed = tolerance is None and all(x.kind == "float" and x.bits == 8 for x in codes)
    find = partial(_first_unequal, wide=wide, limit=limit * (tolerance or 0), signed=signed)
    return _at(name, first_difference(x, y, find), how)


def _stored_alike(p: Found, q: Found) -> bool:
    """Whether equal tensors represent equal weights."""
    alike = p.scheme == q.scheme and p.parts.settings == q.parts.settings
    return alike and p.parts.keys() == q.parts.keys()


def _unlike(
    name: str, sides: Sequence[Planned | Found], shapes: Sequence[Any] = (None, None)
) -> Difference:
    """The difference of two weights that cannot be compared, with their decoded shapes."""
    texts = []
    for x, decoded in zip(sides, shapes, strict=True):
        kind, shape = (x.scheme, decoded) if isinstance(x, Found) else (x.dtype.name, x.shape)
        texts.append(kind if shape is None else f"{kind} {shape_text(shape)}")
    return Difference(name, " against ".join(texts))


def _bits(name: str, x: Planned, y: Planned, how: str) -> Difference | None:
    if x.dtype is not y.dtype or x.shape != y.shape:
        return _unlike(name, (x, y))
    return _at(name, first_difference(x, y), how)


def _first_unequal(
    p: Tensor, q: Tensor, *, wide: str, limit: float, signed: bool
) -> tuple[int, ...] | None:
    """The index of the first element that differs by more than `limit` in the dtype `wide`.

    0.0 and -0.0 are equal unless zeros are `signed`.
    """
    for index, u, v in () if equality.array_equal(p, q) else _numbers(wide, p, q):
        with np.errstate(invalid="ignore", over="ignore"):
            near = (u == v) | (np.isnan(u) & np.isnan(v))
            if signed:
                near &= (u != 0) | (np.signbit(u) == np.signbit(v))
            if limit:
                near |= np.abs(u - v) <= limit
        if not near.all():
            return equality.place(index, u.shape, int(near.argmin()))
    return None


def _largest(x: Tensor, wide: str) -> float:
    """The largest finite magnitude."""
    each = (u[np.isfinite(u)] for _, u in _numbers(wide, x))
    return max((float(np.abs(u).max(initial=0)) for u in each), default=0.0)


def _numbers(wide: str, *tensors: Tensor) -> Iterator[Any]:
    """The tensors block by block in the wide dtype: the index of a block, and its numbers."""
    bits = max(t.dtype.bits for t in tensors)
    for index in equality.blocks(tensors[0].shape, bits):
        yield index, *(np.asarray(cast(t[index], wide).numpy()) for t in tensors)


def _at(
    name: str, found: tuple[tuple[int, ...], Tensor, Tensor] | None, how: str = ""
) -> Difference | None:
    """Two differing elements as text, with their bits if the numbers look the same."""
    if found is None:
        return None
    index, *values = found
    first, second = map(_text, values)
    if first == second:
        first, second = (f"{first} (0x{t.tobytes()[::-1].hex()})" for t in values)
    return Difference(name, how, index, (first, second))


def _text(x: Tensor) -> str:
    with suppress(DTypeError):
        return str(np.asarray(x)[()])
    return str(x.unpack()[()])
