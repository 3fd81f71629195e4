"""einops' own tests of what needs no arithmetic, with Tensors."""

import itertools
import os

import numpy as np
import pytest

einops_tests = pytest.importorskip("einops.tests")
backend = pytest.importorskip("shapejit.adapters.einops_backend")

# Its test modules ask for the backends when they are imported.
os.environ.setdefault("EINOPS_TEST_BACKENDS", "shapejit")
einops_tests.collect_test_backends = lambda symbolic, layers: (
    [] if symbolic or layers else [backend.ShapejitBackend()]
)

from einops.tests import test_ops as ops  # noqa: E402  # behind importorskip
from einops.tests.test_ops import (  # noqa: E402, F401
    test_concatenations_and_stacking,
    test_repeat_imperatives,
    test_tiling_imperatives,
)
from einops.tests.test_other import (  # noqa: E402, F401
    test_ellipsis,
    test_failures,
    test_parse_shape_imperative,
    test_parse_with_anonymous_axes,
    test_repeating,
    test_underscore,
    test_underscore_one,
    test_underscore_several,
)
from einops.tests.test_packing import test_pack_unpack_against_numpy  # noqa: E402, F401
from einops.tests.test_parsing import (  # noqa: E402, F401
    test_elementary_axis_name,
    test_invalid_expressions,
    test_parse_expression,
)


def test_patterns():
    """test_ellipsis_ops_imperative without its reductions."""
    x = np.arange(2 * 3 * 4 * 5 * 6).reshape([2, 3, 4, 5, 6])
    pairs = itertools.chain(*ops.equivalent_rearrange_patterns)
    for pattern in (*ops.identity_patterns, *pairs):
        ops.check_op_against_numpy(backend.ShapejitBackend(), x, pattern, {}, "rearrange")


@pytest.mark.parametrize("repeats", [(1, 2, 3), (3, 1, 1), (2, 3, 1), (0, 1, 2)])
def test_tiles_of_any_dims(repeats):
    made = backend.ShapejitBackend()
    x = np.arange(30).reshape(2, 3, 5)
    assert np.array_equal(made.tile(made.from_numpy(x), repeats).numpy(), np.tile(x, repeats))
