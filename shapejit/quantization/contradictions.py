"""Contradictory facts in a checkpoint, by which other programs may misread it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..errors import quoted
from .configuration import Declared
from .groups import Group
from .parts import Found
from .rows import BY_NAME

# Gates that inference engines fuse with another projection, with one global scale for both.
FUSED_GATES = (("gate_proj", "up_proj"), ("w1", "w3"))
# What a global scale looks like that is applied so: "*" and above 1, "/" and below 1.
_REVERSED = {
    "*": "above 1: {} multiplies by it, but it looks like a reciprocal, by which others divide",
    "/": "below 1: {} divides by it, but it looks like a scale by which others multiply",
}


def contradictions(found: Sequence[Found], said: Declared) -> Iterator[str]:
    """Warnings about contradictions, with the tensors concerned."""
    factors = dict[str, float]()
    for each in found:
        factor = _factor(each.group)
        where = each.prefix or each.parts.weight
        yield from (f"{where}: {text}" for text in _of_one(each, factor, said))
        if factor is not None:
            factors[each.prefix] = factor
    for gate, factor in factors.items():
        for first, second in FUSED_GATES:
            up = gate.removesuffix(first) + second
            if gate.endswith(first) and factors.get(up, factor) != factor:
                yield (
                    f"{gate} and {up} have different global scales, {factor:g} and "
                    f"{factors[up]:g}: fused kernels use only one of them"
                )


def _factor(group: Group) -> float | None:
    """The global scale of a weight, if it has one."""
    t = group.tensors.get(group.form.factor.part) if group.form.factor else None
    return None if t is None or t.size != 1 else float(t.numpy().item())


def _of_one(found: Found, factor: float | None, said: Declared) -> Iterator[str]:
    group, form, last = found.group, found.group.form, found.group.form.scales[-1]
    if factor is not None and (factor > 1 if last.step == "*" else factor < 1):
        yield f"{last.part} is {factor:g}, {_REVERSED[last.step].format(found.scheme)}"
    codes = group.tensors[form.codes.part].dtype.name
    for text in said.texts("fmt") if codes.startswith("float8_e") else ():
        if text.removeprefix("float8_")[:4] not in codes:
            yield f"the config says fmt {quoted(text)}, it is {codes}"
    for key in said.layouts if form.layout else ():
        others = {each.layout for each in BY_NAME[found.scheme].forms} - {form.layout}
        for text, where in said.texts(key).items():
            if text in others:
                yield (
                    f"{where} says {key} {quoted(text)}, but its tensors are stored as "
                    f"{form.layout}, and read so"
                )
    read = found.parts.settings
    for where, general in () if found.prefix in said.modules else said.general():
        for key, value in general.items():
            if read.get(key, value) != value:
                yield (
                    f"{where} says {key} {value}, but its tensors have {read[key]}, and are read so"
                )
    if listed := said.left_out.get(found.prefix):
        yield f"{listed} lists it as not quantised, but its tensors are, and are read so"
    if group.has(form.zeros) and "false" in (given := said.texts("zero_point")):
        yield (
            f"{given['false']} says zero_point false, but it has zero points, which are subtracted"
        )
    for key, t in group.tensors.items():
        if form.part(key).kinds[0] == "float8_e8m0fnu" != t.dtype.name:
            yield f"{key} holds float8_e8m0fnu, stored as {t.dtype.name}"
    if form.assumption and not said.words and "K" not in found.parts.settings:
        yield f"no config states {form.assumption}"
    swizzled = form.scales[0].format == "nvfp4:scale-swizzle"
    if swizzled and "comfy_quant" not in group.tensors and "comfyui" not in said.words:
        yield (
            "the scales have the shape of swizzled ones, but there is no comfy_quant: the nibbles "
            "are assumed to be stored high first"
        )
