"""Public names, parameters and errors are those recorded in public_names.txt.

`python tests/test_public_names.py` prints what they are now: who changes the contract changes that
file.
"""

import doctest
import inspect
import re
from pathlib import Path

import pytest

import shapejit as sj

RECORDED = Path(__file__).with_name("public_names.txt")
NAMESPACES = ("dtypes", "files", "onnx", "openvino", "onednn")
CLASSES = ("Tensor", "DType", "Program")
INTERNAL = ("Tensor.unchecked", "Tensor.with_layout")


def parameters(function):
    """The parameters without annotations, which type checkers compare."""
    given = inspect.signature(function).parameters.values()
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in given]
    return str(inspect.Signature(bare))


def described(name, value):
    if inspect.isclass(value):
        own = [kind.__name__ for kind in value.__mro__[1:] if kind is not object]
        return f"{name}: a class below {', '.join(own) or 'object'}"
    return name + (parameters(value) if callable(value) else "")


def public(holder):
    return sorted(name for name in dir(holder) if not name.startswith("_"))


def lines():
    yield from (described(name, getattr(sj, name)) for name in sj.__all__ if name not in NAMESPACES)
    for name in NAMESPACES:
        space = getattr(sj, name)
        own = getattr(space, "__all__", None) or [
            n
            for n in public(space)
            if getattr(getattr(space, n), "__module__", "") == space.__name__
        ]
        yield from (described(f"{name}.{each}", getattr(space, each)) for each in sorted(own))
    for name in CLASSES:
        kind = getattr(sj, name)
        for each in public(kind):
            getattr(kind, each)  # methods are bound when they are first asked for
            value = inspect.getattr_static(kind, each)
            function = getattr(value, "__func__", value)
            text = parameters(function) if inspect.isfunction(function) else ""
            yield f"{name}.{each}{text}"
    yield from (f"formats[{name!r}]" for name in sj.formats)
    yield from (f"schemes[{name!r}]" for name in sj.schemes)


def documented():
    """Every public callable and property, by the name under which users find it."""
    spaces = {f"{name}.": getattr(sj, name) for name in (*NAMESPACES, *CLASSES)}
    spaces["Scheme."] = type(sj.schemes["awq"])
    for prefix, holder in {"": sj, **spaces}.items():
        names = getattr(holder, "__all__", None) or public(holder)
        for name in names:
            value = getattr(holder, name)
            if callable(value) or inspect.isdatadescriptor(value):
                yield prefix + name, value


DOCUMENTED = {name: value for name, value in documented() if name not in INTERNAL}


@pytest.mark.parametrize("name", DOCUMENTED)
def test_docstrings_have_an_example(name):
    value = DOCUMENTED[name]
    if inspect.ismemberdescriptor(value) or (
        inspect.isclass(value) and issubclass(value, Exception)
    ):
        return  # a field of a class, or what the examples of others raise
    assert doctest.DocTestParser().get_examples(value.__doc__ or ""), value.__module__


@pytest.mark.parametrize("name", DOCUMENTED)
def test_docstrings_name_the_errors(name):
    """Of every function with arguments."""
    value = DOCUMENTED[name]
    if not inspect.isroutine(value):
        return
    given = [p for p in inspect.signature(value).parameters if p not in ("self", "t")]
    if given:
        assert re.search(r"\braises?\b", value.__doc__ or "", re.IGNORECASE), value.__module__


def test_the_contract_is_what_is_recorded():
    assert [*lines()] == RECORDED.read_text().splitlines()


if __name__ == "__main__":
    print("\n".join(lines()))


@pytest.mark.parametrize(("name", "ours"), [("astype", "cast"), ("concatenate", "concat")])
def test_names_of_numpy_lead_to_ours(name, ours):
    with pytest.raises(AttributeError, match=rf"no attribute '{name}': use shapejit\.{ours}$"):
        getattr(sj, name)
    assert not hasattr(sj, "nonsense")
