"""Nodes of ONNX's layout operators as each version wants them; onnxruntime as a peer."""

from random import Random

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import shapejit as sj
from shapejit.adapters.onnx_backend import OPS, Backend
from shapejit.dialects.onnx.versions import versions

X = np.arange(24, dtype=np.float32).reshape(1, 4, 2, 3)


def i64(*values):
    return np.array(values, np.int64)


def model(name, inputs, opset, outputs=1, ranks=4, **attributes):
    """A model of one node; None is an input that is left out. And what is fed."""
    feeds = {f"x{i}": x for i, x in enumerate(inputs) if x is not None}
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    made = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(name, names, made, **attributes)
    kinds = {n: sj.dtype(x.dtype).onnx for n, x in feeds.items()}
    result = onnx.TensorProto.INT64 if name == "Size" else kinds["x0"]
    graph = helper.make_graph(
        [node],
        name,
        [helper.make_tensor_value_info(n, kinds[n], x.shape) for n, x in feeds.items()],
        [helper.make_tensor_value_info(n, result, [None] * ranks) for n in made],
    )
    imports = [helper.make_opsetid("", opset)]
    ir = min(13, max(3, helper.find_min_ir_version_for(imports, ignore_unknown=True)))
    return helper.make_model(graph, opset_imports=imports, ir_version=ir), feeds


def padded(before, behind, mode="constant", value=None):
    constant = {} if value is None else {"constant_values": value}
    return np.pad(X, [(0, 0)] * 3 + [(before, behind)], mode, **constant)


# (operator, first opset, last opset or 0, further inputs, attributes, result for X)
NODES = [
    ("Transpose", 1, 0, (), {}, X.T),
    ("Transpose", 1, 0, (), {"perm": [1, 0, 3, 2]}, X.transpose(1, 0, 3, 2)),
    ("Squeeze", 1, 12, (), {"axes": [0]}, X[0]),
    ("Squeeze", 11, 12, (), {"axes": [-4]}, X[0]),
    ("Squeeze", 1, 0, (), {}, X[0]),
    ("Squeeze", 13, 0, (i64(-4),), {}, X[0]),
    ("Unsqueeze", 1, 12, (), {"axes": [0, 2]}, X[None, :, None]),
    ("Unsqueeze", 11, 12, (), {"axes": [-1]}, X[..., None]),
    ("Unsqueeze", 13, 0, (i64(-1, 0),), {}, X[None, ..., None]),
    ("Flatten", 1, 0, (), {}, X.reshape(1, 24)),
    ("Flatten", 1, 0, (), {"axis": 3}, X.reshape(8, 3)),
    ("Flatten", 11, 0, (), {"axis": -1}, X.reshape(8, 3)),
    ("Expand", 8, 0, (i64(2, 1, 1, 1),), {}, np.concatenate([X, X])),
    ("Concat", 1, 3, (X,), {}, np.concatenate([X, X], 1)),
    ("Concat", 1, 0, (X, X), {"axis": 2}, np.concatenate([X, X, X], 2)),
    ("Concat", 11, 0, (X,), {"axis": -1}, np.concatenate([X, X], -1)),
    ("Split", 1, 1, (np.array([1, 3], np.float32),), {"axis": 1}, (X[:, :1], X[:, 1:])),
    ("Split", 1, 12, (), {"axis": 1, "split": [1, 3]}, (X[:, :1], X[:, 1:])),
    ("Split", 1, 17, (), {"axis": 1}, (X[:, :2], X[:, 2:])),
    ("Split", 13, 0, (i64(3, 1),), {"axis": -3}, (X[:, :3], X[:, 3:])),
    ("Split", 18, 0, (), {"axis": 1, "num_outputs": 2}, (X[:, :2], X[:, 2:])),
    ("Split", 18, 0, (), {"axis": 3, "num_outputs": 2}, (X[..., :2], X[..., 2:])),
    ("Slice", 1, 9, (), {"starts": [1, -2], "ends": [99, 9], "axes": [1, 3]}, X[:, 1:, :, 1:]),
    ("Slice", 1, 9, (), {"starts": [0, 1], "ends": [1, 2]}, X[:, 1:2]),
    ("Slice", 10, 0, (i64(3), i64(-9), i64(1), i64(-2)), {}, X[:, ::-2]),
    ("Slice", 10, 0, (np.array([0, 2], np.int32), np.array([1, 3], np.int32)), {}, X[:, 2:3]),
    ("Tile", 1, 5, (np.array(2, np.float32), np.array(1, np.float32)), {},
     np.tile(X, (1, 2, 1, 1))),
    ("Tile", 6, 0, (i64(1, 2, 1, 3),), {}, np.tile(X, (1, 2, 1, 3))),
    ("Identity", 1, 0, (), {}, X),
    ("Size", 1, 0, (), {}, np.array(24)),
    ("DepthToSpace", 1, 0, (), {"blocksize": 2}, X.reshape(1, 2, 2, 1, 2, 3)
     .transpose(0, 3, 4, 1, 5, 2).reshape(1, 1, 4, 6)),
    ("DepthToSpace", 11, 0, (), {"blocksize": 2, "mode": "CRD"}, X.reshape(1, 1, 2, 2, 2, 3)
     .transpose(0, 1, 4, 2, 5, 3).reshape(1, 1, 4, 6)),
    ("SpaceToDepth", 1, 0, (), {"blocksize": 1}, X),
    ("SpaceToDepth", 28, 0, (), {"blocksize": 1, "mode": "CRD"}, X),
    ("Gather", 1, 0, (i64(2, 0),), {"axis": 1}, X[:, [2, 0]]),
    ("Gather", 11, 0, (np.array([[-1]], np.int32),), {"axis": -1}, X[..., [[-1]]]),
    ("Pad", 1, 1, (), {"paddings": [0] * 7 + [1], "mode": "edge"}, padded(0, 1, "edge")),
    ("Pad", 2, 10, (), {"pads": [0] * 7 + [1], "value": 5.0}, padded(0, 1, value=5)),
    ("Pad", 11, 0, (i64(*[0] * 7, 1), np.float32(5).reshape(())), {}, padded(0, 1, value=5)),
    ("Pad", 11, 0, (i64(*[0] * 7, 1),), {"mode": "reflect"}, padded(0, 1, "reflect")),
    ("Pad", 18, 0, (i64(0, 1), None, i64(-1)), {}, padded(0, 1, value=0)),
    ("Pad", 19, 0, (i64(2, 0), None, i64(3)), {"mode": "wrap"}, padded(2, 0, "wrap")),
    ("CenterCropPad", 18, 0, (i64(2, 5),), {"axes": [1, -1]}, padded(1, 1, value=0)[:, 1:3]),
]  # fmt: skip


@pytest.mark.parametrize("row", range(len(NODES)))
def test_nodes(row):
    """In every version that has it; in all others it is refused."""
    name, first, last, inputs, attributes, want = NODES[row]
    wanted = want if isinstance(want, tuple) else (want,)
    for version in versions(name):
        proto, feeds = model(
            name, (X, *inputs), version.since, len(wanted), wanted[0].ndim, **attributes
        )
        if first <= version.since <= (last or 99):
            onnx.checker.check_model(proto)
            plugged = ReferenceEvaluator(proto, new_ops=OPS).run(None, feeds)
            for got in (plugged, Backend.run_model(proto, feeds)):
                for y, expected in zip(got, wanted, strict=True):
                    assert (y.dtype, y.shape) == (expected.dtype, expected.shape)
                    assert y.tobytes() == expected.tobytes()
        elif not (name == "Split" and version.since == 1):  # whose input has floats
            with pytest.raises((sj.ShapeJitError, RuntimeError)):
                ReferenceEvaluator(proto, new_ops=OPS).run(None, feeds)


def runtime(name, inputs, opset, **attributes):
    """onnxruntime's answer, None if it refuses."""
    proto, feeds = model(name, inputs, opset, **attributes)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(
            proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return session.run(None, feeds)[0]
    except Exception:  # of many classes
        return None


def slices(random):
    shape = [random.randint(0, 4) for _ in range(random.randint(1, 3))]
    axes = random.sample(range(len(shape)), random.randint(1, len(shape)))
    ends = [-(2**63), -9, -3, -1, 0, 1, 2, 9, 2**63 - 1]
    inputs = [[random.choice(ends) for _ in axes] for _ in range(2)]
    inputs += [axes, [random.choice([1, 2, -1, -3]) for _ in axes]]
    if min(inputs[3]) < 0:  # onnxruntime takes the largest end for the last one of any step
        inputs[1] = [min(end, 9) for end in inputs[1]]
    return "Slice", shape, [i64(*v) for v in inputs], {}


def pads(random):
    shape = [random.randint(1, 4) for _ in range(random.randint(1, 3))]
    mode = random.choice(["constant", "edge", "reflect", "wrap"])
    # What reflect does beyond one reflection, and what more is removed than there is: open.
    most = min(shape) - 1 if mode == "reflect" else 5
    widths = [random.randint(0 if min(shape) < 3 else -1, most) for _ in 2 * shape]
    if mode == "reflect" and min(widths) < 0:
        widths = [abs(n) for n in widths]
    return "Pad", shape, [i64(*widths)], {"mode": mode}


def gathers(random):
    shape = [random.randint(1, 4) for _ in range(random.randint(1, 3))]
    axis = random.randrange(-len(shape), len(shape))
    most = shape[axis]
    found = [random.randint(-most, most - 1) for _ in range(random.randint(0, 4))]
    return "Gather", shape, [i64(*found)], {"axis": axis}


def expansions(random):
    shape = [random.choice([1, 3]) for _ in range(random.randint(0, 3))]
    asked = [random.choice([1, 2, 3]) for _ in range(random.randint(0, 4))]
    return "Expand", shape, [i64(*asked)], {}


FUNCTIONS = {
    "Slice": sj.onnx.slice,
    "Pad": sj.onnx.pad,
    "Gather": sj.onnx.gather,
    "Expand": sj.onnx.expand,
}


@pytest.mark.parametrize("drawn", [slices, pads, gathers, expansions])
def test_onnxruntime(drawn):
    random, answered = Random(9), 0
    for _ in range(60):
        name, shape, inputs, attributes = drawn(random)
        x = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
        theirs = runtime(name, [x, *inputs], 19, **attributes)
        try:
            mine = FUNCTIONS[name](x, *inputs, **attributes, opset=19)
        except sj.ReshapeError:
            assert theirs is None, (name, shape, inputs, attributes)
            continue
        answered += 1
        assert theirs is not None, (name, shape, inputs, attributes)
        assert (mine.shape, mine.tolist()) == (theirs.shape, theirs.tolist()), (shape, inputs)
    assert answered > 15
