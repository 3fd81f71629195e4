"""Chains of ONNX nodes that only move elements, compared with onnx's own evaluator."""

from random import Random

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import shapejit as sj
from shapejit.adapters.onnx_backend import Backend, Evaluator

node = helper.make_node


def model(x, nodes, constants=(), outputs=None, opset=21):
    """A model of nodes that read `x`; `outputs` are their ranks by name."""
    kind, ranks = sj.dtype(x.dtype).onnx, outputs or {"y": 2}
    inits = [numpy_helper.from_array(np.array(v, np.int64), k) for k, v in dict(constants).items()]
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_tensor_value_info(name, kind, [None] * n) for name, n in ranks.items()],
        inits,
    )
    imports = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def test_shapes_dtypes_and_further_inputs_may_change():
    """Nothing of an earlier run is left in a later one."""
    nodes = [
        node("Transpose", ["x"], ["a"]),
        node("Reshape", ["a", "shape"], ["b"]),
        node("Slice", ["b", "start", "stop"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, None),
         *(helper.make_tensor_value_info(n, TensorProto.INT64, None)
           for n in ("shape", "start", "stop"))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )  # fmt: skip
    evaluator = Evaluator(graph, {"": 25})
    random = Random(3)
    dtypes = np.float32, np.int8, ml_dtypes.bfloat16, np.complex64, object
    for _ in range(40):
        rows, columns = random.randint(1, 4), random.randint(1, 4)
        x = np.arange(rows * columns).astype(random.choice(dtypes)).reshape(rows, columns)
        if x.dtype == object:
            x = x.astype("U").astype(object)
        start, stop = random.randint(-3, 3), random.randint(-3, 9)
        feeds = {"x": x, "shape": [-1], "start": [start], "stop": [stop]}
        feeds = {k: v if k == "x" else np.array(v) for k, v in feeds.items()}
        got, want = evaluator.run(None, feeds)[0], x.T.reshape(-1)[start:stop]
        assert (got.dtype, got.tolist()) == (want.dtype, want.tolist())


def test_random_chains():
    random = Random(5)
    for _ in range(40):
        x = np.arange(24, dtype=np.float32).reshape(random.choice([(2, 3, 4), (24,), (4, 6)]))
        nodes, constants, shape = [], {}, list(x.shape)
        for i in range(random.randint(2, 6)):
            args, attributes = [f"v{i}" if i else "x"], {}
            op = random.choice(["Transpose", "Reshape", "Unsqueeze", "Slice", "Tile", "Identity"])
            given = None
            if op == "Transpose":
                attributes["perm"] = random.sample(range(len(shape)), len(shape))
                shape = [shape[k] for k in attributes["perm"]]
            elif op == "Reshape":
                size = int(np.prod(shape))
                first = random.choice([d for d in range(1, size + 1) if size % d == 0] or [0])
                given = [first, size // first] if first else [0, 1]
                shape = list(given)
            elif op == "Unsqueeze":
                given = [random.randint(0, len(shape))]
                shape = [*shape[: given[0]], 1, *shape[given[0] :]]
            elif op == "Tile":
                given = [random.choice([1, 1, 2]) for _ in shape]
                shape = [a * b for a, b in zip(shape, given, strict=True)]
            elif op == "Slice":
                axis = random.randrange(len(shape))
                step = random.choice([1, 2, -1])
                ends = (0, 2**31) if step > 0 else (2**31, -(2**31))
                for name, value in zip(("s", "e", "a"), (*ends, axis), strict=True):
                    constants[f"{name}{i}"] = [value]
                    args.append(f"{name}{i}")
                given, shape[axis] = [step], -(-shape[axis] // abs(step))
            if given is not None:
                constants[f"c{i}"] = given
                args.append(f"c{i}")
            nodes.append(node(op, args, [f"v{i + 1}"], **attributes))
        proto = model(x, nodes, constants, {f"v{len(nodes)}": len(shape)})
        onnx.checker.check_model(proto)
        (got,), (want,) = (
            kind(proto).run(None, {"x": x}) for kind in (Evaluator, ReferenceEvaluator)
        )
        assert got.shape == tuple(shape)
        assert got.tobytes() == want.tobytes()


def test_what_others_read_is_there():
    """A value that is an output, is read twice or in a subgraph, or is asked for."""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    both = {"y": 2, "z": 2}
    turn, flat = node("Transpose", ["x"], ["t"]), node("Flatten", ["t"], ["y"], axis=0)
    branches = {
        name: helper.make_graph(
            [node("Identity", ["t"], ["b"])], name, [],
            [helper.make_tensor_value_info("b", TensorProto.FLOAT, [None, None])],
        )
        for name in ("then_branch", "else_branch")
    }  # fmt: skip
    condition = numpy_helper.from_array(np.array(True), "c")
    inside = model(x, [turn, flat, node("If", ["c"], ["z"], **branches)], {}, both)
    inside.graph.initializer.append(condition)
    twice = model(x, [turn, flat, node("Neg", ["t"], ["z"])], {}, both)
    for proto, second in (
        (model(x, [turn, flat], {}, {"y": 2, "t": 2}), x.T),
        (twice, -x.T),
        (inside, x.T),
    ):
        y, z = Backend.run_model(proto, [x])
        assert y.tolist() == [x.T.ravel().tolist()]
        assert z.tolist() == second.tolist()
    evaluator = Evaluator(model(x, [turn, flat]))
    assert evaluator.run(["t"], {"x": x})[0].tolist() == x.T.tolist()
    every = evaluator.run(None, {"x": x}, intermediate=True)
    assert every["t"].tolist() == x.T.tolist()
    assert every["y"].shape == (1, 6)


def test_errors_are_those_of_the_node():
    x = np.zeros((2, 3), np.float32)
    turn = node("Transpose", ["x"], ["a"])
    wrong = model(x, [turn, node("Reshape", ["a", "s"], ["y"])], {"s": [5]}, {"y": 1})
    with pytest.raises(sj.ReshapeError, match=r"cannot reshape \(3, 2\) into \[5\]") as fault:
        Backend.run_model(wrong, [x])
    assert fault.value.asked_by.startswith("onnx.Reshape-21")
    narrow = x.astype(ml_dtypes.int4)
    ends = {"s": [0], "e": [1]}
    kinds = model(x, [turn, node("Slice", ["a", "s", "e"], ["y"])], ends, opset=25)
    with pytest.raises(sj.DTypeError, match="Slice-13 does not list int4"):
        Backend.run_model(kinds, [narrow])
