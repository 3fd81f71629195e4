"""Sizes of dims as products and quotients of named numbers, evaluated and solved.

A size is written as a name or a number with factors and divisors, from left to right:
`"K"`, `"K/g"`, `"K*b/32"`. Divisions round up. N are a weight's output features, K its
inputs, the others settings of a scheme: b bits, g elements per scale.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

_OPERAND = re.compile(r"([*/]?)(\w+)")


@lru_cache(maxsize=256)  # of the sizes in the table of schemes
def _operands(size: str) -> tuple[tuple[str, str], ...]:
    """The factors and divisors of a size, each with its sign."""
    return tuple(_OPERAND.findall(size))


def value(size: str, known: Mapping[str, int]) -> int | None:
    """The size; None if a name is unknown, or a divisor is 0.

    >>> value("K*b/32", {"K": 40, "b": 4}), value("K/g", {"K": 40})
    (5, None)
    """
    total = 1
    for sign, name in _operands(size):
        number = int(name) if name.isdigit() else known.get(name)
        if number is None or (sign == "/" and not number):
            return None
        total = -(-total // number) if sign == "/" else total * number
    return total


def solved(size: str, found: int, known: Mapping[str, int]) -> tuple[str, int] | None:
    """The only unknown name, and its value if the size is `found`; None if it is ambiguous.

    If sizes were rounded up, it is the largest value.

    >>> solved("K*b/32", 5, {"b": 4}), solved("K/g", 3, {"K": 96}), solved("K/g", 3, {"K": 97})
    (('K', 40), ('g', 32), None)
    """
    parts = _operands(size)
    unknown = [k for k, (_, name) in enumerate(parts) if not name.isdigit() and name not in known]
    if len(unknown) != 1:
        return None
    at = unknown[0]
    for sign, name in reversed(parts[at + 1 :]):
        number = int(name) if name.isdigit() else known[name]
        if sign == "*" and (not number or found % number):
            return None
        found = found * number if sign == "/" else found // number
    sign, name = parts[at]
    before = value("".join(map("".join, parts[:at])), known) if at else 1
    if before is None:
        return None
    if sign != "/":
        return None if before == 0 or found % before else (name, found // before)
    return None if found == 0 or before % found else (name, before // found)


def block(size: str, known: Mapping[str, int]) -> int:
    """The elements per step along a dim of blocks: g for `"K/g"`.

    >>> block("K/g", {"g": 32}), block("N", {})
    (32, 1)
    """
    _, _, by = size.partition("/")
    return (value(by, known) if by else 1) or 1


def steps(dims: str, known: Mapping[str, int]) -> dict[str, int]:
    """The elements per step along each axis of dims of blocks.

    >>> steps("N K/g", {"g": 32})
    {'N': 1, 'K': 32}
    """
    return {size[0]: block(size, known) for size in dims.split()}


def divisors(size: str) -> list[str]:
    """The names and numbers by which a size is divided.

    >>> divisors("N*b/32")
    ['32']
    """
    return [name for sign, name in _operands(size) if sign == "/"]
