"""Adapters for onnx, einops, dask and torch's DataLoader, one module each. Nothing imports them.

`arrays/` converts the arrays of other libraries.
"""

from ..runtime.uninterrupted import module as _module

# What nearly all of them need, imported as for a function of shapejit's.
_module("operations.casts")
