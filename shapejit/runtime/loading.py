"""Loading of object code as functions of this process, by LLVM's linker and without numba."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from itertools import count
from typing import Any

from . import processor
from .kernel_names import Call, Name
from .uninterrupted import hold_at_exit

# What CPython gives to kernels that it calls.
PYTHON = (
    "PyBool_FromLong", "PyLong_FromLongLong", "PyLong_AsLongLong", "PyEval_SaveThread",
    "PyEval_RestoreThread", "Py_IncRef", "PyObject_Vectorcall",
)  # fmt: skip

_numbers = count()  # of libraries


@cache
def _linker() -> Any:
    llvm = processor.binding()
    hold_at_exit()
    return llvm.create_lljit_compiler(processor.target_machine(), use_jit_link=True)


def linked(name: Name, label: str, code: bytes) -> int:
    """The address of the function `label` in an object file; RuntimeError if LLVM rejects it.

    Call it from one thread at a time, and only where signals cannot interrupt: see `uninterrupted`.
    """
    library = processor.binding().JITLibraryBuilder().add_object_img(code).add_current_process()
    library.export_symbol(label)
    if isinstance(name, Call):
        for text in PYTHON:
            function = getattr(ctypes.pythonapi, text)
            library.import_symbol(text, ctypes.cast(function, ctypes.c_void_p).value)
    made = library.link(_linker(), f"{label}_{next(_numbers)}")
    made.detach()  # otherwise LLVM would free its memory with it
    return int(made[label])


class _MethodDef(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


METH_FASTCALL = 0x0080
_methods: list[_MethodDef] = []  # a builtin function does not keep its own alive


def builtin(name: Call, address: int) -> Callable[..., Any]:
    """The Python function that passes objects unconverted to the kernel at this address."""
    _methods.append(_MethodDef(name.kernel.encode(), address, METH_FASTCALL, None))
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p,) * 3
    made: Callable[..., Any] = make(ctypes.addressof(_methods[-1]), None, None)
    return made
