"""The tensors of one weight matched to the parts of a form, and the sizes that follow."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any

from ..arrays.tensor import Tensor, asarray
from ..errors import DTypeError, FormatError, quoted, shape_text
from ..runtime.ndarrays import is_mapping
from ..shapes.layout import checked_shape
from ..shapes.request import Ints, integers
from . import sizes
from .forms import Form, Part, SchemeRow
from .groups import Group, any_of, fault
from .naming import beginnings, companions

_LETTERS = {"N": " rows", "K": " columns", "b": " bits"}  # of the weight, of a code
_SHARED = re.compile(
    "/[a-z]$|/.*/"
)  # sizes that are rounded up by a setting, or twice, determine least


def group_of(row: SchemeRow, parts: Mapping[str, Any], settings: Mapping[str, Any]) -> Group:
    """The parts as the first form that they fit; `settings` override those of the parts.

    Raises FormatError with what each form needs.
    """
    if not is_mapping(parts):
        raise DTypeError(f"{row.name}: parts must be a mapping, not {type(parts).__name__}")
    known = sizes_of(row.name, {**getattr(parts, "settings", {}), **settings})
    given = {str(name): asarray(x) for name, x in parts.items()}
    reasons, missing = dict[str, None](), dict[str, None]()
    for form in row.forms:
        keys, lacks = _keys(form, tuple(given))
        missing |= dict.fromkeys(lacks)
        if lacks:
            continue
        try:
            left = [key for key in given if key not in {*keys.values(), "bias"}]
            if left:
                raise fault(row.name, f"has no part {', '.join(map(quoted, left))}")
            tensors = {part: given[key] for part, key in keys.items()}
            return fitted(row.name, form, tensors, keys, known)
        except FormatError as wrong:
            reasons[str(wrong).removeprefix(f"{row.name}: ")] = None
    if missing:
        reasons[f"needs {any_of([*missing])}; got {', '.join(map(quoted, given)) or 'nothing'}"] = (
            None
        )
    raise fault(row.name, "; or ".join(reasons))


@lru_cache(maxsize=256)
def _keys(form: Form, parts: tuple[str, ...]) -> tuple[Mapping[str, str], list[str]]:
    """The given keys of the parts of a form, by the keys of the form, or what is missing."""
    wanted: Part | None = None
    for name in sorted(parts, key=len):
        for base in beginnings(name, form.parts[0], "._"):
            keys, missing = companions(form, name, base, parts)
            if missing is None:
                return keys, []
            wanted = wanted or missing
    name = (wanted or form.parts[0]).name
    return {}, (name or "codes whose name others begin with").split("|")


def fitted(
    scheme: str,
    form: Form,
    tensors: Mapping[str, Tensor],
    keys: Mapping[str, str],
    settings: Mapping[str, int],
) -> Group:
    """Tensors by the keys of a form, given under `keys`. Raises FormatError if they do not fit."""
    for name, t in tensors.items():
        part = form.part(name)
        if t.dtype.name not in part.kinds:
            wanted = part.dtypes.replace("|", " or ")
            raise fault(scheme, f"{keys[name]} must be {wanted}, not {t.dtype}")
    numbers = {**settings, **({} if form.tells is None else form.tells(tensors))}
    result = numbers.pop("shape", None)
    found = {name: integers((n,), name, scheme)[0] for name, n in numbers.items()}
    if any(n < 0 for n in found.values()):
        raise fault(scheme, f"sizes are not negative: {found}")
    if result is not None:
        result = checked_shape(result, "shape", scheme)
        found["n"] = prod(result)
    shapes = tuple((name, t.shape) for name, t in tensors.items())
    solved = _sizes(form, shapes, tuple(found.items()))
    if isinstance(solved, str):
        raise fault(scheme, solved)
    known, batch = solved
    group = Group(scheme, form, tensors, known, batch, result)
    group.check_width()
    if form.codes.format and group.packing(form.codes).blocks:
        group.stored(form.codes)
    return group


@lru_cache(maxsize=256)  # the weights of a checkpoint have few shapes
def _sizes(
    form: Form, shapes: tuple[tuple[str, Ints], ...], settings: tuple[tuple[str, int], ...]
) -> tuple[Mapping[str, int], Ints] | str:
    """The sizes that fit all parts, and the dims of stacked experts before them, or what is wrong.

    That is kept, too: `detect` tries each weight in schemes that it does not fit.
    """
    dims = {part.key: part.dims.split() for part in form.parts if part.dims != "?"}
    shaped = {name: (shape, dims[name]) for name, shape in shapes if name in dims}
    codes, wanted = shaped[form.codes.part]
    batch = codes[: max(0, len(codes) - len(wanted))]
    pairs = [
        (size, n)
        for shape, wanted in shaped.values()
        for size, n in zip(wanted, shape[len(batch) :], strict=False)
        if len(shape) == len(batch) + len(wanted)
    ]
    pairs.sort(key=lambda pair: bool(_SHARED.search(pair[0])))
    known = _solved(pairs, dict(settings), form.usual)
    free = {part.key for part in form.parts if part.flat}
    for name, (shape, wanted) in shaped.items():
        fit = [sizes.value(size, known) for size in wanted]
        if None in fit:
            open_ = " ".join(wanted)
            return f"{name} has shape {shape_text(shape)}: {open_} is unclear, known are {known}"
        whole = (*batch, *(size for size in fit if size is not None))
        flat = name in free and len(shape) <= 1 and prod(shape) == prod(whole)
        if shape != whole and not flat and (wanted or prod(shape) not in (1, prod(batch))):
            expected = f"{shape_text(whole)}{_sizes_text(wanted, known)}"
            return f"{name} must have shape {expected}, not {shape_text(shape)}"
    return known, batch


def _sizes_text(wanted: Sequence[str], known: Mapping[str, int]) -> str:
    """Dims in the letters of the form, and the values of these."""
    dims = " ".join(wanted)
    letters = [each for each in dict.fromkeys(dims) if each in known]
    sizes = ", ".join(f"{each}={known[each]}{_LETTERS.get(each, '')}" for each in letters)
    return f" ({dims} of {sizes})" if sizes else ""


def _solved(
    pairs: list[tuple[str, int]], known: dict[str, int], usual: Mapping[str, int]
) -> dict[str, int]:
    """All sizes that follow from shapes, given settings and usual values."""
    while True:
        for size, found in pairs:
            made = sizes.solved(size, found, known)
            if made is not None and made[0] not in usual:
                known[made[0]] = made[1]
                break
        else:
            name = next((name for name in usual if name not in known), None)
            if name is None:
                return known
            known[name] = usual[name]


# The sizes that each setting defines, by the letters of `sizes`.
SETTINGS = {
    "N": "N",
    "K": "K",
    "bits": "b",
    "num_bits": "b",
    "group_size": "g",
    "block_size": "g",
    "version": "v",
    "weight_block_size": "mk",
}


def sizes_of(scheme: str, given: Mapping[str, Any]) -> dict[str, int]:
    """The sizes that settings define. Raises FormatError for unknown names and sizes below 1."""
    known = dict[str, int]()
    for key, value in given.items():
        if key not in SETTINGS:
            raise fault(scheme, f"unknown setting {key!r}; known are {', '.join(SETTINGS)}")
        if value is None:
            continue
        names = SETTINGS[key]
        sizes = integers(value if len(names) > 1 else (value,), key, scheme)
        if len(sizes) != len(names) or min(sizes) < 1:
            raise fault(scheme, f"{key} must be {len(names)} of at least 1, not {value!r}")
        known |= zip(names, sizes, strict=True)
    return known
