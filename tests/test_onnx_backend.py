"""The ONNX adapter: onnx's own suite, every version at every opset, a real graph, errors."""

import importlib
import re
import sys
import unittest
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import AttributeProto, TensorProto, helper, numpy_helper
from onnx.backend.test import BackendTest
from onnx.backend.test.loader import load_model_tests
from onnx.reference import ReferenceEvaluator
from onnx.reference.ops import op_pool_common

import shapejit as sj
from shapejit.adapters import onnx_backend
from shapejit.adapters.onnx_backend import OPS, Backend, Evaluator
from shapejit.dialects.onnx import version

pytestmark = [
    # The reference Softmax computes inf - inf in a case about rows without any unmasked key,
    # its Log the logarithm of an empty sum.
    pytest.mark.filterwarnings(
        r"ignore:invalid value encountered in subtract:RuntimeWarning:onnx\.reference\.ops\.op_soft"
    ),
    pytest.mark.filterwarnings(
        r"ignore:divide by zero encountered in log:RuntimeWarning:onnx\.reference\.ops\.op_log"
    ),
]

# How many cases of each name there are.
NAMED = {
    r"^test_(reshape_.*|shape(_.*)?)_cpu$": 21,
    r"^test_cast_.*_cpu$": 60,
    r"^test_castlike_.*_cpu$": 112,
    r"^test_dequantizelinear.*_cpu$": 14,
    r"^test_quantizelinear.*_cpu$": 13,
    r"^test_(transpose|squeeze|unsqueeze|flatten|expand_dim|concat|tile)(_.*)?_cpu$": 41,
    r"^test_(slice|identity|size|split)(_(?!to_sequence).*)?_cpu$": 29,
    r"^test_(depthtospace|spacetodepth|center_crop_pad)(?!.*expanded)(_.*)?_cpu$": 12,
    r"^test_(gather_[^e]|(constant|edge|reflect|wrap)_.*pad).*_cpu$": 10,
}
OPERATORS = {operator.__name__ for operator in OPS}
# onnx's evaluator runs this operator as the function in its schema, which reshapes.
BY_SCHEMA = "test_group_normalization_example", "test_group_normalization_epsilon"
# Random numbers, and cases in which onnx's own evaluator gives another shape than expected, has
# no Scan of that version, or whose result the runner cannot compare: a list of scalars.
LEFT_OUT = re.compile("test_bernoulli|test_range_|test_scan_sum|test_loop16_seq_none")
OPSETS = range(1, 29)


# ---------------------------------------------------------------- onnx's own suite


def nodes(graph: Any) -> Iterator[Any]:
    """The nodes of a graph or function, and of the graphs in their attributes."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from nodes(attribute.g)
            for inner in attribute.graphs:
                yield from nodes(inner)


def has_ours(model: Any) -> bool:
    """Whether an operator of shapejit is one of the model, its subgraphs or its functions."""
    return any(
        node.op_type in OPERATORS and node.domain == ""
        for part in (model.graph, *model.functions)
        for node in nodes(part)
    )


def no_pool(padded: Any, x: Any, kernel: Any, strides: Any, shape: Any, *_: Any, **__: Any) -> Any:
    """Zeros of the shape that a pool gives."""
    return np.zeros((*x[:2], *shape), padded.dtype)


def official_suite() -> tuple[dict[str, Any], dict[str, type[unittest.TestCase]]]:
    """onnx's node cases with our operators, by name, and the runner's tests of them on the CPU."""
    with warnings.catch_warnings():
        # The modules of onnx compute their expected values (log 0, 1 / 0, casts that
        # overflow on purpose) when they are imported.
        warnings.filterwarnings(
            "ignore", category=RuntimeWarning, module=r"onnx\.backend\.test\.case\.node\."
        )
        with pytest.MonkeyPatch.context() as patched:
            # Pools are none of ours: computing what they give takes three quarters of the time.
            patched.setattr(op_pool_common, "pool", no_pool)
            found = {case.name: case for case in load_model_tests(kind="node")}
        runner = BackendTest(Backend, __name__)
    cases = {name: c for name, c in found.items() if has_ours(c.model) or name in BY_SCHEMA}
    cases = {name: case for name, case in cases.items() if not LEFT_OUT.match(name)}
    assert not any("Pool" in node.op_type for c in cases.values() for node in nodes(c.model.graph))
    for pattern in (*NAMED, *(f"^{re.escape(name)}_cpu$" for name in cases)):
        runner.include(pattern)
    tests = runner.test_cases
    for test_case in tests.values():
        # The runner turns every other case, and CUDA, into a skipped test: 3500 lines of report.
        for name, test in list(vars(test_case).items()):
            if getattr(test, "__unittest_skip__", False):
                delattr(test_case, name)
    return cases, tests


CASES, RUNNER_TESTS = official_suite()
globals().update(RUNNER_TESTS)


@cache
def own_operators() -> list[type]:
    """The classes of onnx's evaluator that run the operators of which shapejit has its own."""
    names = (re.sub("(?<=[a-z])(?=[A-Z])", "_", operator).lower() for operator in OPERATORS)
    modules = [importlib.import_module(f"onnx.reference.ops.op_{name}") for name in names]
    return [
        own
        for module in modules
        for own in vars(module).values()
        if isinstance(own, type) and own.__module__ == module.__name__ and "_run" in vars(own)
    ]


@pytest.fixture(autouse=True)
def only_shapejit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test passes with onnx's own operators, except where it asks for `plain`."""
    if "plain" in request.fixturenames:
        return

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("onnx's own operator was used")

    for own in own_operators():
        monkeypatch.setattr(own, "_run", refuse)


@pytest.fixture
def plain() -> type[ReferenceEvaluator]:
    """onnx's evaluator with onnx's operators."""
    return ReferenceEvaluator


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The versions that shapejit's operators ran as, in order."""
    seen: list[str] = []
    outputs = onnx_backend.Operator._outputs

    def spy(self: Any, *given: Any) -> Any:
        seen.append(str(self.version))
        return outputs(self, *given)

    monkeypatch.setattr(onnx_backend.Operator, "_outputs", spy)
    return seen


def collected(*patterns: str) -> list[str]:
    names = [name for test_case in RUNNER_TESTS.values() for name in vars(test_case)]
    return [name for name in names if any(re.search(pattern, name) for pattern in patterns)]


def test_collected_cases() -> None:
    """What the runner's patterns found: a case lost would be a test that cannot fail."""
    assert {pattern: len(collected(pattern)) for pattern in NAMED} == NAMED
    assert sorted(collected("^test_")) == sorted(f"{name}_cpu" for name in CASES)
    assert set(BY_SCHEMA) <= set(CASES)
    assert len([name for name in CASES if "_expanded" in name]) > 200
    assert "test_sequence_map_extract_shapes" in CASES


@pytest.mark.parametrize(
    "name",
    [
        *("test_shape", "test_reshape_extended_dims", "test_cast_FLOAT_to_FLOAT16"),
        *("test_castlike_FLOAT_to_FLOAT16", "test_dequantizelinear", "test_quantizelinear"),
    ],
)
def test_onnx_own_operators_are_out_of_reach(name: str) -> None:
    evaluator = ReferenceEvaluator(CASES[name].model)
    for inputs, _ in data_sets(CASES[name]):
        with pytest.raises(AssertionError, match="onnx's own"):
            evaluator.run(None, dict(zip(evaluator.input_names, inputs, strict=True)))


def same_bits(got: Any, want: Any) -> None:
    """Equal in type, dtype, shape and every bit."""
    if isinstance(want, list):
        assert isinstance(got, list)
        assert len(got) == len(want)
        for one, other in zip(got, want, strict=True):
            same_bits(one, other)
        return
    assert isinstance(got, np.ndarray)
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    assert (
        got.tolist() == want.tolist() if want.dtype == object else got.tobytes() == want.tobytes()
    )


def data_sets(case: Any) -> Iterator[tuple[list[Any], list[Any]]]:
    def array(x: Any) -> Any:
        return numpy_helper.to_array(x) if isinstance(x, TensorProto) else x

    for inputs, outputs in case.data_sets:
        yield [array(x) for x in inputs], [array(x) for x in outputs]


@pytest.mark.parametrize("name", sorted(CASES))
def test_case_gives_the_bits_of_onnx_own_evaluator(
    name: str, plain: type[ReferenceEvaluator], used: list[str]
) -> None:
    evaluator = plain(CASES[name].model)
    prepared = Backend.prepare(CASES[name].model)
    for inputs, _ in data_sets(CASES[name]):
        want = evaluator.run(None, dict(zip(evaluator.input_names, inputs, strict=True)))
        assert not used
        got = prepared.run(inputs)
        assert used
        same_bits(list(got), want)
        used.clear()


@pytest.mark.parametrize("name", sorted(name.removesuffix("_cpu") for name in collected(*NAMED)))
def test_named_case_gives_the_expected_bits(name: str, used: list[str]) -> None:
    for inputs, outputs in data_sets(CASES[name]):
        same_bits(list(Backend.run_model(CASES[name].model, inputs)), outputs)
    (node,) = {node.op_type for node in CASES[name].model.graph.node}
    (opset,) = (o.version for o in CASES[name].model.opset_import if o.domain == "")
    assert used == [str(version(node, opset))]


# ---------------------------------------------------------------- every version, every opset


def model(node: Any, opset: int, rank: int = 1, **inputs: np.ndarray) -> Any:
    """A model of one node; output y, whose rank the checker wants to see."""
    types = {name: sj.dtype(x.dtype).onnx for name, x in inputs.items()}
    given = [
        helper.make_tensor_value_info(name, types[name], x.shape) for name, x in inputs.items()
    ]
    element = TensorProto.INT64 if node.op_type == "Shape" else types["x"]
    made = helper.make_tensor_value_info("y", element, [None] * rank)
    imports = [helper.make_opsetid("", opset)]
    # onnx's table leaves out opsets 2 to 4; before IR 3 a model could not name its opset.
    ir = max(3, helper.find_min_ir_version_for(imports, ignore_unknown=True))
    graph = helper.make_graph([node], "one_node", given, [made])
    return helper.make_model(graph, opset_imports=imports, ir_version=ir)


def plugged(proto: Any, feeds: dict[str, Any]) -> Any:
    """One way to run a model: shapejit's classes in onnx's evaluator."""
    return ReferenceEvaluator(proto, new_ops=OPS).run(None, feeds)[0]


def evaluated(proto: Any, feeds: dict[str, Any]) -> Any:
    """Another: shapejit's evaluator."""
    return Evaluator(proto).run(None, feeds)[0]


def backed(proto: Any, feeds: dict[str, Any]) -> Any:
    """The third: the Backend."""
    return Backend.run_model(proto, feeds)[0]


WAYS = (plugged, evaluated, backed)
Way = Callable[[Any, dict[str, Any]], Any]


@cache
def sample(name: str) -> np.ndarray:
    """24 elements of the dtype, every bit pattern possible, in shape (2, 3, 4)."""
    kind = sj.dtype(name)
    if name == "string":
        return np.array([f"text {i}" for i in range(24)], object).reshape(2, 3, 4)
    codes = np.random.default_rng(24).integers(0, 256, 24 * kind.numpy.itemsize).astype(np.uint8)
    if kind.kind == "bool":
        codes %= 2
    elif kind.packed:
        codes %= 2**kind.bits
    return codes.view(kind.numpy).reshape(2, 3, 4)


def reshape_model(opset: int, x: np.ndarray, shape: Any, **attributes: int) -> tuple[Any, dict]:
    """A Reshape model as its version wants it, and its feeds."""
    if opset < 5:
        node = helper.make_node("Reshape", ["x"], ["y"], shape=list(shape), **attributes)
        return model(node, opset, len(shape), x=x), {"x": x}
    target = np.array(shape, np.int64)
    node = helper.make_node("Reshape", ["x", "shape"], ["y"], **attributes)
    return model(node, opset, len(shape), x=x, shape=target), {"x": x, "shape": target}


def shape_model(opset: int, x: np.ndarray, **attributes: int) -> tuple[Any, dict]:
    return model(helper.make_node("Shape", ["x"], ["y"], **attributes), opset, x=x), {"x": x}


ONNX_TYPES = sorted(d.name for d in sj.dtypes.all() if d.onnx is not None)


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("way", WAYS)
def test_reshape_of_every_dtype_at_every_opset(way: Way, opset: int, used: list[str]) -> None:
    row = version("Reshape", opset)
    for name in ONNX_TYPES:
        x = sample(name)
        proto, feeds = reshape_model(opset, x, (0, -1))
        if name in row.types:
            got = way(proto, feeds)
            same_bits(got, x.reshape(2, 12))
            same_bits(got, sj.onnx.reshape(x, [0, -1], opset=opset))
            assert np.shares_memory(got, x)
        else:
            with pytest.raises(sj.DTypeError, match=rf"^{row} does not list {name} in its T"):
                way(proto, feeds)
    assert set(used) == {str(row)}


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("way", WAYS)
def test_shape_of_every_dtype_at_every_opset(way: Way, opset: int, used: list[str]) -> None:
    row = version("Shape", opset)
    for name in ONNX_TYPES:
        proto, feeds = shape_model(opset, sample(name))
        if name in row.types:
            same_bits(way(proto, feeds), np.array([2, 3, 4]))
        else:
            with pytest.raises(sj.DTypeError, match=rf"^{row} does not list {name} in its T"):
                way(proto, feeds)
    assert set(used) == {str(row)}


@pytest.mark.parametrize("opset", OPSETS)
def test_attributes_at_every_opset(opset: int) -> None:
    empty = np.zeros((0, 3), np.float32)
    if opset >= 14:
        for way in WAYS:
            same_bits(way(*reshape_model(opset, empty, (3, 0), allowzero=1)), empty.reshape(3, 0))
    if opset >= 15:
        x = sample("float32")
        for start in range(-5, 6):
            for end in (None, *range(-5, 6)):
                given = {"start": start} if end is None else {"start": start, "end": end}
                want = sj.onnx.shape(x, **given, opset=opset)
                for way in WAYS[:2]:
                    same_bits(way(*shape_model(opset, x, **given)), want)


def test_shape_end_below_minus_rank_is_empty() -> None:
    """onnx's own Shape gives [2] here; the text clamps end to 0."""
    for way in WAYS:
        same_bits(way(*shape_model(25, sample("float32"), end=-5)), np.array([], np.int64))


@pytest.mark.parametrize("opset", range(1, 5))
@pytest.mark.parametrize("way", WAYS)
def test_reshape_1_ignores_consumed_inputs(way: Way, opset: int) -> None:
    x = sample("float32")
    node = helper.make_node("Reshape", ["x"], ["y"], shape=[4, 0, -1], consumed_inputs=[0])
    same_bits(way(model(node, opset, 3, x=x), {"x": x}), x.reshape(4, 3, 2))


@pytest.mark.parametrize("opset", OPSETS)
def test_version_in_force_is_the_one_onnx_names(opset: int) -> None:
    x = sample("float32")
    for proto, _ in (reshape_model(opset, x, (24,)), shape_model(opset, x)):
        (node,) = ReferenceEvaluator(proto, new_ops=OPS).rt_nodes_
        since = onnx.defs.get_schema(node.op_type, opset).since_version
        assert node.version.since == node._schema.since_version == since


def test_strided_data_is_copied_row_major() -> None:
    x = sample("bfloat16").transpose(2, 0, 1)[::-1]
    for way in WAYS:
        same_bits(way(*reshape_model(25, x, (-1,))), x.reshape(-1))


@pytest.mark.parametrize("opset", [9, 13, 19, 28])
@pytest.mark.parametrize("way", WAYS)
def test_casts_of_strings_are_those_of_onnx(way: Way, opset: int, used: list[str]) -> None:
    x = np.array(["1.5", "-inf", "NaN", "1e3"], object)
    numbers = np.array([1.5, -np.inf, np.nan, 1000], np.float32)
    for given, to in ((x, TensorProto.FLOAT), (numbers, TensorProto.STRING)):
        proto = model(helper.make_node("Cast", ["x"], ["y"], to=to), opset, x=given)
        got = way(proto, {"x": given})
        if to == TensorProto.FLOAT:
            same_bits(got, numbers)
        else:
            assert got.tolist() == ["1.5", "-inf", "nan", "1000.0"]
    assert used == [str(version("Cast", opset))] * 2


def test_scalars_of_numpy_are_tensors() -> None:
    """onnx's own operators give them: here Gather, of one element."""
    gather = helper.make_node("Gather", ["x", "i"], ["s"])
    for node in (
        helper.make_node("Cast", ["s"], ["y"], to=TensorProto.INT8),
        helper.make_node("QuantizeLinear", ["x", "s"], ["y"]),
    ):
        x = np.array([4, 2, 1], np.float32)
        graph = helper.make_graph(
            [gather, node],
            "two_nodes",
            [helper.make_tensor_value_info(n, t, None) for n, t in (("x", 1), ("i", 7))],
            [helper.make_tensor_value_info("y", 2 + (node.op_type == "Cast"), None)],
        )
        got = evaluated(helper.make_model(graph), {"x": x, "i": np.array(1)})
        assert got.tolist() == (2 if node.op_type == "Cast" else [2, 1, 0])


def test_numpy_text_is_string() -> None:
    x = np.array(["a", "bc", "def"])
    node = helper.make_node("Reshape", ["x", "s"], ["y"])
    feeds = {"x": x, "s": np.array([3, 1])}
    assert plugged(model(node, 25, **feeds), feeds).tolist() == [["a"], ["bc"], ["def"]]


# ---------------------------------------------------------------- functions and subgraphs


def function_model(opset: int, function_opset: int, x: np.ndarray) -> Any:
    """`y = local.Flat(x)`, whose body reshapes with the function's attribute as allowzero."""
    reshape = helper.make_node("Reshape", ["x", "s"], ["y"])
    if function_opset >= 14:
        linked = AttributeProto(name="allowzero", type=AttributeProto.INT, ref_attr_name="literal")
        reshape.attribute.append(linked)
    function = helper.make_function(
        "local",
        "Flat",
        ["x"],
        ["y"],
        [helper.make_node("Constant", [], ["s"], value_ints=[0, -1]), reshape],
        [helper.make_opsetid("", function_opset)],
        attributes=["literal"],
    )
    proto = model(helper.make_node("Flat", ["x"], ["y"], domain="local", literal=0), opset, x=x)
    proto.opset_import.append(helper.make_opsetid("local", 1))
    proto.functions.append(function)
    return proto


@pytest.mark.parametrize(("opset", "function_opset"), [(25, 13), (13, 25), (18, 18)])
def test_functions_use_shapejit_at_their_own_opset(
    opset: int, function_opset: int, used: list[str]
) -> None:
    x = sample("float32")
    got = Evaluator(function_model(opset, function_opset, x)).run(None, {"x": x})
    same_bits(got, [x.reshape(2, 12)])
    assert used == [str(version("Reshape", function_opset))]


def branch_model(opset: int, x: np.ndarray) -> Any:
    """`y = If(c) then Reshape(x, s) else Shape(x)`: both read x from the outer graph."""
    branches = {
        "then_branch": helper.make_node("Reshape", ["x", "s"], ["z"]),
        "else_branch": helper.make_node("Shape", ["x"], ["z"]),
    }
    types = {"then_branch": sj.dtype(x.dtype).onnx, "else_branch": TensorProto.INT64}
    graphs = {
        name: helper.make_graph(
            [node], name, [], [helper.make_tensor_value_info("z", types[name], [None])]
        )
        for name, node in branches.items()
    }
    node = helper.make_node("If", ["c"], ["y"], **graphs)
    return model(node, opset, c=np.array(True), x=x, s=np.array([-1]))


@pytest.mark.parametrize("way", WAYS)
def test_subgraphs_use_shapejit(way: Way, used: list[str]) -> None:
    x = sample("float32")
    feeds = {"x": x, "s": np.array([-1])}
    same_bits(way(branch_model(19, x), {**feeds, "c": np.array(True)}), x.reshape(-1))
    same_bits(way(branch_model(19, x), {**feeds, "c": np.array(False)}), np.array([2, 3, 4]))
    assert used == ["onnx.Reshape-19", "onnx.Shape-19"]


def test_errors_come_out_of_functions_and_subgraphs() -> None:
    x = sample("int4")
    feeds = {"c": np.array(True), "x": x, "s": np.array([-1])}
    for run in (Evaluator(branch_model(19, x)).run, Evaluator(function_model(25, 19, x)).run):
        with pytest.raises(sj.DTypeError, match=r"onnx.Reshape-19 .*\(opset 21 does\)"):
            run(None, feeds)
    # onnx's evaluator wraps every TypeError that leaves the If node; ours is its cause.
    with pytest.raises(TypeError) as wrapped:
        plugged(branch_model(19, x), feeds)
    assert isinstance(wrapped.value.__cause__, sj.DTypeError)


def test_new_ops_come_before_shapejit() -> None:
    (given,) = [op for op in OPS if op.__name__ == "Shape"]

    class Shape(given):
        def _run(self, *inputs: Any, **attributes: Any) -> Any:
            return (np.array([7]),)

    proto, feeds = shape_model(25, sample("float32"))
    same_bits(Evaluator(proto, new_ops=[Shape]).run(None, feeds), [np.array([7])])


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("opset", "shape", "message"),
    [
        (1, (5, -1), r"cannot reshape \(2, 3, 4\) into \[5, -1\](.|\n)*asked by onnx\.Reshape-1$"),
        (13, (5,), r"cannot reshape \(2, 3, 4\) into \[5\](.|\n)*asked by onnx\.Reshape-13$"),
        (25, (-1, -1), r"second -1(.|\n)*asked by onnx\.Reshape-25 \(allowzero=0\)$"),
        (25, (24, -2), r"invalid size -2"),
        (25, (2, 3, 4, 0), "rank 3"),
    ],
    ids=["fraction", "count", "two -1", "-2", "nothing to copy"],
)
def test_bad_shapes(way: Way, opset: int, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(sj.ReshapeError, match=message):
        way(*reshape_model(opset, sample("float32"), shape))


@pytest.mark.parametrize("way", WAYS)
def test_shape_tensor_must_be_int64_and_1d(way: Way) -> None:
    node = helper.make_node("Reshape", ["x", "s"], ["y"])
    x = sample("float32")
    for target, error in (
        (np.array([24], np.int32), sj.DTypeError),
        (np.array(24), sj.ReshapeError),
    ):
        feeds = {"x": x, "s": target}
        with pytest.raises(error, match="shape"):
            way(model(node, 25, **feeds), feeds)


@pytest.mark.parametrize("way", WAYS)
def test_data_must_be_a_tensor(way: Way) -> None:
    proto, _ = shape_model(25, sample("float32"))
    with pytest.raises(sj.DTypeError, match="not list"):
        way(proto, {"x": [np.zeros(3), np.zeros(4)]})


@pytest.mark.parametrize(
    ("opset", "node", "message"),
    [
        (13, helper.make_node("Reshape", "xs", "y", allowzero=1), "Reshape-13 .* allowzero"),
        (5, helper.make_node("Reshape", "x", "y", shape=[24]), "Reshape-5 .* shape"),
        (5, helper.make_node("Reshape", "xs", "y", consumed_inputs=[0]), "consumed_inputs"),
        (25, helper.make_node("Reshape", "xs", "y", copy=1), "Reshape-25 .* copy"),
        (13, helper.make_node("Shape", "x", "y", start=1), "Shape-13 .* start"),
        (1, helper.make_node("Reshape", "xs", "y"), "Reshape-1 has 1 inputs, not 2"),
        (5, helper.make_node("Reshape", "x", "y"), "Reshape-5 has 2 inputs, not 1"),
        (25, helper.make_node("Shape", "xs", "y"), "Shape-25 has 1 inputs, not 2"),
        (25, helper.make_node("Reshape", "xs", "y", allowzero=2), "allowzero must be 0 or 1"),
    ],
)
def test_nodes_that_the_version_does_not_have(opset: int, node: Any, message: str) -> None:
    feeds = {"x": sample("float32"), "s": np.array([24])}
    with pytest.raises(sj.ReshapeError, match=message):
        plugged(model(node, opset, **feeds), feeds)


def test_reshape_1_without_its_shape() -> None:
    x = sample("float32")
    with pytest.raises(sj.ShapeJitError, match=r"onnx\.Reshape-1"):
        plugged(model(helper.make_node("Reshape", ["x"], ["y"]), 1, x=x), {"x": x})


def test_missing_onnx_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.delitem(sys.modules, onnx_backend.__name__)
    with pytest.raises(ImportError, match=r"pip install 'shapejit\[onnx\]'"):
        importlib.import_module(onnx_backend.__name__)


# ---------------------------------------------------------------- the Backend


def test_devices() -> None:
    for device in ("CPU", "CPU:0"):
        assert Backend.supports_device(device)
    for device in ("CUDA", "CUDA:1", "GPU", "CPUX", ""):
        assert not Backend.supports_device(device)
    proto, feeds = shape_model(25, sample("float32"))
    for call in (
        lambda: Backend.prepare(proto, "CUDA"),
        lambda: Backend.run_model(proto, feeds, "CUDA"),
        lambda: Backend.run_node(proto.graph.node[0], feeds, "CUDA"),
    ):
        with pytest.raises(ValueError, match="on the CPU, not on 'CUDA'"):
            call()


def test_is_compatible() -> None:
    x = sample("float32")
    good, _ = shape_model(25, x)
    assert Backend.is_compatible(good)
    assert not Backend.is_compatible(good, "CUDA")
    unknown = model(helper.make_node("NoSuchOperator", ["x"], ["y"]), 25, x=x)
    assert not Backend.is_compatible(unknown)
    assert not Backend.is_compatible(model(helper.make_node("Shape", ["nowhere"], ["y"]), 25, x=x))


def test_inputs_of_every_kind() -> None:
    """Positions or names; initializers listed as inputs (IR 3) may be left out."""
    x = sample("float32")
    proto, feeds = reshape_model(8, x, (4, 6))
    proto.graph.initializer.append(numpy_helper.from_array(np.array([12, -1]), "shape"))
    prepared = Backend.prepare(proto)
    for inputs in ([x, feeds["shape"]], (x, feeds["shape"]), feeds):
        same_bits(prepared.run(inputs)[0], x.reshape(4, 6))
    for inputs in ([x], x, {"x": x}):
        same_bits(prepared.run(inputs)[0], x.reshape(12, 2))
    with pytest.raises(ValueError, match=r"expects 1 inputs \(\['x'\]\), not 3"):
        prepared.run([x, x, x])


@pytest.mark.parametrize("opset", OPSETS)
def test_run_node_at_every_opset(opset: int, used: list[str]) -> None:
    x = sample("float32")
    proto, feeds = reshape_model(opset, x, (0, -1))
    for inputs in (feeds, list(feeds.values())):
        got = Backend.run_node(proto.graph.node[0], inputs, opset_version=opset)
        same_bits(list(got), [x.reshape(2, 12)])
    assert used == [str(version("Reshape", opset))] * 2


def test_run_node_takes_the_newest_opset_and_omitted_inputs(used: list[str]) -> None:
    x = sample("int2")
    node = helper.make_node("Shape", ["x"], ["y"], end=-1)
    same_bits(Backend.run_node(node, x)[0], np.array([2, 3]))
    assert used == ["onnx.Shape-25"]
    clip = helper.make_node("Clip", ["x", "", "high"], ["y"])
    got = Backend.run_node(clip, [np.arange(4.0), np.array(2.0)])
    same_bits(got[0], np.array([0.0, 1.0, 2.0, 2.0]))


# ---------------------------------------------------------------- a graph as exporters write it


HEADS, WIDTH = 4, 8


def attention(element: int) -> Any:
    """Split heads, scores, merge heads, with batch and sequence read from Shape at run time."""
    made: list[Any] = []

    def add(*args: Any, **attributes: Any) -> None:
        made.append(helper.make_node(*args, **attributes))

    for name, source in (("b", "zero"), ("t", "one")):
        add("Shape", ["q"], [f"{name}_sizes"])
        add("Gather", [f"{name}_sizes", source], [name], axis=0)
        add("Unsqueeze", [name, "axes"], [f"{name}_1"])
    add("Concat", ["b_1", "t_1", "heads", "width"], ["split"], axis=0)
    add("Concat", ["b_1", "t_1", "merged"], ["merge"], axis=0)
    for name, order in (("q", (0, 2, 1, 3)), ("k", (0, 2, 3, 1)), ("v", (0, 2, 1, 3))):
        add("Reshape", [name, "split"], [f"{name}_split"])
        add("Transpose", [f"{name}_split"], [f"{name}_heads"], perm=order)
    add("MatMul", ["q_heads", "k_heads"], ["scores"])
    add("Mul", ["scores", "scale"], ["scaled"])
    add("MatMul", ["scaled", "v_heads"], ["mixed"])
    add("Transpose", ["mixed"], ["mixed_rows"], perm=(0, 2, 1, 3))
    add("Reshape", ["mixed_rows", "merge"], ["y"])
    constants = {
        "zero": np.array(0),
        "one": np.array(1),
        "axes": np.array([0]),
        "heads": np.array([HEADS]),
        "width": np.array([WIDTH]),
        "merged": np.array([HEADS * WIDTH]),
        "scale": np.array(0.25, helper.tensor_dtype_to_np_dtype(element)),
    }
    sizes = ["batch", "sequence", HEADS * WIDTH]
    graph = helper.make_graph(
        made,
        "attention",
        [helper.make_tensor_value_info(name, element, sizes) for name in "qkv"],
        [helper.make_tensor_value_info("y", element, sizes)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(proto, full_check=True)
    return proto


@pytest.mark.parametrize("element", [TensorProto.FLOAT, TensorProto.FLOAT16])
def test_attention_gives_the_bits_of_onnxruntime(element: int, used: list[str]) -> None:
    proto = attention(element)
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    rng = np.random.default_rng(17)
    for batch, sequence in ((1, 1), (2, 5), (3, 7)):
        # Small integers: every sum is exact, in whatever order a matrix product adds.
        shape = (batch, sequence, HEADS * WIDTH)
        dtype = helper.tensor_dtype_to_np_dtype(element)
        feeds = {name: rng.integers(-2, 3, shape).astype(dtype) for name in "qkv"}
        want = session.run(None, feeds)[0]
        assert want.any()
        for way in WAYS:
            same_bits(way(proto, feeds), want)
            ours = [node.op_type for node in proto.graph.node if node.op_type in OPERATORS]
            assert sorted(used) == sorted(str(version(operator, 17)) for operator in ours)
            used.clear()


@pytest.mark.parametrize(("verbose", "logged"), [(0, False), (10, False), (11, True)])
def test_nodes_log_where_onnxs_own_do(verbose, logged, capsys):
    graph = onnx.parser.parse_graph("g (float[3] x) => (float[3] y) { y = Identity(x) }")
    evaluator = ReferenceEvaluator(helper.make_model(graph), new_ops=OPS, verbose=verbose)
    evaluator.run(None, {"x": np.zeros(3, np.float32)})
    assert ("-- begin Identity.run(1 inputs)" in capsys.readouterr().out) is logged
