"""The list of public names in the README, each with a link to its docstring."""

import inspect
import re
import sys
from pathlib import Path

from .record import ROOT

# What a name belongs to, by the module or package below shapejit/ that it comes from.
GROUPS = {
    "Arrays": ("operations", "joining", "manipulation", "familiar", "codes", "methods", "tensor"),
    "Numbers": ("casts", "equality"),
    "Many at once": ("programs",),
    "Specifications": ("dialects", "resolver"),
    "Dtypes": ("dtypes",),
    "Quantised weights": ("quantization", "packings", "repacking"),
    "Files": ("files",),
    "Errors": ("errors",),
}
REST = "Process"


def listed():
    """The lines of the list: a line per group."""
    import shapejit as sj

    groups = {group: [] for group in (*GROUPS, REST)}
    for name in sj.__all__:
        path = _path(name, getattr(sj, name)).relative_to(ROOT)
        room = path.parts[1].removesuffix(".py")
        group = next((g for g, rooms in GROUPS.items() if room in rooms), REST)
        groups[group].append(f"[`{name}`]({path.as_posix()})")
    return "\n".join(f"- **{group}**: {', '.join(links)}" for group, links in groups.items())


def _path(name, value):
    """The file that has the docstring of a public name."""
    if inspect.ismodule(value):
        return Path(value.__file__)
    if callable(value):
        return Path(sys.modules[inspect.unwrap(value).__module__].__file__)
    # A table: the module that it is assigned in.
    modules = [m for m in sys.modules.values() if getattr(m, name, None) is value]
    paths = [Path(m.__file__) for m in modules]
    return next(p for p in paths if re.search(rf"^{name}\b.* = ", p.read_text(), re.MULTILINE))
