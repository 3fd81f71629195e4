"""Operators of ONNX models: chains of them beside onnxruntime, gathers and pads beside NumPy."""

from functools import partial
from importlib import import_module
from math import prod

import numpy as np

from . import ratios
from .ratios import OURS, OverNumpy, Ratios, installed

# By name: the shape without the batch, then (operator, inputs or attributes) one after the
# other. A target shape of -1 stands for the batch.
CHAINS = {
    "windows": (
        (56, 56, 96),
        ("Reshape", {"shape": (-1, 8, 7, 8, 7, 96)}),
        ("Transpose", {"perm": (0, 1, 3, 2, 4, 5)}),
        ("Reshape", {"shape": (-1, 49, 96)}),
    ),
    "channel-shuffle": (
        (116, 28, 28),
        ("Reshape", {"shape": (-1, 2, 58, 28, 28)}),
        ("Transpose", {"perm": (0, 2, 1, 3, 4)}),
        ("Reshape", {"shape": (-1, 116, 28, 28)}),
        ("Slice", {"starts": (58,), "ends": (116,), "axes": (1,)}),
    ),
    "heads": (
        (512, 3072),
        ("Reshape", {"shape": (-1, 512, 3, 16, 64)}),
        ("Transpose", {"perm": (2, 0, 3, 4, 1)}),
        ("Slice", {"starts": (1,), "ends": (2,), "axes": (0,)}),
        ("Squeeze", {"axes": (0,)}),
        ("Reshape", {"shape": (-1, 64, 512)}),
    ),
}
ATTRIBUTES = {"perm"}
OPSET, IR = 21, 10


def chain(name):
    """A model of a chain, as the protobuf that both sides read, and its input."""
    onnx = needed("onnx")
    inner, *steps = CHAINS[name]
    shape = (max(1, ratios.NBYTES // (4 * prod(inner))), *inner)
    nodes, constants = [], []
    for i, (operator, given) in enumerate(steps):
        inputs = [f"x{i}"]
        for key, value in given.items():
            if key not in ATTRIBUTES:
                inputs.append(f"{key}{i}")
                array = np.array(value, np.int64)
                constants.append(onnx.numpy_helper.from_array(array, inputs[-1]))
        own = {key: value for key, value in given.items() if key in ATTRIBUTES}
        nodes.append(onnx.helper.make_node(operator, inputs, [f"x{i + 1}"], **own))
    kind, last = onnx.TensorProto.FLOAT, f"x{len(steps)}"
    graph = onnx.helper.make_graph(
        nodes,
        name,
        [onnx.helper.make_tensor_value_info("x0", kind, shape)],
        [onnx.helper.make_tensor_value_info(last, kind, None)],
        constants,
    )
    imports = [onnx.helper.make_opsetid("", OPSET)]
    model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=IR)
    return model, np.ones(shape, np.float32)


def needed(module):
    """A module that not every environment has."""
    try:
        return import_module(module)
    except ImportError:
        raise NotImplementedError(f"no {module}") from None


class Chains(Ratios):
    """Chains of ONNX operators that only move elements, each one copy"""

    params = list(CHAINS)
    baseline = "onnxruntime"
    version = "1"

    def setup_cache(self):
        return self.measured()

    def ways(self, case):
        installed("onnx.transpose")
        needed("onnx")
        backend = import_module(f"{OURS}.adapters.onnx_backend")
        runtime = needed("onnxruntime")
        model, x = chain(case)
        session = runtime.InferenceSession(
            model.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        return {
            OURS: partial(backend.Evaluator(model).run, None, {"x0": x}),
            "onnxruntime": partial(session.run, None, {"x0": x}),
        }

    def track_over_onnxruntime(self, found, case):
        return self.over(found, case, "onnxruntime")

    track_over_onnxruntime.unit = "time / onnxruntime's"


class Gathers(OverNumpy):
    """Rows and columns by their indices, and arrays padded"""

    # (what, shape, axis, indices)
    TABLE = {
        "rows-3KiB": ("take", (4096, 768), 0, 8192),
        "rows-64B": ("take", (65536, 16), 0, 65536),
        "columns": ("take", (1024, 1024), 1, 2048),
        "few": ("take", (64, 64), 0, 8),
        "pad-images": ("pad", (32, 64, 56, 56), 1, 1),
        "pad-small": ("pad", (1, 8, 8, 8), 1, 1),
    }
    params = list(TABLE)
    compared = params[::2]
    version = "1"

    def setup_cache(self):
        return self.measured()

    def ways(self, case):
        what, shape, axis, count = self.TABLE[case]
        least = max(1, ratios.NBYTES // (4 * prod(shape[1:])))
        x = np.ones((min(shape[0], least), *shape[1:]), np.float32)
        if what == "pad":
            sj = installed("onnx.pad")
            widths = (0, 0, count, count)
            return {
                OURS: partial(sj.onnx.pad, x, widths * 2),
                "numpy": partial(np.pad, x, [(n, n) for n in widths]),
            }
        sj = installed("take")
        indices = np.random.default_rng(1).integers(0, x.shape[axis], count)
        return {
            OURS: partial(sj.take, x, indices, axis=axis),
            "numpy": partial(np.take, x, indices, axis),
        }
