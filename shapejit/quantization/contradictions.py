"""Facts that a checkpoint states twice, differently: other programs may misread it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import quoted
from .configuration import Declared
from .groups import Group
from .parts import Found
from .rows import ROWS

# Gates that inference engines fuse with another projection, with one global scale for both.
FUSED_GATES = (("gate_proj", "up_proj"), ("w1", "w3"))
_OTHERS = {row.name: {form.layout for form in row.forms} for row in ROWS}


def contradictions(found: Sequence[Found], said: Declared) -> list[str]:
    """Warnings that name the tensors and the contradiction."""
    made = list[str]()
    factors = dict[str, float]()
    for each in found:
        made += _of_one(each, each.group, said)
        factor = _factor(each.group)
        if factor is not None:
            factors[each.prefix] = factor
    for gate, factor in factors.items():
        for first, second in FUSED_GATES:
            up = gate.removesuffix(first) + second
            if gate.endswith(first) and factors.get(up, factor) != factor:
                made.append(
                    f"{gate} and {up} have different global scales, {factor:g} and "
                    f"{factors[up]:g}: kernels that run both as one use one of them"
                )
    return made


def _factor(group: Group) -> float | None:
    """The global scale of a weight, if it has one."""
    for numbers in group.form.scales[1:]:
        if group.has(numbers) and group.tensors[numbers.part].size == 1:
            return float(np.asarray(group.tensors[numbers.part].numpy()).reshape(-1)[0])
    return None


def _of_one(found: Found, group: Group, said: Declared) -> list[str]:
    made = list[str]()
    factor, step = _factor(group), group.form.scales[-1].step
    if factor is not None and step == "*" and factor > 1:
        made.append(
            f"{found.prefix}: {group.form.scales[-1].part} is {factor:g}, above 1: {found.scheme} "
            f"multiplies by it, but it looks like a reciprocal, by which others divide"
        )
    if factor is not None and step == "/" and factor < 1:
        made.append(
            f"{found.prefix}: {group.form.scales[-1].part} is {factor:g}, below 1: {found.scheme} "
            f"divides by it, but it looks like a scale by which others multiply"
        )
    codes = next(iter(found.parts.values())).dtype.name
    for text in said.texts("fmt") if codes.startswith("float8_e") else ():
        if text.removeprefix("float8_")[:4] not in codes:
            made.append(f"{found.prefix}: the config says fmt {quoted(text)}, it is {codes}")
    for key in said.layouts if group.form.layout else ():
        for text, where in said.texts(key).items():
            if text in _OTHERS[found.scheme] - {group.form.layout}:
                made.append(
                    f"{found.prefix}: {where} says {key} {quoted(text)}, but its tensors are "
                    f"stored as {group.form.layout}, and read so"
                )
    if group.has(group.form.zeros) and "false" in (given := said.texts("zero_point")):
        made.append(
            f"{found.prefix}: {given['false']} says zero_point false, but it has zero points, "
            f"which are subtracted"
        )
    for part in group.form.parts:
        first, *others = part.dtypes.split("|")
        if part.key in group.tensors and first == "float8_e8m0fnu" and others:
            kind = group.tensors[part.key].dtype.name
            if kind != first:
                made.append(f"{found.prefix}: {part.key} holds {first}, stored as {kind}")
    if group.form.assumption and not said.words and "K" not in found.parts.settings:
        made.append(
            f"{found.prefix or found.parts.weight}: no config tells {group.form.assumption}"
        )
    swizzled = group.form.scales[0].format == "nvfp4:scale-swizzle"
    if swizzled and "comfy_quant" not in group.tensors and "comfyui" not in said.words:
        made.append(
            f"{found.prefix}: the scales have the shape of swizzled ones, but there is no "
            f"comfy_quant: the nibbles are taken to lie high first"
        )
    return made
