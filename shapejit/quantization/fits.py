"""Fits: weights that tensors may be, and the reasons why they are none, or not one alone."""

from __future__ import annotations

from typing import Any, NamedTuple

from .configuration import Declared
from .forms import SchemeRow
from .parts import Found
from .rows import ROWS

# Names of parts that always belong to a quantised weight. modelopt's `pre_quant_scale` multiplies
# the inputs of a weight, so its stored weight differs from the original one.
SIGNS = {"pre_quant_scale"} | {
    name
    for row in ROWS
    for form in row.forms
    for part in form.parts
    if part.key not in ("", "weight", "scale", "input_scale", "bias")
    for name in part.name.split("|")
}


_METHODS = {word for row in ROWS for word in row.words}
_INT_CODES = ("int8", "uint8", "int32", "uint32")
_FLOAT_CODES = ("float8_e4m3fn", "float8_e5m2", "float4_e2m1fn")


class Unclear(NamedTuple):
    """Tensors that look quantised but fit no scheme of the config or several, with the `reason`.

    `schemes` are those that they fit, whatever the config says.
    """

    names: tuple[str, ...]
    schemes: tuple[str, ...]
    reason: str

    def __str__(self) -> str:
        return f"{', '.join(self.names)}: {self.reason}"


class Fit(NamedTuple):
    """Tensors that may be a weight of a scheme: `found`, or the reason why they do not fit."""

    row: SchemeRow
    names: tuple[str, ...]
    found: Found | None
    reason: str = ""


def preferred(fits: list[Fit], said: Declared) -> list[Fit]:
    """The fits that agree best with the words of the config."""
    known = said.words & _METHODS
    if not known:
        return fits
    agree = [len(known & fit.row.words) for fit in fits]
    return [
        fit
        for fit, count in zip(fits, agree, strict=True)
        if count == max(agree) and (count or not fit.row.words)
    ]


def unclear_by(
    names: tuple[str, ...], right: list[Fit], fits: list[Fit], said: Declared
) -> Unclear:
    """Tensors without a unique scheme; of several reasons those of the config's schemes alone.

    `right` are the fits that the config allows, `fits` all, and those that fail.
    """
    if right:
        schemes = tuple(fit.row.name for fit in right)
        return Unclear(names, schemes, f"fits {' and '.join(schemes)}")
    wrong = [fit for fit in fits if not fit.found]
    own = [fit for fit in wrong if fit.row.words & said.words]
    schemes = tuple(fit.row.name for fit in fits if fit.found)
    told = own if schemes else own or wrong
    reasons = "; ".join(f"{fit.row.name}: {fit.reason}" for fit in told)
    more = f" ({reasons})" if reasons else ""
    if not schemes:
        return Unclear(names, (), f"fits no scheme{more}")
    method = said.named_by(said.words & _METHODS)
    return Unclear(
        names, schemes, f"fits {' and '.join(schemes)}, but the config says {method}{more}"
    )


def looks_quantised(name: str, x: Any) -> bool:
    """Whether a tensor without a scheme has the name of a part, or a dtype of codes."""
    last = name.rpartition(".")[2]
    kind = str(getattr(x, "dtype", ""))
    if kind.startswith(("float8_", "float6_", "float4_")):
        return bool(getattr(x, "size", 1))
    if last == "weight":
        return kind in _INT_CODES
    return last in SIGNS or last.endswith(("_blocks", "_scales"))


def lone(name: str, x: Any) -> str:
    """The reason of a tensor that looks quantised, but is beside no others."""
    codes = ("weight", "weight_packed", "qweight", "_blocks", "B", "Q4", "Q8")
    kind, scales = str(getattr(x, "dtype", "")), ("scale", "scale_inv", "_scales", "zeros")
    named = name.endswith(codes)
    if named or (kind in _FLOAT_CODES and not name.endswith(scales)):
        return "no scales belong to these codes"
    return "no codes belong to it"
