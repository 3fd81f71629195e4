"""Differential tests: other implementations agree, except for their known DEFECTS."""

import itertools
import json
import random
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import oracle
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import shapejit as sj
from shapejit.shapes.request import request


class Defect(NamedTuple):
    """Where a peer may differ from the specification, and why; it must differ somewhere there."""

    reason: str
    where: object  # (source, target, flag) -> bool; the flag is allowzero or special_zero


def lone_minus_two(source, target, flag):
    return -1 not in target and target.count(-2) == 1


def copies(source, target):
    return [i for i, token in enumerate(target) if token == 0 and i < len(source)]


DEFECTS = {
    "numpy": [Defect("any one negative number is taken for -1", lone_minus_two)],
    "onnx.reference": [Defect("any one negative number is taken for -1, by NumPy", lone_minus_two)],
    "onnx.shape_inference": [
        Defect(
            "the element counts are not compared where no -1 stands",
            lambda source, target, flag: -1 not in target,
        )
    ],
    "onnxruntime": [
        Defect(
            "with allowzero=1 a literal 0 beside -1 is taken for a tensor without elements: -1 is "
            "the quotient of the sizes that are not 0",
            lambda source, target, flag: flag and 0 in target and -1 in target and 0 in source,
        )
    ],
    "openvino inference": [
        Defect(
            "the element counts are not compared where a copied 0 and no -1 stands",
            lambda source, target, flag: flag and 0 in target and -1 not in target,
        )
    ],
    # The CPU plugin with the shape as an input of the model. What inference lets pass above is
    # not run at all: the plugin answers it with memory that is not its own, or a crash.
    "openvino run": [
        Defect(
            "a 1-D result is the source flattened, whatever the size asked for",
            lambda source, target, flag: len(target) == 1,
        ),
        Defect(
            "-1 beside a literal 0 is 0 for an empty source; OpenVINO's own inference gives 1",
            lambda source, target, flag: (
                not flag and 0 in target and -1 in target and 0 in source
            ),
        ),
        Defect(
            "a 0 beyond the source's rank is a literal 0 for an empty source",
            lambda source, target, flag: (
                flag and 0 in source and 0 in target[len(source) :]
            ),
        ),
        Defect(
            "-1 is rounded down where the copied dims cancel and the rest does not divide",
            lambda source, target, flag: (
                flag and -1 in target and any(source[i] == 0 for i in copies(source, target))
            ),
        ),
    ],
}  # fmt: skip


def ours(source, asked):
    try:
        return sj.resolve(source, asked)
    except sj.ReshapeError:
        return None


def compare(peer, cases):
    """Fail for a difference that no defect of the peer explains; return the reasons that showed.

    A case is (source, target, flag, our answer, the peer's); an answer is a shape or None.
    """
    shown = set()
    for source, target, flag, mine, theirs in cases:
        if mine == theirs:
            continue
        known = [d.reason for d in DEFECTS[peer] if d.where(source, target, flag)]
        assert known, f"{source} -> {target} ({flag=}): {mine}, {peer} says {theirs}"
        shown.add(known[0])
    return shown


def all_of(peer):
    """Every listed defect: one that no longer shows must leave the list."""
    return {defect.reason for defect in DEFECTS[peer]}


def sample(step, start=0):
    """Every step-th case of the exhaustive run, and larger ones, half of which fit."""
    every = itertools.product(oracle.SOURCES, oracle.TARGETS)
    yield from itertools.islice(every, start, None, step)
    chance = random.Random(step + start)
    for _ in range(500):
        source = [chance.choice((1, 2, 3, 5)) for _ in range(chance.randrange(7))]
        target = list(source)
        chance.shuffle(target)
        if len(target) > 1 and chance.random() < 0.6:
            target[:2] = [target[0] * target[1]]
        for _ in range(chance.randrange(3)):
            if target:
                target[chance.randrange(len(target))] = chance.choice((-1, 0, 0, 1, 4))
        yield tuple(source), tuple(target)


def counted(source):
    return np.arange(np.prod(source, dtype=int), dtype=np.float32).reshape(source)


def shape_of(y, x):
    """The shape of a peer's result, whose elements must be those of x in order."""
    assert (y.ravel() == x.ravel()).all()
    return y.shape


# NumPy --------------------------------------------------------------------------------


def test_numpy():
    def cases():
        for source in oracle.SOURCES:
            x = np.zeros(source, np.int8)
            for target in oracle.TARGETS:
                try:
                    theirs = np.reshape(x, target).shape
                except ValueError:
                    theirs = None
                yield source, target, None, ours(source, request(target, asked_by="")), theirs

    assert compare("numpy", cases()) == all_of("numpy")


# ONNX ---------------------------------------------------------------------------------


def model(node, inputs, initializers=(), opset=14):
    """A model of one node with output y; inputs are (name, TensorProto type, shape or None)."""
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(*given) for given in inputs],
        [helper.make_empty_tensor_value_info("y")],
        initializers,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def reshape_node(allowzero):
    # Left out where it is 0: opset 13 and older do not know the name.
    attributes = {"allowzero": 1} if allowzero else {}
    return helper.make_node("Reshape", ["x", "shape"], ["y"], **attributes)


def reshape_model(opset, allowzero, element=TensorProto.FLOAT):
    inputs = [("x", element, None), ("shape", TensorProto.INT64, [None])]
    made = model(reshape_node(allowzero), inputs, opset=opset)
    made.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", element, None))
    return made


VERSIONS = [(5, 0), (13, 0), (14, 0), (14, 1), (19, 0), (19, 1), (21, 0), (21, 1)]


def runs(call, opset, allowzero, step):
    """The cases of `compare` for a peer that runs a model: call(x, shape) gives y."""
    for source, target in sample(step, opset + allowzero):
        x = counted(source)
        try:
            theirs = shape_of(call(x, np.array(target, np.int64)), x)
        except Exception:
            theirs = None
        asked = sj.onnx.request(target, allowzero=allowzero, opset=opset)
        yield source, target, allowzero, ours(source, asked), theirs


@pytest.fixture(scope="module")
def ort():
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    runtime.set_default_logger_severity(4)  # refusals are expected: no words on stderr
    return runtime


def session(ort, made):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(made.SerializeToString(), options, ["CPUExecutionProvider"])


@pytest.mark.parametrize(("opset", "allowzero"), VERSIONS)
def test_onnxruntime(ort, opset, allowzero):
    run = session(ort, reshape_model(opset, allowzero)).run
    cases = runs(lambda x, shape: run(None, {"x": x, "shape": shape})[0], opset, allowzero, 67)
    shown = compare("onnxruntime", cases)
    assert shown == (all_of("onnxruntime") if allowzero else set())


@pytest.mark.parametrize(("opset", "allowzero"), VERSIONS)
def test_onnx_reference(opset, allowzero):
    run = ReferenceEvaluator(reshape_model(opset, allowzero)).run
    cases = runs(lambda x, shape: run(None, {"x": x, "shape": shape})[0], opset, allowzero, 67)
    assert compare("onnx.reference", cases) == all_of("onnx.reference")


def inferred(made):
    """The shape of y by onnx's strict inference, or None where it is refused."""
    try:
        done = onnx.shape_inference.infer_shapes(made, strict_mode=True, data_prop=True)
    except onnx.shape_inference.InferenceError:
        return None
    found = done.graph.output[0].type.tensor_type
    assert found.HasField("shape")
    return tuple(dim.dim_value for dim in found.shape.dim)


@pytest.mark.parametrize(("opset", "allowzero"), [*VERSIONS, (25, 0), (25, 1)])
def test_onnx_shape_inference(opset, allowzero):
    def cases():
        for source, target in sample(97, opset + allowzero):
            shape = helper.make_tensor("shape", TensorProto.INT64, [len(target)], target)
            given = [("x", TensorProto.FLOAT, source)]
            theirs = inferred(model(reshape_node(allowzero), given, [shape], opset))
            asked = sj.onnx.request(target, allowzero=allowzero, opset=opset)
            yield source, target, allowzero, ours(source, asked), theirs

    assert compare("onnx.shape_inference", cases()) == all_of("onnx.shape_inference")


def test_onnxruntime_overflow(ort):
    """Sizes whose product leaves int64, in any order, for a tensor without elements."""
    run = session(ort, reshape_model(14, 1)).run
    x = np.zeros((0, 3), np.float32)
    for target in itertools.permutations((2**62, 4, 0)):
        assert ours(x.shape, sj.onnx.request(target, allowzero=1)) is None
        with pytest.raises(Exception, match=r"(?i)overflow|reshape|safeint"):
            run(None, {"x": x, "shape": np.array(target, np.int64)})


# Types that onnx lists for Reshape-25 and Shape-25 and onnxruntime's CPU provider lacks.
ORT_LACKS = {"complex64", "complex128", "int4", "uint4", "int2", "uint2", "float4_e2m1fn",
             "float8_e8m0fnu"}  # fmt: skip


@pytest.mark.parametrize("operator", ["Reshape", "Shape"])
def test_onnxruntime_types(ort, operator):
    lacking = set()
    for name in sj.onnx.version(operator, 25).types:
        element = sj.dtype(name).onnx
        made = reshape_model(25, 0, element)
        if operator == "Shape":
            made = model(helper.make_node("Shape", ["x"], ["y"]), [("x", element, None)], opset=25)
        try:
            session(ort, made)
        except Exception:
            lacking.add(name)
    assert lacking == ORT_LACKS


@pytest.mark.parametrize(
    "name",
    ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
     "float32", "float64", "string"],
)  # fmt: skip
def test_onnxruntime_values(ort, name):
    kind = sj.dtype(name)
    x = np.random.default_rng(0).integers(0, 256, (3, 4, 10), np.uint8)
    if name == "string":
        x = x[..., :5].astype(str).astype(object)
    else:
        x = (x % 2 if name == "bool" else x).astype(kind.numpy)
    run = session(ort, reshape_model(21, 0, kind.onnx)).run
    for shape in ([0, -1], [-1], [4, 0 - 1, 3], [5, 2, -1, 2]):
        theirs = run(None, {"x": x, "shape": np.array(shape, np.int64)})[0]
        mine = sj.onnx.reshape(x, shape, opset=21)
        assert mine.dtype == x.dtype
        assert mine.shape == theirs.shape
        assert (mine == theirs).all()


# Shape: opset 15 with every start and end, as three implementations have it.
ENDS = [None, *range(-7, 8)]


def shape_node(start, end):
    given = {"start": start, "end": end}
    return helper.make_node(
        "Shape", ["x"], ["y"], **{k: v for k, v in given.items() if v is not None}
    )


def test_shape(ort):
    """onnxruntime and strict inference agree; the reference is wrong where end < -rank."""
    wrong = 0
    for start, end in itertools.product(ENDS, ENDS):
        made = model(shape_node(start, end), [("x", TensorProto.FLOAT, None)], opset=15)
        made.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.INT64, None))
        run = session(ort, made).run
        evaluate = ReferenceEvaluator(made).run
        for rank in range(6):
            x = np.zeros((2, 0, 3, 1, 5)[:rank], np.float32)
            mine = sj.onnx.shape(x, start=start, end=end, opset=15).tolist()
            assert run(None, {"x": x})[0].tolist() == mine
            theirs = evaluate(None, {"x": x})[0].tolist()
            if theirs != mine:
                assert end is not None
                assert end < -rank
                wrong += 1
            known = model(shape_node(start, end), [("x", TensorProto.FLOAT, x.shape)], opset=15)
            assert inferred(known) == (len(mine),)
    assert wrong, "onnx.reference has been mended: leave this exception out"


# OpenVINO, in a process of its own: it may crash -----------------------------------------


def openvino(ask, *of):
    pytest.importorskip("openvino", reason="openvino is not installed")
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("openvino_peer.py")],
        input=json.dumps({"ask": ask, "of": of}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def asked_of_openvino(source, target, special_zero, theirs):
    mine = ours(source, sj.openvino.request(target, special_zero=special_zero))
    return source, target, special_zero, mine, theirs


def test_openvino_inference():
    """Every source, and a quarter of the targets."""
    targets = oracle.TARGETS[::4]
    theirs = openvino("inferred", oracle.SOURCES, targets)
    cases = itertools.product(oracle.SOURCES, targets, (False, True))
    shown = compare(
        "openvino inference",
        (
            asked_of_openvino(*case, None if shape is None else tuple(shape))
            for case, shape in zip(cases, theirs, strict=True)
        ),
    )
    assert shown == all_of("openvino inference")


def test_openvino_run():
    (unchecked,) = DEFECTS["openvino inference"]
    cases = [
        (*case, special_zero)
        for case in itertools.islice(itertools.product(oracle.SOURCES, oracle.TARGETS), 0, None, 19)
        for special_zero in (False, True)
        if not unchecked.where(*case, special_zero)
    ]
    answers = []
    for case, found in zip(cases, openvino("executed", cases), strict=True):
        shape = None
        if found is not None:
            shape, values = tuple(found[0]), found[1]
            assert values == list(range(len(values)))
        answers.append(asked_of_openvino(*case, shape))
    assert compare("openvino run", answers) == all_of("openvino run")


def openvino_layouts(draw, count):
    """Calls of OpenVINO's layout operations: (name, source, arguments), right and wrong ones."""
    for _ in range(count):
        shape = [draw.choice([1, 1, 2, 3]) for _ in range(draw.randint(0, 3))]
        rank = len(shape)
        axes = draw.sample(range(-rank - 1, rank + 1), draw.randint(0, min(3, 2 * rank + 1)))
        target = [draw.choice([1, 2, 3, n]) for n in [*[2] * draw.randint(0, 2), *shape]]
        yield from [
            ("transpose", shape, [draw.sample(range(rank), draw.choice([rank, rank, 0]))]),
            ("squeeze", shape, [axes]),
            ("unsqueeze", shape, [axes]),
            ("broadcast", shape, [target, None, "NUMPY"]),
            ("broadcast", shape, [target[draw.randint(0, 1) :], None, "BIDIRECTIONAL"]),
            ("broadcast", shape, [target, sorted(axes)[:rank], "EXPLICIT"]),
            (
                "split",
                shape,
                [draw.randint(-rank - 1, rank), draw.randint(0, 3)],
            ),
            ("concat", shape, [draw.randint(-rank - 1, rank)]),
        ]


def test_openvino_layouts():
    """But for what the texts leave open, or exclude: repeated axes, axes of a scalar."""
    cases = list(openvino_layouts(random.Random(18), 100))
    done = 0
    for (name, source, given), theirs in zip(cases, openvino("laid_out", cases), strict=True):
        if name in ("squeeze", "unsqueeze") and (not source or repeated(name, source, *given)):
            continue
        x = np.arange(np.prod(source, dtype=int), dtype=np.float32).reshape(source)
        *arguments, mode = given if name == "broadcast" else (*given, None)
        named = {"mode": mode.lower()} if mode else {}
        mine = None
        with suppress(sj.ReshapeError):
            y = getattr(sj.openvino, name)([x, x] if name == "concat" else x, *arguments, **named)
            y = y[-1] if name == "split" else y
            mine = [list(y.shape), y.ravel().tolist()]
        assert mine == theirs, (name, source, given)
        done += theirs is not None
    assert done > 250


def repeated(name, source, axes):
    rank = len(source) + (len(axes) if name == "unsqueeze" else 0)
    return len({axis % rank for axis in axes}) < len(axes)
