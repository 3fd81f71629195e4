"""Checkpoints of PyTorch (.bin, .pt, .pth): pickles, which torch reads without running their code.

Pickles are read by `torch.load(weights_only=True, mmap=True)` only. Before torch 2.6 it executed
code of malicious files (CVE-2025-32434).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..arrays.tensor import asarray
from ..errors import FileFormatError, about, quoted, shortened, type_name
from ..runtime.ndarrays import is_mapping
from .checkpoint import Checkpoint
from .in_memory import MemoryFile
from .open_files import OpenFile
from .paths import Path, file_name
from .places import opened
from .stored import Stored

_MIN_VERSION = (2, 6)
_OF_FILES = {"format": "pt"}  # the metadata without which older transformers refuse safetensors
_ZIP, _FIRST = b"PK\x03\x04", b"/data.pkl"  # of the ZIP written by torch.save since 1.6
# The usual keys under which training scripts store the tensors of a model.
_WRAPPERS = ("state_dict", "model_state_dict", "model", "module")


class _Loaded(MemoryFile):
    """The storage of a tensor, which torch has mapped; its version is that of the file."""

    def __init__(self, file: OpenFile, memory: Any) -> None:
        super().__init__(file.path, memory)
        self._file = file

    @property
    def version(self) -> str:
        """The version of the file."""
        return self._file.version


def begins(head: bytes) -> bool:
    """Whether the first bytes are those of a ZIP of torch.save, whose first member is a pickle."""
    length = int.from_bytes(head[26:28], "little")
    return head.startswith(_ZIP) and head[30 : 30 + length].endswith(_FIRST)


def read(path: Path) -> Checkpoint:
    """The tensors of a state_dict, which may be an entry of a dict, as training scripts save it.

    Raises FileFormatError without torch 2.6 or newer, for remote files, and for files that torch
    cannot load without running code (pickles of other classes, and those of torch before 1.6), and
    for dicts of several state_dicts.
    """
    name = file_name(path)
    file = opened(name)
    if not isinstance(file, OpenFile):
        raise FileFormatError(name, None, "PyTorch checkpoints must be local files")
    if not file.head:
        raise FileFormatError(name, None, "it is empty")
    torch = _torch(name)
    try:
        found = torch.load(name, map_location="cpu", weights_only=True, mmap=True)
    except Exception as fault:
        first = str(fault).strip().partition("\n")[0].partition(". ")[0]  # sentence
        reason = shortened(first or type(fault).__name__, 200)
        if file.head.startswith(_ZIP) and not import_module("zipfile").is_zipfile(name):
            reason = "it is not a complete ZIP"
        elif "Weights only load failed" in reason:
            reason = "it holds objects of other classes than tensors; save a state_dict() instead"
        elif name.endswith(".safetensors"):  # by which torch takes it for another format
            reason = "it is a checkpoint of torch; rename it to .pt"
        raise FileFormatError(name, None, f"torch does not load it: {reason}") from None
    members, others = {}, list[str]()
    for key, tensor in _state_dict(name, found, torch).items():
        if not isinstance(tensor, torch.Tensor):
            others.append(f"{quoted(key)} ({type_name(tensor)})")
            continue
        with about(f"{quoted(name)}: tensor {quoted(key)}"):
            t = asarray(tensor.detach())
        members[key] = Stored(_Loaded(file, t.buffer), key, 0, t.dtype, t.layout)
    warnings = [f"{quoted(name)}: no tensors, not read: {', '.join(others)}"] if others else []
    return Checkpoint(name, "pytorch", members, None, of_files=_OF_FILES, warnings=warnings)


def _torch(path: str) -> Any:
    """torch, of a version that runs no code of the files that it loads."""
    least = ".".join(map(str, _MIN_VERSION))
    reason = f"it is a pickle of PyTorch, which torch {least} and later read safely"
    try:
        torch = import_module("torch")
    except ImportError:
        raise FileFormatError(path, None, f"{reason}: pip install 'torch>={least}'") from None
    version = str(torch.__version__)
    if tuple(int(n) for n in version.split("+")[0].split(".")[:2]) < _MIN_VERSION:
        raise FileFormatError(path, None, f"{reason}, this one is {version}")
    return torch


def _state_dict(path: str, found: Any, torch: Any) -> dict[str, Any]:
    """The mapping of names to tensors and others: the whole pickle, or one that is its entry.

    Tensors beside an entry with a usual name are the state of a training: steps, random numbers.
    """
    held = dict[str | None, dict[str, Any]]()  # None: the outermost
    for key, each in [(None, found), *found.items()] if is_mapping(found) else ():
        inside = {str(k): x for k, x in each.items()} if is_mapping(each) else {}
        if not found or any(isinstance(x, torch.Tensor) for x in inside.values()):
            held[None if each is found else str(key)] = inside
    if any(key in held for key in _WRAPPERS):
        held.pop(None, None)
    if len(held) == 1:
        return next(iter(held.values()))
    if not held:
        raise FileFormatError(path, None, "it holds no mapping of names to tensors")
    names = ", ".join("the outermost" if key is None else quoted(key) for key in held)
    raise FileFormatError(
        path, None, f"it holds several mappings of names to tensors ({names}): save one of them"
    )
