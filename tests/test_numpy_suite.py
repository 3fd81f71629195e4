"""NumPy's own tests of its manipulation functions, run with shapejit's in their place.

Each test module of NumPy's sees a namespace that is NumPy's but for these functions. They
get arrays where NumPy also takes lists.
"""

from importlib import import_module
from types import ModuleType

import numpy as np

import shapejit as sj


def array(x):
    """What NumPy makes of an argument that is no array."""
    return x if isinstance(x, np.ndarray) else np.asanyarray(x)


def of_one(function):
    return lambda x, *args, **named: function(array(x), *args, **named)


def of_several(function):
    def call(arrays, *args, **named):
        return function(list(map(array, arrays)), *args, **named)

    return call


def ones(a):
    return [i for i, size in enumerate(np.shape(a)) if size == 1]


ONE = {
    "broadcast_to": sj.broadcast_to,
    "expand_dims": sj.expand_dims,
    "matrix_transpose": sj.matrix_transpose,
    "moveaxis": sj.moveaxis,
    "permute_dims": sj.permute_dims,
    "repeat": sj.repeat,
    "reshape": sj.reshape,
    "roll": sj.roll,
    "split": sj.split,
    "tile": sj.tile,
    "transpose": sj.transpose,
    "unstack": sj.unstack,
}
SEVERAL = {"concat": sj.concat, "concatenate": sj.concat, "stack": sj.stack}
OURS = {
    **{name: of_one(function) for name, function in ONE.items()},
    **{name: of_several(function) for name, function in SEVERAL.items()},
    "broadcast_arrays": lambda *arrays: sj.broadcast_arrays(*map(array, arrays)),
    "broadcast_shapes": sj.broadcast_shapes,
    "flip": lambda m, axis=None: sj.flip(array(m), axis=axis),
    "squeeze": lambda a, axis=None: sj.squeeze(array(a), ones(a) if axis is None else axis),
}


DTYPE = "concat has no dtype=, casting= (the Array API has neither)"
ORDER = "reshape has no order= (the Array API has none)"
MASK = "masked arrays are refused: their mask would be lost"
EXCLUDED = {
    "test_out_and_dtype": DTYPE,
    "test_dtype_with_promotion": DTYPE,
    "test_concatenate_same_value": DTYPE,
    "test_subarray_error": DTYPE,
    "test_concatenate_axis_None": DTYPE,
    "test_bad_out_shape": "out= has the dtype of the result: nothing is cast on the way",
    "test_exceptions": "NumPy's words for shapes that differ",
    "test_subclasses": MASK,
    "test_array_likes": MASK,
    "test_tile_one_repetition_on_array_gh4679": "tile is a view where one exists, as reshape",
    "test_reshape_shape_arg": ORDER,
    "test_reshape_copy_arg": ORDER,
}


def numpys(name, *tests):
    """The tests of a module of NumPy's, by their names, with our functions."""
    module = import_module(f"numpy.{name}")
    namespace = ModuleType("numpy")
    vars(namespace).update(vars(np) | OURS)
    for known in OURS.keys() & vars(module).keys():
        setattr(module, known, OURS[known])
    module.np = namespace
    found = [getattr(module, test) for test in tests]
    return [without_excluded(test) if isinstance(test, type) else test for test in found]


def without_excluded(test):
    return type(test.__name__, (test,), dict.fromkeys(EXCLUDED.keys() & vars(test).keys()))


# Without test_stack: it wants generators refused and dtype=. See tests/test_manipulation.py.
TestConcatenate, test_unstack = numpys(
    "_core.tests.test_shape_base", "TestConcatenate", "test_unstack"
)
TestExpandDims, TestSplit, TestSqueeze, TestTile = numpys(
    "lib.tests.test_shape_base", "TestExpandDims", "TestSplit", "TestSqueeze", "TestTile"
)
(TestFlip,) = numpys("lib.tests.test_function_base", "TestFlip")
TestRoll, TestMoveaxis, TestNonarrayArgs = numpys(
    "_core.tests.test_numeric", "TestRoll", "TestMoveaxis", "TestNonarrayArgs"
)
(
    test_same, test_one_off, test_same_input_shapes, test_two_compatible_by_ones_input_shapes,
    test_two_compatible_by_prepending_ones_input_shapes,
    test_incompatible_shapes_raise_valueerror, test_same_as_ufunc, test_broadcast_to_succeeds,
    test_broadcast_to_raises, test_broadcast_shapes_succeeds, test_broadcast_shapes_raises,
) = numpys(
    "lib.tests.test_stride_tricks",
    "test_same", "test_one_off", "test_same_input_shapes",
    "test_two_compatible_by_ones_input_shapes",
    "test_two_compatible_by_prepending_ones_input_shapes",
    "test_incompatible_shapes_raise_valueerror", "test_same_as_ufunc",
    "test_broadcast_to_succeeds", "test_broadcast_to_raises", "test_broadcast_shapes_succeeds",
    "test_broadcast_shapes_raises",
)  # fmt: skip
