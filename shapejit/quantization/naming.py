"""Names: of a weight that is not quantised, and of the parts that a scheme stores it in."""

from __future__ import annotations

from collections.abc import Iterable

from .forms import Row

_WEIGHT = "weight"


def weight_name(row: Row, codes: str) -> str:
    """The name of a weight, in the unquantised model, whose codes have this name.

    >>> from .rows import BY_NAME as rows
    >>> weight_name(rows["awq"], "layers.0.q.qweight")
    'layers.0.q.weight'
    >>> weight_name(rows["mxfp4:gpt-oss"], "mlp.experts.down_proj_blocks")
    'mlp.experts.down_proj'
    """
    base, joint, alias = parted(row, codes)
    if not joint:
        return base or row.weight or alias
    return f"{base}.{row.weight}" if joint == "." and row.weight else base


def parted(row: Row, codes: str) -> tuple[str, str, str]:
    """The prefix of codes, the joint, and the part's own name; a name of others is all prefix.

    >>> from .rows import BY_NAME as rows
    >>> parted(rows["mxfp4:gpt-oss"], "mlp.experts.down_proj_blocks")
    ('mlp.experts.down_proj', '_', 'blocks')
    """
    for form in row.forms:
        for alias in filter(None, form.part(form.codes.part).name.split("|")):
            if codes == alias:
                return "", "", alias
            for joint in row.joints:
                if codes.endswith(joint + alias):
                    return codes.removesuffix(joint + alias), joint, alias
    return codes, "", ""


def part_name(row: Row, weight: str, key: str) -> str:
    """The name of a part of a weight, of which the unquantised model has the name `weight`.

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
    """The key of codes that have no name of their own: those of the other parts begin with it.

    >>> fused_key(["gate_up_proj_scale_inv", "gate_up_proj"])
    'gate_up_proj'
    """
    given = list(keys)
    least = min(given, key=len, default=None)
    return least if all(key == least or key.startswith(f"{least}_") for key in given) else None
