"""The processor that kernels are compiled for: its name and features, as LLVM calls them.

NUMBA_CPU_NAME and NUMBA_CPU_FEATURES name another one, as numba documents them.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any


@cache
def name() -> str:
    """LLVM's name of the processor."""
    from llvmlite import binding

    return os.environ.get("NUMBA_CPU_NAME") or str(binding.get_host_cpu_name())


@cache
def features() -> frozenset[str]:
    """What it has, by LLVM's names."""
    from llvmlite import binding

    given = os.environ.get("NUMBA_CPU_FEATURES")
    if given is not None:
        return frozenset(text[1:] for text in given.split(",") if text.startswith("+"))
    if name() == "generic":
        return frozenset()
    return frozenset(text for text, there in binding.get_host_cpu_features().items() if there)


@cache
def vector() -> int:
    """The widest vector (bytes) whose byte shuffles stay in registers."""
    if {"avx512f", "avx512bw"} <= features():
        return 64
    return 32 if "avx2" in features() else 16


def target_machine() -> Any:
    """LLVM's target machine for it: what writes object code, and loads it."""
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    given = os.environ.get("NUMBA_CPU_FEATURES")
    if given is None:
        given = "" if name() == "generic" else binding.get_host_cpu_features().flatten()
    target = binding.Target.from_triple(binding.get_process_triple())
    reloc = "static" if target.name.startswith("x86") else "default"
    return target.create_target_machine(
        cpu=name(), features=given, opt=3, reloc=reloc, codemodel="jitdefault", jit=True
    )
