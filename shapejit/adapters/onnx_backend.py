"""ONNX operators (onnx.ai/onnx/operators) for onnx's evaluator, and a Backend with them.

>>> import numpy as np, onnx
>>> from onnx.reference import ReferenceEvaluator
>>> from shapejit.adapters.onnx_backend import OPS
>>> graph = onnx.parser.parse_graph("g (float[2,3,4] x) => (int64[N] y) { y = Shape(x) }")
>>> evaluator = ReferenceEvaluator(onnx.helper.make_model(graph), new_ops=OPS)
>>> evaluator.run(None, {"x": np.zeros((2, 3, 4), np.float32)})
[array([2, 3, 4])]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

try:
    import onnx
    from onnx.backend import base
    from onnx.reference import ReferenceEvaluator

    from .onnx_operators import OPS as OPS, Operator as Operator, own_errors
except ImportError as missing:
    raise ImportError(
        "shapejit.adapters.onnx_backend needs onnx: pip install 'shapejit[onnx]'", name="onnx"
    ) from missing


class Evaluator(ReferenceEvaluator):  # type: ignore[misc]  # Any: onnx is not type-checked
    """onnx's ReferenceEvaluator with shapejit's operators (`OPS`) everywhere in a model.

    `ReferenceEvaluator(model, new_ops=OPS)` uses them in the graph and its
    subgraphs, but does not pass `new_ops` on to functions (those of the model and
    of schemas); this class does. Arguments are those of ReferenceEvaluator;
    `new_ops` come before `OPS`. `run` raises shapejit's errors unwrapped, also
    from nodes in subgraphs and functions.

    >>> node = onnx.helper.make_node("Shape", ["x"], ["y"])
    >>> Evaluator(node).run(None, {"x": np.zeros((2, 3), np.float32)})
    [array([2, 3])]
    """

    def __init__(
        self,
        proto: Any,
        opsets: dict[str, int] | None = None,
        functions: Any = None,
        verbose: int = 0,
        new_ops: Sequence[type[Any]] | None = None,
        **options: Any,
    ) -> None:
        # onnx makes the evaluators of functions by type(self)(function, ...), without new_ops.
        super().__init__(proto, opsets, functions, verbose, [*(new_ops or ()), *OPS], **options)

    def run(self, *args: Any, **options: Any) -> Any:
        """The outputs; arguments are those of ReferenceEvaluator.run."""
        with own_errors():
            return super().run(*args, **options)


class BackendRep(base.BackendRep):  # type: ignore[misc]  # Any: onnx is not type-checked
    """A model prepared to run, made by `Backend.prepare`.

    >>> node = onnx.helper.make_node("Shape", ["x"], ["y"])
    >>> BackendRep(Evaluator(node)).run([np.zeros((2, 3), np.float32)])
    (array([2, 3]),)
    """

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator = evaluator

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The model's outputs, in its order; they may share memory with the inputs.

        `inputs` is a mapping from names, a sequence in the order of the graph's inputs (all of
        them, or those without an initializer), or one ndarray. Raises ValueError for any other
        number of inputs, and the errors of the operators.
        """
        return tuple(self.evaluator.run(None, self._feeds(inputs)))

    def _feeds(self, inputs: Any) -> dict[str, Any]:
        if isinstance(inputs, Mapping):
            return dict(inputs)
        values = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
        names = self.evaluator.input_names
        # Up to IR version 3, initializers are inputs as well.
        needed = [name for name in names if name not in self.evaluator.rt_inits_]
        for given in (names, needed):
            if len(values) == len(given):
                return dict(zip(given, values, strict=True))
        raise ValueError(f"the model expects {len(needed)} inputs ({needed}), not {len(values)}")


class Backend(base.Backend):  # type: ignore[misc]  # Any: onnx is not type-checked
    """An `onnx.backend.base.Backend` on the CPU: onnx's evaluator with shapejit's operators.

    >>> Backend.run_node(onnx.helper.make_node("Shape", ["x"], ["y"]), [np.zeros((2, 3))])
    (array([2, 3]),)
    >>> Backend.supports_device("CPU"), Backend.supports_device("CUDA")
    (True, False)
    """

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether `device` is the CPU: `"CPU"`, `"CPU:0"`."""
        return device.partition(":")[0] == "CPU"

    @classmethod
    def is_compatible(cls, model: Any, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether `prepare` accepts the model: it is valid and all its operators are known."""
        try:
            cls.prepare(model, device, **kwargs)
        except Exception:  # onnx raises anything from ValidationError to TypeError
            return False
        return True

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **kwargs: Any) -> BackendRep:
        """A ModelProto checked (onnx.checker) and ready to run; options are ignored.

        Raises ValueError for a device other than the CPU, and onnx's own errors for
        an invalid model or one with operators that its evaluator lacks.
        """
        cls._check_device(device)
        super().prepare(model, device, **kwargs)
        return BackendRep(Evaluator(model))

    @classmethod
    def run_model(
        cls, model: Any, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        """The outputs of a model, by `prepare` and `BackendRep.run`."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: Any,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Any = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """The outputs of one NodeProto, at the opset `opset_version` (default: onnx's newest).

        `inputs` as in `BackendRep.run`, in the order of the node's inputs.
        Raises ValueError for a device other than the CPU, onnx's own errors for an
        invalid node, and the errors of the operator.

        >>> node = onnx.helper.make_node("Reshape", ["x"], ["y"], shape=[0, -1])
        >>> Backend.run_node(node, np.zeros((2, 3, 4), np.float32), opset_version=1)[0].shape
        (2, 12)
        """
        cls._check_device(device)
        super().run_node(node, inputs, device, outputs_info, **kwargs)
        opset = kwargs.get("opset_version", onnx.defs.onnx_opset_version())
        # An evaluator of a bare node would always use the newest opset.
        placeholders = onnx.helper.make_empty_tensor_value_info
        graph = onnx.helper.make_graph(
            [node],
            node.op_type,
            [placeholders(name) for name in node.input if name],
            [placeholders(name) for name in node.output if name],
        )
        return BackendRep(Evaluator(graph, {node.domain: 1, "": opset})).run(inputs)

    @classmethod
    def _check_device(cls, device: str) -> None:
        if not cls.supports_device(device):
            raise ValueError(f"shapejit's ONNX backend runs on the CPU, not on {device!r}")
