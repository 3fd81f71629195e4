"""Names of weights in the unquantised model, and of the parts that a scheme stores."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Container, Sequence

from .forms import Form, Part, SchemeRow

_WEIGHT = "weight"


def weight_name(row: SchemeRow, codes: str) -> str:
    """The name, in the unquantised model, of the weight whose codes have this name.

    >>> from .rows import BY_NAME as rows
    >>> weight_name(rows["awq"], "layers.0.q.qweight")
    'layers.0.q.weight'
    >>> weight_name(rows["mxfp4:gpt-oss"], "mlp.experts.down_proj_blocks")
    'mlp.experts.down_proj'
    """
    base, separator, alias = parted(row, codes)
    if not separator:
        return base or row.weight or alias
    return f"{base}.{row.weight}" if separator == "." and row.weight else base


def parted(row: SchemeRow, codes: str) -> tuple[str, str, str]:
    """Split the name of codes into prefix, separator and part; other names are all prefix.

    >>> from .rows import BY_NAME as rows
    >>> parted(rows["mxfp4:gpt-oss"], "mlp.experts.down_proj_blocks")
    ('mlp.experts.down_proj', '_', 'blocks')
    """
    for form in row.forms:
        for base in beginnings(codes, form.parts[0], row.separators):
            if codes.startswith(base):
                return base[:-1], base[-1:], codes.removeprefix(base)
    return codes, "", ""


def beginnings(codes: str, part: Part, separators: str) -> list[str]:
    """Possible beginnings of the names of other parts beside codes of this name.

    If codes have no name of their own, other names begin with that of the module.

    >>> from .rows import BY_NAME as rows
    >>> beginnings("layers.0.q.qweight", rows["awq"].forms[0].parts[0], ".")
    ['layers.0.q.']
    >>> beginnings("experts.down_proj", rows["fp8:block"].forms[2].parts[0], ".")
    ['experts.down_proj_']
    """
    if not part.name:
        return [f"{codes}_"]
    bases = [codes[: -len(alias)] for alias in part.name.split("|") if codes.endswith(alias)]
    return [base for base in bases if not base or base[-1] in separators]


def companions(
    form: Form, codes: str, base: str, names: Container[str]
) -> tuple[dict[str, str], Part | None]:
    """The names of the parts beside codes of this name, by their keys, codes first.

    They begin with `base`. A missing part is returned, too.
    """
    first, *others = form.parts
    found = {first.key: codes}
    for part in others:
        name = beside(base, part, names)
        if name is not None:
            found[part.key] = name
        elif not part.optional:
            return found, part
    return found, None


def part_name(row: SchemeRow, weight: str, key: str) -> str:
    """The name of a part of the weight that the unquantised model calls `weight`.

    >>> from .rows import BY_NAME as rows
    >>> part_name(rows["awq"], "layers.0.q.weight", "qweight")
    'layers.0.q.qweight'
    >>> part_name(rows["mxfp4:gpt-oss"], "mlp.experts.down_proj", "blocks")
    'mlp.experts.down_proj_blocks'
    """
    if not row.weight:
        return f"{weight}_{key}"
    base = weight.removesuffix(_WEIGHT) if weight.split(".")[-1] == _WEIGHT else f"{weight}."
    return base + key


def beside(base: str, part: Part, names: Container[str]) -> str | None:
    """The name of a part after such a beginning, if it exists."""
    return next((base + name for name in part.name.split("|") if base + name in names), None)


def names_from(names: Sequence[str], start: str) -> Sequence[str]:
    """The names that begin with `start`, of sorted ones.

    >>> names_from(["a", "b.c", "b.d", "bc"], "b.")
    ['b.c', 'b.d']
    """
    first = bisect_left(names, start)
    return names[first : bisect_right(names, start, first, key=lambda name: name[: len(start)])]
