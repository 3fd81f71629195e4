"""The operators that a Tensor refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Class = TypeVar("Class", bound=type)

_OPERATORS = {
    "+": "add radd pos", "-": "sub rsub neg", "*": "mul rmul", "@": "matmul rmatmul",
    "/": "truediv rtruediv", "//": "floordiv rfloordiv", "%": "mod rmod", "**": "pow rpow",
    "divmod()": "divmod rdivmod", "<<": "lshift rlshift", ">>": "rshift rrshift",
    "&": "and rand", "|": "or ror", "^": "xor rxor", "~": "invert", "abs()": "abs", "==": "eq",
    "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge", "truth value": "bool",
}  # fmt: skip


def without_arithmetic(cls: Class) -> Class:
    """Give a class operators that raise TypeError with a hint, and a hash by identity.

    Without them Python would compare identities for `==`, and any tensor with a length above 0
    would be true.
    """
    for operator, names in _OPERATORS.items():
        for name in names.split():
            setattr(cls, f"__{name}__", _refusal(operator))
    return cls


def _refusal(operator: str) -> Callable[..., Any]:
    """The method of an operator, which raises TypeError."""

    def refuse(*operands: object) -> Any:
        raise TypeError(
            f"a Tensor has no {operator}: compute on numpy.asarray(tensor), which unpacks; "
            f"compare bits with shapejit.array_equal(a, b), identity with 'is'"
        )

    return refuse
