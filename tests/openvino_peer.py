"""OpenVINO in a process of its own: one JSON request on stdin, one JSON answer on stdout."""

import json
import sys
from typing import Any

import numpy as np
import openvino as ov
from openvino import opset1, opset15


def types() -> dict[str, Any]:
    """Every element type: its name, bits, and what it says of itself."""
    found = {}
    for name in dir(ov.Type):
        kind = getattr(ov.Type, name)
        if isinstance(kind, ov.Type) and name != "dynamic":
            found[kind.get_type_name()] = {
                "bits": kind.get_bitwidth(),
                "real": kind.is_real(),
                "signed": kind.is_signed(),
            }
    return found


def inferred(sources: list[list[int]], targets: list[list[int]]) -> list[Any]:
    """Shape inference for every source, target and special_zero: a shape, or None if refused."""
    data = [opset1.parameter(source, np.float32) for source in sources]
    # opset1.constant refuses an empty shape tensor.
    shapes = [ov.op.Constant(ov.Type.i64, ov.Shape([len(t)]), t) for t in targets]
    return [static(x, s, zero) for x in data for s in shapes for zero in (False, True)]


def static(x: Any, shape: Any, special_zero: bool) -> list[int] | None:
    try:
        return list(opset1.reshape(x, shape, special_zero).get_output_shape(0))
    except RuntimeError:
        return None


def executed(cases: list[Any]) -> list[Any]:
    """float32 ranges through compiled models whose shape is an input: [shape, values] or None."""
    core = ov.Core()
    core.set_property("CPU", {"INFERENCE_NUM_THREADS": 2})
    models = {}
    answers: list[Any] = []
    for source, target, special_zero in cases:
        key = (len(source), len(target), special_zero)
        if key not in models:
            x = opset1.parameter([-1] * len(source), np.float32)
            shape = opset1.parameter([len(target)], np.int64)
            model = ov.Model([opset1.reshape(x, shape, special_zero)], [x, shape])
            models[key] = core.compile_model(model, "CPU")
        x = np.arange(np.prod(source, dtype=int), dtype=np.float32).reshape(source)
        try:
            y = models[key]([x, np.array(target, np.int64)])[0]
        except (RuntimeError, ValueError):  # ValueError: an output with a negative dim
            answers.append(None)
        else:
            answers.append([list(y.shape), y.ravel().tolist()])
    return answers


def converted(cases: list[Any]) -> list[Any]:
    """What a Constant of (type, bytes in hex, size) becomes, as float32."""
    core = ov.Core()
    answers: list[Any] = []
    for kind, stored, size in cases:
        memory = np.frombuffer(bytes.fromhex(stored), np.uint8)
        constant = ov.op.Constant(ov.Tensor(memory, ov.Shape([size]), getattr(ov.Type, kind)))
        made = opset1.convert(constant, "f32")
        model = core.compile_model(ov.Model([made], []), "CPU")
        answers.append(model([])[0].tolist())
    return answers


def laid_out(cases: list[Any]) -> list[Any]:
    """(operation, source, arguments) of float32 ranges, all in one model: [shape, values] or None.

    Lists are tensors of int64, other arguments attributes; an operation of several
    results gives the last one.
    """
    outputs, places = [], []
    for name, source, arguments in cases:
        values = np.arange(np.prod(source, dtype=int), dtype=np.float32).reshape(source)
        x = opset15.constant(values)
        nodes = [
            ov.op.Constant(ov.Type.i64, ov.Shape([len(a)]), a) if isinstance(a, list) else a
            for a in arguments
        ]
        if name == "split":
            nodes[0] = ov.op.Constant(ov.Type.i64, ov.Shape([]), [nodes[0]])
        try:
            function = getattr(opset15, name)
            node = function([x, x], *nodes) if name == "concat" else function(x, *nodes)
        except RuntimeError:
            places.append(None)
        else:
            places.append(len(outputs))
            outputs.append(node.output(node.get_output_size() - 1))
    made = ov.Core().compile_model(ov.Model(outputs, []), "CPU")([])
    arrays = [made[i] for i in range(len(outputs))]
    return [
        None if i is None else [list(arrays[i].shape), arrays[i].ravel().tolist()] for i in places
    ]


if __name__ == "__main__":
    question = json.load(sys.stdin)
    answers = {f.__name__: f for f in (types, inferred, executed, converted, laid_out)}
    json.dump(answers[question["ask"]](*question["of"]), sys.stdout)
