"""Names of weights in the unquantised model, and of the parts that a scheme stores."""

from __future__ import annotations

from collections.abc import Iterable

from .forms import Row

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
        for alias in filter(None, form.part(form.codes.part).name.split("|")):
            if codes == alias:
                return "", "", alias
            for separator in row.separators:
                if codes.endswith(separator + alias):
                    return codes.removesuffix(separator + alias), separator, alias
    return codes, "", ""


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


def fused_key(keys: Iterable[str]) -> str | None:
    """The key of codes without a name of their own: the names of other parts begin with it.

    >>> fused_key(["gate_up_proj_scale_inv", "gate_up_proj"])
    'gate_up_proj'
    """
    given = list(keys)
    least = min(given, key=len, default=None)
    return least if all(key == least or key.startswith(f"{least}_") for key in given) else None
