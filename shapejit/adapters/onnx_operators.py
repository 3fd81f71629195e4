"""ONNX operators (onnx.ai/onnx/operators) as classes for onnx's evaluator.

The evaluator finds an operator in `new_ops` by the name of its class alone. So
there is one class per operator, which uses the version for the opset of the
model, function or subgraph that contains the node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from onnx.reference.op_run import OpRun

from ..arrays.tensor import is_array
from ..dialects import onnx as dialect
from ..dtypes.table import STRING, DType, dtype
from ..errors import DTypeError, ReshapeError, ShapeJitError

LOGGED_FROM = 11  # the verbosity from which on ReferenceEvaluator prints what operators log


@contextmanager
def own_errors() -> Iterator[None]:
    """Let shapejit's errors through: OpRun.run wraps every TypeError in another error."""
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
    """A node of the operator named like the class, in the version for the node's opset."""

    op_domain = ""
    function: Callable[..., Any]

    def __init__(self, onnx_node: Any, run_params: dict[str, Any], schema: Any = None) -> None:
        opset = run_params["opsets"][onnx_node.domain]
        self.version = dialect.version(type(self).__name__, opset)
        # OpRun would use the newest schema, which has defaults that older versions lack.
        if schema is None:
            schema = onnx.defs.get_schema(self.version.operator, self.version.since, self.op_domain)
        super().__init__(onnx_node, run_params, schema)
        # Asked for once: a schema makes them anew each time.
        self._listed = frozenset(schema.attributes)
        self._inputs = schema.min_input, schema.max_input
        self._overridden = type(self)._run is not Operator._run
        # The level at which ReferenceEvaluator logs; a call that does nothing takes 0.5 us.
        self._logs = run_params.get("verbose", LOGGED_FROM) >= LOGGED_FROM

    def run(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The node's outputs; arguments are those of OpRun.run."""
        outputs: tuple[Any, ...]
        if kwargs or self.has_linked_attribute or self._overridden:
            with own_errors():
                outputs = super().run(*args, **kwargs)
            return outputs
        # OpRun.run would read and check the attributes again, and the outputs: that takes 5 us.
        if self._logs:
            self._log("-- begin %s.run(%d inputs)", self.version.operator, len(args))
        outputs = self._outputs(args, self._own_arguments)
        if self._logs:
            self._log("-- done %s.run -> %d outputs", self.version.operator, len(outputs))
        return outputs

    @cached_property
    def _own_arguments(self) -> dict[str, Any]:
        """The arguments that the attributes of this node stand for."""
        return self._arguments({name: getattr(self, name) for name in self.attributes_names_})

    def _arguments(self, attributes: dict[str, Any]) -> dict[str, Any]:
        """The arguments of the function that attributes are, and the opset."""
        for name in attributes:
            if name not in self._listed:
                raise ReshapeError(f"{self.version} has no attribute {name}")
        # Attributes of the schema alone (consumed_inputs of Reshape-1) are obsolete.
        known = {name: attributes[name] for name in attributes if name in self.version.attributes}
        return {**self.named(known), "opset": self.version.since}

    def _run(self, *inputs: Any, **attributes: Any) -> tuple[Any, ...]:
        return self._outputs(inputs, self._arguments(attributes))

    def _outputs(self, inputs: tuple[Any, ...], arguments: dict[str, Any]) -> tuple[Any, ...]:
        least, most = self._inputs
        if not least <= len(inputs) <= most:
            expected = f"{least}" if least == most else f"{least} or {most}"
            raise ReshapeError(f"{self.version} has {expected} inputs, not {len(inputs)}")
        # onnx's own operators give scalars as NumPy's scalar types.
        arrays = [np.asarray(x) if isinstance(x, np.generic) else x for x in inputs]
        made = self.function(*arrays, **arguments)
        return made if isinstance(made, tuple) else (made,)

    def named(self, attributes: dict[str, Any]) -> dict[str, Any]:
        """The attributes by the names of the function's arguments."""
        return attributes


def cast(x: Any, to: Any, opset: int, **attributes: Any) -> Any:
    """A cast by shapejit; from and to strings by onnx's own evaluator."""
    if to == STRING.onnx or _holds_strings(x):
        version, target = dialect.version("Cast", opset), dtype(to, vocabulary="onnx")
        return _of_strings(version, x, version.check_dtype(target, "output"))
    return dialect.cast(x, to=to, opset=opset, **attributes)


def cast_like(x: Any, target_type: Any, opset: int, **attributes: Any) -> Any:
    """As `cast`, to the dtype of `target_type`."""
    if _holds_strings(x) or _holds_strings(target_type):
        version = dialect.version("CastLike", opset)
        return _of_strings(version, x, version.check(target_type, "output"))
    return dialect.cast_like(x, target_type, opset=opset, **attributes)


def concat(*inputs: Any, **attributes: Any) -> Any:
    """All inputs are those of one list."""
    return dialect.concat(inputs, **attributes)


def identity(x: Any, opset: int) -> Any:
    """A value that is not a tensor is itself: from opset 14 on a sequence or an optional value."""
    return dialect.identity(x, opset=opset) if is_array(x) or opset < 14 else x


def _holds_strings(x: Any) -> bool:
    return type(x) is np.ndarray and x.dtype.kind in "OSUT"


def _of_strings(version: dialect.Version, x: Any, target: DType) -> Any:
    """A cast from or to strings, by onnx's own evaluator, if the version lists both dtypes."""
    from onnx.reference.ops.op_cast import cast_to  # with all of its operators, in 30 ms

    version.check(x, "input")
    return cast_to(x, target.onnx, saturate=True)


class Pad(Operator):
    """ONNX Pad (1 to 25) as a class for `new_ops`; see `shapejit.onnx.pad`.

    >>> Pad.eval(np.array([1, 2]), np.array([1, 0]))
    array([0, 1, 2])
    """

    function = staticmethod(dialect.pad)

    def named(self, attributes: dict[str, Any]) -> dict[str, Any]:
        """What are inputs from opset 11 on has other names as an attribute."""
        inputs = {"paddings": "pads", "value": "constant_value"}
        return {inputs.get(name, name): value for name, value in attributes.items()}


class Split(Operator):
    """ONNX Split (1, 2, 11, 13, 18) as a class for `new_ops`; see `shapejit.onnx.split`.

    >>> Split.eval(np.array([1, 2, 3]), np.array([1, 2]), n_outputs=2)
    (array([1]), array([2, 3]))
    """

    function = staticmethod(dialect.split)

    def named(self, attributes: dict[str, Any]) -> dict[str, Any]:
        """Where the sizes are not given, the node says how many there are, before opset 18."""
        if len(self.input) > 1:
            return {name: value for name, value in attributes.items() if name != "split"}
        if self.version.since >= 18 or attributes.get("split") is not None:
            return attributes
        return attributes | {"num_outputs": len(self.output)}


def _operator(name: str, function: Callable[..., Any]) -> type[Operator]:
    """The class of an operator that only calls a function of the ONNX dialect."""
    about = f"ONNX {name} as a class for `new_ops`; see `shapejit.onnx.{function.__name__}`."
    return type(name, (Operator,), {"function": staticmethod(function), "__doc__": about})


_ONE_TO_ONE: dict[str, Callable[..., Any]] = {
    "Cast": cast,
    "CastLike": cast_like,
    "CenterCropPad": dialect.center_crop_pad,
    "Concat": concat,
    "DepthToSpace": dialect.depth_to_space,
    "DequantizeLinear": dialect.dequantize_linear,
    "Expand": dialect.expand,
    "Flatten": dialect.flatten,
    "Gather": dialect.gather,
    "Identity": identity,
    "QuantizeLinear": dialect.quantize_linear,
    "Reshape": dialect.reshape,
    "Shape": dialect.shape,
    "Size": dialect.size,
    "Slice": dialect.slice,
    "SpaceToDepth": dialect.space_to_depth,
    "Squeeze": dialect.squeeze,
    "Tile": dialect.tile,
    "Transpose": dialect.transpose,
    "Unsqueeze": dialect.unsqueeze,
}

# For `ReferenceEvaluator(model, new_ops=OPS)`, with models of every opset.
OPS: tuple[type[Operator], ...] = (
    Pad, Split, *(_operator(name, function) for name, function in _ONE_TO_ONE.items()),
)  # fmt: skip
