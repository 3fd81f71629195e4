"""shapejit: fast copies, casts and packing of arrays on CPUs, and conversion of checkpoints.

>>> import numpy as np
>>> import shapejit as sj
>>> sj.onnx.reshape(np.zeros((2, 3, 4), np.float32), [0, -1]).shape
(2, 12)
"""

from .cli import startup as _startup  # noqa: F401  # first: Ctrl-C may come at once

# isort: split

from typing import Any as _Any

from .arrays.operations import ALIASES as _ALIASES, OPERATIONS as _OPERATIONS
from .runtime.uninterrupted import module as _module

__version__ = "0.1.0"

# One row per module: the public names that it has beside the operations on arrays. It is imported
# when one of them is first asked for, and stands for itself where a name is its own. `__init__.pyi`
# says the same to type checkers.
_NAMES = {
    "arrays.tensor": "Tensor asarray",
    "programs.program": "Program plan",
    "programs.batch": "reshape_batch",
    "programs.target_shapes": "resolve_batch",
    "dialects.onnx": "onnx",
    "dialects.openvino": "openvino",
    "dialects.onednn": "onednn",
    "shapes.resolver": "resolve",
    "dtypes": "dtypes",
    "dtypes.table": "DType dtype",
    "packings.rows": "formats",
    "packings.repacking": "repack",
    "quantization.scheme": "schemes",
    "files": "files",
    "files.file_formats": "load_file save_file",
    "errors": (
        "AxisError DTypeError ExportError FileFormatError FormatError OutOfBoundsError "
        "ReshapeError ShapeJitError TraceError UnknownNameError"
    ),
    "runtime.result_memory": "set_result_cache",
    "runtime.kernels": "kernel_status",
    "programs.warming": "warmup",
}

# What pickles call: they name nothing below the package itself, so that modules may move.
_PICKLED = {
    "_program": "programs.program",
    "_tensor": "arrays.tensor",
}

_OPERATIONS_WHERE = {
    name: f"operations.{row.function}" for name, row in _OPERATIONS.items() if row.function
}
_WHERE = _OPERATIONS_WHERE | {
    name: where for where, names in _NAMES.items() for name in names.split()
}

__all__ = sorted(_WHERE)

_WHERE |= _PICKLED


def __getattr__(name: str) -> _Any:
    if name not in _WHERE:
        instead = f": use shapejit.{_ALIASES[name]}" if name in _ALIASES else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{instead}")
    where = _module(_WHERE[name])
    value = where if where.__name__.endswith(f".{name}") else getattr(where, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
