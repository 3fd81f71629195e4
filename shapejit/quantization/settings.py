"""What users say of a weight beside its tensors: names for the sizes of forms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..arrays.tensor import asarray
from ..errors import DTypeError
from ..runtime.ndarrays import is_mapping
from ..shapes.request import integers
from .forms import Form
from .groups import Group, fault
from .matching import matched

# The sizes that each setting stands for, by the letters of `sizes`.
SETTINGS = {
    "N": "N",
    "K": "K",
    "bits": "b",
    "num_bits": "b",
    "group_size": "g",
    "block_size": "g",
    "version": "v",
    "weight_block_size": "mk",
}


def sizes_of(scheme: str, given: Mapping[str, Any]) -> dict[str, int]:
    """The sizes that settings tell; FormatError for unknown names and sizes below 1."""
    known = dict[str, int]()
    for key, value in given.items():
        if key not in SETTINGS:
            raise fault(scheme, f"unknown setting {key!r}; known are {', '.join(SETTINGS)}")
        if value is None:
            continue
        names = SETTINGS[key]
        sizes = integers(value if len(names) > 1 else (value,), key, scheme)
        if len(sizes) != len(names) or min(sizes) < 1:
            raise fault(scheme, f"{key} must be {len(names)} of at least 1, not {value!r}")
        known |= zip(names, sizes, strict=True)
    return known


def group_of(
    scheme: str, forms: tuple[Form, ...], parts: Mapping[str, Any], settings: Mapping[str, Any]
) -> Group:
    """The parts matched with a form; settings given here come before those of the parts."""
    if not is_mapping(parts):
        raise DTypeError(f"{scheme}: parts must be a mapping, not {type(parts).__name__}")
    known = sizes_of(scheme, {**getattr(parts, "settings", {}), **settings})
    tensors = {str(name): asarray(x) for name, x in parts.items()}
    return matched(scheme, forms, tensors, known)
