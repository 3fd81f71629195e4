"""Files: one module or package per file format, which reads and writes Tensors."""

from importlib import import_module
from typing import Any

from .file_formats import load_file, save_file

__all__ = ["convert", "differences", "load_file", "save_file"]

# From `conversion`, which imports this package, so they are imported on first access.
_LATER = {"convert": "planning", "differences": "comparing"}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(f"..conversion.{_LATER[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
