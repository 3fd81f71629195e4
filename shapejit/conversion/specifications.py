"""What a reshape means: the specifications that `--spec` can name."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..arrays.tensor import Tensor
from ..dialects import onednn, onnx, openvino
from ..errors import ReshapeError, quoted
from ..operations.views import reshape

__all__ = ["SPECS", "Dialect", "Spec", "dialect"]

Dialect = Callable[[Tensor, tuple[int, ...]], Tensor]


class Spec(NamedTuple):
    """A specification that `--spec` can name: its flag, and its reshape under that flag."""

    flag: str | None
    reshape: Callable[[Tensor, tuple[int, ...], bool], Tensor]


SPECS = {
    "array": Spec(None, lambda t, shape, _: reshape(t, shape)),
    "onnx": Spec("allowzero", lambda t, shape, flag: onnx.reshape(t, shape, allowzero=int(flag))),
    "openvino": Spec(
        "special_zero", lambda t, shape, flag: openvino.reshape(t, shape, special_zero=flag)
    ),
    "onednn": Spec(
        "special_zero",
        lambda t, shape, flag: onednn.static_reshape(t, shape=shape, special_zero=flag),
    ),
}


def dialect(spec: str = "array", *, special_zero: bool = False, allowzero: bool = False) -> Dialect:
    """A specification's reshape, as a function of a Tensor and a shape.

    `spec` is one of `SPECS`. Raises ReshapeError for an unknown one, and for a
    flag that is not an attribute of it.

    >>> t = Tensor.frombuffer(bytes(24), "uint8", (2, 3, 4))
    >>> dialect("onnx")(t, (0, -1)).shape
    (2, 12)
    """
    if spec not in SPECS:
        raise ReshapeError(f"unknown specification {quoted(spec)}; known are {', '.join(SPECS)}")
    own, function = SPECS[spec]
    flags = {"special_zero": special_zero, "allowzero": allowzero}
    for name, value in flags.items():
        if value and name != own:
            option = name.replace("_", "-")
            raise ReshapeError(f"--{option} is not an attribute of --spec {spec}")
    flag = own is not None and flags[own]
    return lambda tensor, shape: function(tensor, shape, flag)
