"""The attacks, one row each."""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from . import aliases, batches


class Attack(NamedTuple):
    """`case` carries out one random case, and raises where something is wrong.

    `few` cases are a test among the others, 0 where only a long run makes sense; a case that
    takes more than `seconds` hangs.
    """

    case: Callable[[Random], None]
    does: str
    few: int
    seconds: int = 60


ATTACKS = {
    "batches": Attack(
        batches.case, "every operation on every dtype, one tensor to 2000, at guarded pages", 300
    ),
    "aliases": Attack(aliases.case, "outputs that overlap sources and one another", 1000),
}
