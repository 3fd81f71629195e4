"""The attacks, one row each."""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

import sweeps

from . import (
    aliases,
    batches,
    caches,
    casts,
    checkpoints,
    crossings,
    entries,
    files,
    hostile,
    layouts,
    lies,
    nested,
    operations,
    pretenders,
    programs,
)


class Attack(NamedTuple):
    """`case` carries out one random case, and raises where something is wrong.

    `few` cases are a test among the others, 0 where only a long run makes sense; a case that
    takes more than `seconds` hangs: compiling for an empty cache takes long, too.
    """

    case: Callable[[Random], None]
    does: str
    few: int
    seconds: int = 600


ATTACKS = {
    "batches": Attack(
        batches.case, "every operation on every dtype, one tensor to 2000, at guarded pages", 30
    ),
    "casts": Attack(
        casts.case, "casts, dequantizing and quantizing of any view, at guarded pages", 12
    ),
    "operations": Attack(
        operations.case, "operations on ndarrays, Tensors and torch's tensors, beside NumPy's", 60
    ),
    "programs": Attack(
        programs.case, "programs that convert, of ndarrays, Tensors and torch tensors", 60
    ),
    "aliases": Attack(aliases.case, "outputs that overlap sources and one another", 200),
    "checkpoints": Attack(
        checkpoints.case, "configs with unknown keys, and stray tensors of few bits", 40
    ),
    "hostile": Attack(hostile.case, "arguments that nobody should pass", 200),
    "layouts": Attack(layouts.case, "layout operators with arguments that nobody should pass", 200),
    "lies": Attack(lies.case, "tensors, programs and pickles of facts that do not fit", 100),
    "pretenders": Attack(pretenders.case, "subclasses and objects that lie", 150),
    "entries": Attack(
        entries.case, "small calls of kinds that compiled code knows, and what only seems so", 60
    ),
    "reshaped": Attack(
        entries.threads, "arrays that another thread reshapes or drops meanwhile", 0
    ),
    "nested": Attack(nested.case, "calls from signal handlers and threads while others run", 2),
    "caches": Attack(caches.case, "shapes that never repeat, and the memory they take", 1),
    "crossings": Attack(crossings.case, "sources and outputs that lie between one another", 3),
    "growth": Attack(crossings.growth, "the time that thousands of these take", 0),
    "moments": Attack(
        sweeps.case, "forks, interrupts and exits while kernels are compiled or loaded", 0
    ),
    "files": Attack(files.case, "files of every format and TensorProtos, mutated", 60),
}
