"""All benchmark classes, and what of them two commits are compared by."""

import inspect
import pkgutil
import re
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from .ratios import Ratios
from .statements import baseline, read

TURNS = 6


@dataclass(frozen=True)
class Item:
    """A case of a benchmark class, and the baseline it is compared over; or a counter."""

    kind: str
    case: str | None
    baseline: str = ""
    method: str = ""
    unit: str = ""
    turns: int = 0

    def __str__(self):
        name = f"{self.kind}.{self.method}" if self.method else self.kind
        return name if self.case is None else f"{name}({self.case})"


@dataclass(frozen=True)
class Statement(Item):
    """A case of a file of statements: `kind` is the file."""

    def __str__(self):
        return str(self.case)


def statements(path, patterns=()):
    """What is compared of another package: the cases of a file."""
    found = [
        Statement(str(Path(path).absolute()), name, baseline(case), turns=TURNS)
        for name, case in read(path)[1].items()
    ]
    return [item for item in found if all(re.search(p, str(item)) for p in patterns)]


def classes():
    """The benchmark classes by name, MODULE.CLASS."""
    from . import __path__ as folder

    for _, name, _ in pkgutil.iter_modules(folder):
        module = import_module(f"{__package__}.{name}")
        for _, kind in inspect.getmembers(module, inspect.isclass):
            own = kind.__module__ == module.__name__ and not inspect.isabstract(kind)
            if own and hasattr(kind, "version"):
                yield f"{name}.{kind.__name__}", kind


def items(patterns=(), everything=False):
    """What is compared: cases of the ratio classes, and the counters."""
    found = []
    for name, kind in classes():
        if issubclass(kind, Ratios):
            found += _ratio_items(name, kind, everything)
        elif getattr(kind, "counted", False):
            found += _counter_items(name, kind)
    return [item for item in found if all(re.search(p, str(item)) for p in patterns)]


def _ratio_items(name, kind, everything):
    cases = kind.params if everything or kind.compared is None else kind.compared
    return [Item(name, case, kind.baseline, turns=min(TURNS, kind.turns)) for case in cases]


def _counter_items(name, kind):
    methods = [method for method in dir(kind) if method.startswith("track_")]
    return [
        Item(name, case, method=method, unit=getattr(kind, method).unit)
        for method in methods
        for case in getattr(kind, "params", [None])
    ]
