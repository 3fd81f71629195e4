"""The attacks, one row each."""

from collections.abc import Callable
from importlib import import_module
from random import Random
from typing import NamedTuple


class Attack(NamedTuple):
    """`case` names the function that carries out one random case, and raises if it goes wrong.

    Only who carries it out imports its module. `few` cases are a test among the others, 0 where
    only a long run makes sense; a case that takes more than `seconds` hangs: compiling for an
    empty cache takes long, too.
    """

    case: str
    does: str
    few: int
    seconds: int = 600

    def function(self) -> Callable[[Random], None]:
        module, _, name = self.case.rpartition(".")
        return getattr(import_module(module), name)


ATTACKS = {
    "batches": Attack(
        "attack.batches.case",
        "every operation on every dtype, one tensor to 2000, at guarded pages",
        12,
    ),
    "casts": Attack(
        "attack.casts.case", "casts, dequantizing and quantizing of any view, at guarded pages", 6
    ),
    "operations": Attack(
        "attack.operations.case",
        "operations on ndarrays, Tensors and torch's tensors, beside NumPy's",
        40,
    ),
    "programs": Attack(
        "attack.programs.case", "programs that convert, of ndarrays, Tensors and torch tensors", 25
    ),
    "aliases": Attack("attack.aliases.case", "outputs that overlap sources and one another", 50),
    "checkpoints": Attack(
        "attack.checkpoints.case", "configs with unknown keys, and stray tensors of few bits", 25
    ),
    "hostile": Attack("attack.hostile.case", "arguments that nobody should pass", 200),
    "layouts": Attack(
        "attack.layouts.case", "layout operators with arguments that nobody should pass", 200
    ),
    "lies": Attack(
        "attack.lies.case", "tensors, programs and pickles of facts that do not fit", 100
    ),
    "pretenders": Attack("attack.pretenders.case", "subclasses and objects that lie", 100),
    "entries": Attack(
        "attack.entries.case",
        "small calls of kinds that compiled code knows, and what only seems so",
        60,
    ),
    "reshaped": Attack(
        "attack.entries.threads", "arrays that another thread reshapes or drops meanwhile", 0
    ),
    "nested": Attack(
        "attack.nested.case", "calls from signal handlers and threads while others run", 2
    ),
    "caches": Attack("attack.caches.case", "shapes that never repeat, and the memory they take", 1),
    "crossings": Attack(
        "attack.crossings.case", "sources and outputs that lie between one another", 3
    ),
    "growth": Attack("attack.crossings.growth", "the time that thousands of these take", 0),
    "moments": Attack(
        "sweeps.case", "forks, interrupts and exits while kernels are compiled or loaded", 0
    ),
    "files": Attack("attack.files.case", "files of every format and TensorProtos, mutated", 60),
}
