"""How a Program is printed."""

from __future__ import annotations

from ..dtypes.table import DType
from ..errors import shape_text
from .fuse import Route

Arrays = tuple[tuple[int, ...], DType]  # the shape and dtype of arrays


def described(source: Arrays, result: Arrays, route: Route) -> str:
    """A Program in words: shapes, bytes moved, and the plan of each copy."""
    steps = [step.plan for step in route.copies]
    kinds = dict.fromkeys((str(source[1]), str(result[1])))
    shapes = f"{shape_text(source[0])} -> {shape_text(result[0])}"
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
