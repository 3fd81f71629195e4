"""ONNX operators (onnx.ai/onnx/operators) for onnx's evaluator, and a Backend with them.

The evaluator finds an operator in `new_ops` by the name of its class alone. So
there is one class per operator, which uses the version for the opset of the
model, function or subgraph that contains the node.

>>> graph = onnx.parser.parse_graph("g (float[2,3,4] x) => (int64[N] y) { y = Shape(x) }")
>>> evaluator = ReferenceEvaluator(onnx.helper.make_model(graph), new_ops=OPS)
>>> evaluator.run(None, {"x": np.zeros((2, 3, 4), np.float32)})
[array([2, 3, 4])]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..dialects import onnx as dialect
from ..dtypes import STRING, DType, dtype
from ..errors import DTypeError, ReshapeError, ShapeJitError

try:
    import onnx
    from onnx.backend import base
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.op_run import OpRun
    from onnx.reference.ops.op_cast import cast_to
except ImportError as missing:
    raise ImportError(
        "shapejit.adapters.onnx_backend needs onnx: pip install 'shapejit[onnx]'", name="onnx"
    ) from missing


@contextmanager
def _own_errors() -> Iterator[None]:
    """Raise shapejit's own errors: OpRun.run wraps every TypeError, DTypeError too, in another."""
    try:
        yield
    except DTypeError:
        raise
    except TypeError as fault:
        cause = fault.__cause__
        while cause is not None and not isinstance(cause, ShapeJitError):
            cause = cause.__cause__
        if cause is None:
            raise
        raise cause from None


class Operator(OpRun):  # type: ignore[misc]  # Any: onnx is not type-checked
    """A node of the operator named like the class, in the version for its opset."""

    op_domain = ""
    function: Callable[..., NDArray[Any]]

    def __init__(self, onnx_node: Any, run_params: dict[str, Any], schema: Any = None) -> None:
        opset = run_params["opsets"][onnx_node.domain]
        self.version = dialect.version(type(self).__name__, opset)
        # OpRun would use the newest schema, which has defaults that older versions lack.
        if schema is None:
            schema = onnx.defs.get_schema(self.version.operator, self.version.since, self.op_domain)
        super().__init__(onnx_node, run_params, schema)

    def run(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The node's outputs; arguments are those of OpRun.run."""
        with _own_errors():
            outputs: tuple[Any, ...] = super().run(*args, **kwargs)
            return outputs

    def _run(self, *inputs: Any, **attributes: Any) -> tuple[NDArray[Any]]:
        for name in attributes:
            if name not in self._schema.attributes:
                raise ReshapeError(f"{self.version} has no attribute {name}")
        least, most = self._schema.min_input, self._schema.max_input
        if not least <= len(inputs) <= most:
            expected = f"{least}" if least == most else f"{least} or {most}"
            raise ReshapeError(f"{self.version} has {expected} inputs, not {len(inputs)}")
        # Attributes of the schema alone (consumed_inputs of Reshape-1) are obsolete.
        known = {name: attributes[name] for name in attributes if name in self.version.attributes}
        # onnx's own operators give scalars as NumPy's scalar types.
        arrays = [np.asarray(x) if isinstance(x, np.generic) else x for x in inputs]
        return (self.function(*arrays, **known, opset=self.version.since),)


class Reshape(Operator):
    """ONNX Reshape (1, 5, 13, 14, 19, 21, 23, 24, 25) as a class for `new_ops`.

    The output has the data's dtype and, wherever a view exists, its memory.
    Reshape-1, which onnx's own evaluator lacks, takes the attribute `shape`.
    Raises what `shapejit.onnx.reshape` raises, and ReshapeError for inputs or
    attributes that the version does not have.

    >>> Reshape.eval(np.zeros((2, 3, 4), np.float32), np.array([0, -1])).shape
    (2, 12)
    """

    function = staticmethod(dialect.reshape)


class Shape(Operator):
    """ONNX Shape (1, 13, 15, 19, 21, 23, 24, 25) as a class for `new_ops`.

    The output is the 1-D int64 array of the sizes (elements) of dims [start,
    end). Raises what `shapejit.onnx.shape` raises, and ReshapeError for inputs
    or attributes that the version does not have.

    >>> Shape.eval(np.zeros((2, 3, 4), np.float32), start=1)
    array([3, 4])
    """

    function = staticmethod(dialect.shape)


def _cast(x: Any, to: Any, opset: int, **attributes: Any) -> Any:
    """A cast by shapejit; from and to strings by onnx's own evaluator."""
    target = dtype(to, vocabulary="onnx")
    if _of_strings(dialect.version("Cast", opset), x, target):
        return cast_to(x, target.onnx, saturate=True)
    return dialect.cast(x, to=to, opset=opset, **attributes)


def _cast_like(x: Any, target_type: Any, opset: int, **attributes: Any) -> Any:
    version = dialect.version("CastLike", opset)
    target = version.check(target_type, "output")
    if _of_strings(version, x, target):
        return cast_to(x, target.onnx, saturate=True)
    return dialect.cast_like(x, target_type, opset=opset, **attributes)


def _of_strings(version: dialect.Version, x: Any, target: DType) -> bool:
    """Whether the version has casts from and to strings, and this is one."""
    return STRING in (version.check(x, "input"), version.check_dtype(target, "output"))


class Cast(Operator):
    """ONNX Cast (1, 6, 9, 13, 19, 21, 23, 24, 25, 28) as a class for `new_ops`.

    Raises what `shapejit.onnx.cast` raises, and ReshapeError for inputs or
    attributes that the version does not have. Casts from and to strings are those
    of onnx's own evaluator.

    >>> Cast.eval(np.array([1.5, -2.5], np.float32), to=onnx.TensorProto.INT8)
    array([ 1, -2], dtype=int8)
    """

    function = staticmethod(_cast)


class CastLike(Operator):
    """ONNX CastLike (15, 19, 21, 23, 24, 25) as a class for `new_ops`, as `Cast`.

    >>> CastLike.eval(np.array([1.5, -2.5], np.float32), np.zeros(0, np.int8))
    array([ 1, -2], dtype=int8)
    """

    function = staticmethod(_cast_like)


class DequantizeLinear(Operator):
    """ONNX DequantizeLinear (10, 13, 19, 21, 23, 24, 25, 28) as a class for `new_ops`.

    Raises what `shapejit.onnx.dequantize_linear` raises, and ReshapeError for inputs
    or attributes that the version does not have.

    >>> DequantizeLinear.eval(np.array([1, 3], np.uint8), np.array(0.5, np.float32))
    array([0.5, 1.5], dtype=float32)
    """

    function = staticmethod(dialect.dequantize_linear)


class QuantizeLinear(Operator):
    """ONNX QuantizeLinear (10, 13, 19, 21, 23, 24, 25, 28) as a class for `new_ops`.

    Raises what `shapejit.onnx.quantize_linear` raises, and ReshapeError for inputs
    or attributes that the version does not have.

    >>> QuantizeLinear.eval(np.array([0.5, 200], np.float32), np.array(0.5, np.float32))
    array([  1, 255], dtype=uint8)
    """

    function = staticmethod(dialect.quantize_linear)


# For `ReferenceEvaluator(model, new_ops=OPS)`, with models of every opset.
OPS = (Reshape, Shape, Cast, CastLike, DequantizeLinear, QuantizeLinear)


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

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """The outputs; arguments are those of ReferenceEvaluator.run."""
        with _own_errors():
            return super().run(*args, **kwargs)


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

        `inputs` is a mapping from names, a sequence in the order of the graph's
        inputs (all of them, or those without an initializer), or one ndarray.
        Raises ValueError for another number of inputs, and the errors of the
        operators.
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
