"""Names of weights in the unquantised model, and of the parts that a scheme stores."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterator, Sequence

from .forms import Part, Row

_WEIGHT = "weight"


def weight_name(row: Row, codes: str) -> str:
    """The name in the unquantised model of the weight whose codes have this name.

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


def parted(row: Row, codes: str) -> tuple[str, str, str]:
    """Split the name of codes into prefix, separator and part; other names are all prefix.

    >>> from .rows import BY_NAME as rows
    >>> parted(rows["mxfp4:gpt-oss"], "mlp.experts.down_proj_blocks")
    ('mlp.experts.down_proj', '_', 'blocks')
    """
    for form in row.forms:
        for base, alias in endings(codes, form.part(form.codes.part), row.separators):
            return base[:-1], base[-1:], alias
    return codes, "", ""


def endings(codes: str, part: Part, separators: str) -> Iterator[tuple[str, str]]:
    """How a name of codes ends in that of a part: what is before it, and the part's name.

    >>> from .rows import BY_NAME as rows
    >>> [*endings("q.qweight", rows["awq"].forms[0].part("qweight"), ".")]
    [('q.', 'qweight')]
    """
    for alias in filter(None, part.name.split("|")):
        base = codes.removesuffix(alias)
        if codes == alias or (base != codes and base[-1] in separators):
            yield base, alias


def part_name(row: Row, weight: str, key: str) -> str:
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


def beginnings(codes: str, part: Part, separators: str) -> Iterator[str]:
    """What the names of other parts begin with beside codes of this name.

    Names of others begin with the name of codes that have none of their own.

    >>> from .rows import BY_NAME as rows
    >>> fused = rows["fp8:block"].forms[2]
    >>> [*beginnings("experts.down_proj", fused.part(""), ".")]
    ['experts.down_proj_']
    """
    yield from (base for base, _ in endings(codes, part, separators))
    if not part.name:
        yield f"{codes}_"


def beside(base: str, part: Part, names: Container[str]) -> str | None:
    """The name of a part after such a beginning, if there is one."""
    return next((base + name for name in part.name.split("|") if base + name in names), None)


def beginning(names: Sequence[str], start: str) -> Sequence[str]:
    """Those of sorted names that begin with `start`.

    >>> beginning(["a", "b.c", "b.d", "bc"], "b.")
    ['b.c', 'b.d']
    """
    first = bisect_left(names, start)
    return names[first : bisect_right(names, start, first, key=lambda name: name[: len(start)])]
