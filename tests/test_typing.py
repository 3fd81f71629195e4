"""The types that type checkers infer in a user's script, whose lines also run."""

import ast
import inspect
import re
import runpy
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import shapejit as sj
from shapejit.arrays import operations

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "tests" / "users_script.py"
PACKAGE = Path(sj.__file__).parent

# Lines that must not pass.
WRONG = [
    "t.reshape(foo=1)",
    "t.permute_dims((1, 0), copy=True)",
    "t.cast()",
    "sj.reshape(t, (6,), order='F')",
    "sj.nonsense.foo",
]
SCRIPT_OF_WRONG_LINES = """
import numpy as np
import shapejit as sj
t = sj.asarray(np.zeros((2, 3)))
"""


@pytest.fixture(scope="module")
def pyright():
    """How pyright is called, which its package downloads when it is first called."""
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable]
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        pytest.skip(f"pyright cannot be downloaded: {done.stderr[-200:]}")
    return command


# The configuration and the cache of the project: its modules were checked before.
MYPY = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml"]


def checked(command, script):
    return subprocess.run([*command, str(script)], cwd=ROOT, capture_output=True, text=True)


def test_mypy_knows_every_result():
    done = checked(MYPY, SCRIPT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_pyright_knows_every_result(pyright):
    done = checked(pyright, SCRIPT)
    assert done.returncode == 0, done.stdout + done.stderr


def refused(command, folder):
    """The numbers of the lines of a script with wrong lines that a checker finds an error in."""
    script = folder / "wrong_lines.py"
    script.write_text(SCRIPT_OF_WRONG_LINES + "\n".join(WRONG) + "\n")
    said = checked(command, script).stdout
    return {int(n) for n in re.findall(rf"{script.name}:(\d+):.* error\b", said)}


ALL_WRONG = {SCRIPT_OF_WRONG_LINES.count("\n") + 1 + k for k in range(len(WRONG))}


def test_mypy_refuses_wrong_lines(tmp_path):
    assert refused(MYPY, tmp_path) == ALL_WRONG


def test_pyright_refuses_wrong_lines(pyright, tmp_path):
    assert refused(pyright, tmp_path) == ALL_WRONG


def test_torch_tensors_come_out_as_torch_tensors(pyright, tmp_path):
    pytest.importorskip("torch")
    script = tmp_path / "torch_lines.py"
    script.write_text("""
from typing import assert_type
import torch
import shapejit as sj
x = torch.zeros(2, 3)
assert_type(sj.reshape(x, (6,)), torch.Tensor)
assert_type(sj.cast(x, torch.bfloat16), torch.Tensor)
assert_type(sj.concat([x, x]), torch.Tensor)
assert_type(sj.reshape_batch({"a": x}, (-1,)), dict[str, torch.Tensor])
""")
    done = checked(pyright, script)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_lines_run():
    runpy.run_path(str(SCRIPT))


def test_the_stub_has_every_public_name_and_where_it_is():
    found = {}
    for node in ast.parse((PACKAGE / "__init__.pyi").read_text()).body:
        if isinstance(node, ast.ImportFrom):
            where = ".".join(["shapejit", *filter(None, [node.module])])
            for alias in node.names:
                assert alias.asname == alias.name  # else type checkers do not pass it on
                found[alias.name] = where
    assert sorted(found) == sorted(sj.__all__)
    for name, where in found.items():
        value = getattr(sj, name)
        module = inspect.ismodule(value)
        assert value is (
            import_module(f"{where}.{name}") if module else getattr(import_module(where), name)
        )


def parameters(function):
    given = list(inspect.signature(function).parameters.values())[1:]  # without self
    return [(p.name, p.kind, p.default) for p in given if p.name != "self"]


def declared_methods():
    """The methods that type checkers see, and the names of the attributes that they see."""
    tree = ast.parse(Path(operations.__file__).read_text())
    (cls,) = (n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Methods")
    (block,) = (n for n in cls.body if isinstance(n, ast.If))
    space = {}
    exec("from __future__ import annotations\n" + ast.unparse(block.body), space)
    functions = {n.name: space[n.name] for n in block.body if isinstance(n, ast.FunctionDef)}
    return functions, {n.target.id for n in block.body if isinstance(n, ast.AnnAssign)}


def test_the_types_of_methods_are_those_of_what_is_bound():
    functions, attributes = declared_methods()
    names = {name for name, row in operations.OPERATIONS.items() if row.method}
    assert names == {*functions, *attributes}
    for name, theirs in functions.items():
        assert parameters(theirs) == parameters(getattr(sj.Tensor, name)), name


def test_help_shows_what_a_method_does_before_it_is_called():
    code = "import shapejit as sj, inspect; print(inspect.getdoc(sj.Tensor.squeeze))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.startswith("The view without the dims `axis`")
