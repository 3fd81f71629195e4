"""A Program in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import shape_text
from .fuse import Route

if TYPE_CHECKING:
    from .program import Program


def described(program: Program, route: Route) -> str:
    """What a program that takes this route makes of what, how many bytes it moves, and how."""
    steps = [step.plan for step in route.copies]
    kinds = dict.fromkeys((str(program.dtype), str(program.result_dtype)))
    shapes = f"{shape_text(program.source_shape)} -> {shape_text(program.shape)}"
    head = f"{shapes} {' -> '.join(kinds)}: "
    if not steps:
        return head + "a view, nothing is moved"
    copies = "1 copy" if len(steps) == 1 else f"{len(steps)} copies"
    read = sum((step.layout.size * step.layout.bits + 7) // 8 for step in route.copies)
    written = sum(step.nbytes for step in route.copies)
    head += f"{copies}, {read} bytes read, {written} written"
    if not route.whole:
        head += ", and a view of the last"
    return "\n".join([head, *(f"{i}. {step}" for i, step in enumerate(steps, 1))])
