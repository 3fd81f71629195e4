"""Bytes on disk <-> Tensors: one module or package per file format."""

from importlib import import_module
from typing import Any

from .file_formats import load_file, save_file

__all__ = ["convert", "load_file", "save_file"]


def __getattr__(name: str) -> Any:
    """`convert`, from the room below this one, which is imported when it is first asked for."""
    if name == "convert":
        return import_module("..conversion.call", __name__).convert
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
