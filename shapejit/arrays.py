"""Where ndarrays enter the package: as exact ndarrays, without their subclass."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import DTypeError


def plain(x: Any) -> NDArray[Any]:
    """The ndarray without its subclass, over the same memory; an exact ndarray is itself.

    A subclass may override `shape`, `strides` or `__array_interface__`: none of its
    code runs here, and the attributes of the result are NumPy's own. Raises
    DTypeError for other objects, even if their `__class__` is ndarray, and for
    masked arrays, whose mask would be lost.

    >>> type(plain(np.zeros(3).view(np.recarray)))
    <class 'numpy.ndarray'>
    """
    if type(x) is np.ndarray:
        return x
    if not issubclass(type(x), np.ndarray):
        raise DTypeError(f"expected a numpy.ndarray, not {type(x).__name__}")
    if issubclass(type(x), np.ma.MaskedArray):
        raise DTypeError("a masked array would lose its mask: pass x.data and x.mask separately")
    return np.ndarray.view(x, np.ndarray)
