"""Formulas for numbers over NumPy's arrays: those for some processors, too, on every one."""

import numpy as np
import pytest

import shapejit as sj
from shapejit.engine.converting import cast_conversion
from shapejit.kernels import numerics

FLOATS = [d for d in sj.dtypes.all() if d.kind == "float" and d.format and not d.format.table]
NARROW = [d for d in FLOATS if d.bits <= 8 and d.format.special != "unsigned"]
INTEGERS = [d for d in sj.dtypes.all() if d.kind == "integer" and d.bits <= 8]
WORDS = np.arange(1 << 16, dtype=np.uint16)
SINGLES = (WORDS.astype(np.uint32) << 16).view(np.float32)


def names(kinds):
    return pytest.mark.parametrize("kind", kinds, ids=[d.name for d in kinds])


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


def test_float64_rounded_to_odd_rounds_as_itself():
    """To bfloat16, exactly between two of which lie the values, or the least distance beside."""
    middle = ((np.arange(0x3F80, 0x4080) << 16) + 0x8000).astype(np.uint32).view(np.float32)
    for far in (-np.inf, np.inf):
        values = np.nextafter(middle.astype(np.float64), far)
        near = middle.view(np.uint32) >> 16
        made = cast_conversion(sj.dtype("float64"), sj.dtype("bfloat16"))
        codes = numerics.cut(numerics.single(values), made)
        assert np.array_equal(codes, near + (far > 0))
