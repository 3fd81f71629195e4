"""Arrays of other libraries: converted to ndarrays or Tensors, and results back to theirs.

Anything with `__dlpack__` is such an array. It becomes an ndarray over its own memory or, if
elements share bytes, a Tensor; the rest of the package sees only these. Results are converted to
the library of the first argument. The table `libraries` has what is special about each library.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from ..errors import DTypeError, type_name
from ..runtime.ndarrays import is_a, unwrapped
from .libraries import Library, library
from .tensor import Tensor, asarray, is_array


class SupportsDLPack(Protocol):
    """An array that exports its memory by DLPack, such as Tensors and torch's tensors."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any:
        """A capsule."""


P = ParamSpec("P")
R = TypeVar("R")
Scalar = TypeVar("Scalar", bound=np.generic)
Other = TypeVar("Other", bound=SupportsDLPack)
Out = TypeVar("Out")
ArrayFunction = Callable[Concatenate[Any, P], Any]


class KeepsDtype(Protocol[P]):
    """The type of a function whose result has the dtype of its array."""

    @overload
    def __call__(
        self, x: NDArray[Scalar], /, *args: P.args, **kwargs: P.kwargs
    ) -> NDArray[Scalar]: ...
    @overload
    def __call__(self, x: Other, /, *args: P.args, **kwargs: P.kwargs) -> Other: ...


class ChangesDtype(Protocol[P]):
    """The type of a function whose result has another dtype."""

    @overload
    def __call__(self, x: NDArray[Any], /, *args: P.args, **kwargs: P.kwargs) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: Other, /, *args: P.args, **kwargs: P.kwargs) -> Other: ...


class JoinsArrays(Protocol[P]):
    """The type of a function that makes one array of several."""

    @overload
    def __call__(
        self, x: Sequence[NDArray[Scalar]], /, *args: P.args, **kwargs: P.kwargs
    ) -> NDArray[Scalar]: ...
    @overload
    def __call__(self, x: Sequence[Other], /, *args: P.args, **kwargs: P.kwargs) -> Other: ...


class SplitsArrays(Protocol[P]):
    """The type of a function that makes a tuple of arrays of one, or of several."""

    @overload
    def __call__(
        self, x: NDArray[Scalar], /, *args: P.args, **kwargs: P.kwargs
    ) -> tuple[NDArray[Scalar], ...]: ...
    @overload
    def __call__(self, x: Other, /, *args: P.args, **kwargs: P.kwargs) -> tuple[Other, ...]: ...


def _library_of(x: Any) -> Library:
    kind: Any = type(x)
    return library(kind)


@lru_cache(maxsize=1024)
def _lends(kind: Any) -> bool:
    native = issubclass(kind, np.ndarray | Tensor | np.generic)
    return not native and hasattr(kind, "__dlpack__")


def is_foreign(x: object) -> bool:
    """Whether it is an array of another library.

    >>> is_foreign(np.zeros(3)), is_foreign([1, 2])
    (False, False)
    """
    kind: Any = type(x)
    return _lends(kind)


def native(x: Any) -> Any:
    """A foreign array as an ndarray or a Tensor over its memory; everything else as it is."""
    return _library_of(x).enter(x) if is_foreign(x) else x


def _first(x: Any) -> Any:
    """The argument whose library the results have."""
    return next(iter(x), None) if type(x) in (list, tuple) else x


def to_library(made: Any, like: Any) -> Any:
    """Convert a result to the library of `like`.

    `like` is an array, or a list or tuple of arrays; if it has as many arrays as the result, each
    result gets the library of its array.
    """
    if is_array(made):
        first = _first(like)
        return _library_of(first).leave(made, first)
    if type(made) in (list, tuple):
        each = type(like) in (list, tuple) and len(like) == len(made)
        likes = like if each else [like] * len(made)
        return type(made)(map(to_library, made, likes))
    return made


def natives(items: Sequence[Any]) -> list[Any]:
    """`native` of each array; all must be of one library."""
    own = _library_of(items[0])
    for i, x in enumerate(items):
        if _library_of(x) is not own:
            raise DTypeError(f"array {i} is of type {type_name(x)}, array 0 {type_name(items[0])}")
    return [own.enter(x) for x in items]


def _entered(x: Any) -> Any:
    """An argument with all foreign arrays in it made native."""
    kind: Any = type(x)
    if _lends(kind):
        return library(kind).enter(x)
    return natives(x) if kind in (list, tuple) and any(map(is_foreign, x)) else x


def _alike(x: Any, out: Any) -> tuple[Any, Any]:
    """A source and an out=, or lists of them; all Tensors if one is (torch's float4 pairs)."""
    if is_array(_first(out)) and is_a(_first(x), Tensor) is not is_a(_first(out), Tensor):
        return _as_tensors(x), _as_tensors(out)
    return x, out


def _as_tensors(x: Any) -> Any:
    return [asarray(a) for a in x] if type(x) in (list, tuple) else asarray(x)


def call(
    function: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any], out: Any
) -> Any:
    """Call `function` with arguments that include foreign arrays.

    The first argument is a foreign array or a list of these, and the result has the same library.
    An argument that is returned (`out`) is the caller's own object. Raises for an `out` that is not
    of the library of the source.
    """
    like, into = _first(args[0]), _first(out)
    if out is not None and _library_of(into) is not _library_of(like):
        want, have = type_name(like), type_name(into)
        raise DTypeError(f"out= must be of type {want} like the source, not {have}")
    first, into = _alike(_entered(args[0]), _entered(out))
    rest = [into if x is out else _entered(x) for x in args[1:]]
    others = {name: into if x is out else _entered(x) for name, x in named.items()}
    made = function(first, *rest, **others)
    for given, lent in zip((*args, *named.values()), (first, *rest, *others.values()), strict=True):
        if lent is made:
            return given
    return to_library(made, args[0])


def call_with(function: Callable[..., Any], x: Any, out: Any, *rest: Any) -> Any:
    """`call` of a function of one array or several, `out`, and the rest."""
    return call(function, (x, out, *rest), {}, out)


NATIVE = frozenset((np.ndarray, Tensor))


def sees_native_arrays(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function of one array, or several, accept arrays of other libraries."""
    names = list(signature(function).parameters)
    place = names.index("out") if "out" in names else sys.maxsize

    @wraps(function)
    def call_with_any_array(*args: Any, **named: Any) -> Any:
        if args:
            x = args[0]
            if type(x[0] if type(x) in (list, tuple) and x else x) in NATIVE:
                return function(*args, **named)
        if not args and names[0] in named:
            args = (named.pop(names[0]),)
        if args and issubclass(type(args[0]), np.generic):  # NumPy's 0-D results
            args = (unwrapped(args[0]), *args[1:])
        if not (args and is_foreign(_first(args[0]))):
            return function(*args, **named)
        return call(function, args, named, args[place] if len(args) > place else named.get("out"))

    return call_with_any_array


# Type checkers need a decorator for each relation between the types of arguments and results: mypy
# infers Any from an overloaded decorator of generic functions.
if TYPE_CHECKING:

    def accepts_any_array(function: ArrayFunction[P]) -> KeepsDtype[P]:
        """`sees_native_arrays` of a function whose result has the dtype of its array."""

    def converts_any_array(function: ArrayFunction[P]) -> ChangesDtype[P]:
        """`sees_native_arrays` of a function whose result has another dtype."""

    def joins_any_arrays(function: ArrayFunction[P]) -> JoinsArrays[P]:
        """`sees_native_arrays` of a function that makes one array of several."""

    def splits_any_array(function: ArrayFunction[P]) -> SplitsArrays[P]:
        """`sees_native_arrays` of a function that makes a tuple of arrays."""

    # The same types, of functions that take any array by themselves.
    keeps_dtype, changes_dtype, joins_arrays = (
        accepts_any_array,
        converts_any_array,
        joins_any_arrays,
    )
else:
    accepts_any_array = converts_any_array = sees_native_arrays
    joins_any_arrays = splits_any_array = sees_native_arrays

    def keeps_dtype(function: Callable[P, R]) -> Callable[P, R]:
        """The function itself, which takes any array."""
        return function

    changes_dtype = joins_arrays = keeps_dtype
