"""Functions of machine code that are no kernels of numba's: written with LLVM's builder.

Each is called by its address. Its object code is kept on disk, like that of kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Any

from llvmlite import ir
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target

from .jit import compile_apart, stored_code

_compiled: dict[tuple[str, Any], tuple[int, Any]] = {}  # addresses, and what owns the code


def machine_code(name: str, kind: Any, write: Callable[[Any, Any], None], what: Any) -> int:
    """The address of a function of this type, made once: `write(function, what)` fills it in."""
    if (name, what) not in _compiled:
        _compiled[name, what] = compile_apart(_machine_code, name, kind, write, what)
    return _compiled[name, what][0]


def _machine_code(
    name: str, kind: Any, write: Callable[[Any, Any], None], what: Any
) -> tuple[int, Any]:
    codegen = cpu_target.target_context.codegen()
    # No two functions of a process may have one name.
    name = f"{name}_{blake2b(repr(what).encode(), digest_size=16).hexdigest()}"
    key, stored = (name, codegen.magic_tuple()), stored_code(write)
    with global_compiler_lock:
        found = stored.load(key) if stored else None
        if found is not None:
            library = codegen.unserialize_library(found)
        else:
            library = codegen.create_library(name)
            library.enable_object_caching()
            module = library.create_ir_module(name)
            function = ir.Function(module, kind, name)
            function.linkage = "external"
            write(function, what)
            library.add_ir_module(module)
            library.finalize()
        address = library.get_pointer_to_function(name)
        if stored and found is None:
            stored.save(key, library.serialize_using_object_code())
    return address, library
