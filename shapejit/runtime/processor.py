"""The processor that kernels are compiled for: this one, or the one numba is configured for.

llvmlite, which detects it, is imported on first use.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from .numba_settings import text
from .system import open_library


@cache
def binding() -> Any:
    """llvmlite's bindings of LLVM, whose library is opened first, while other threads run."""
    from llvmlite import utils

    open_library(os.path.join(os.path.dirname(utils.__file__), "binding", utils.get_library_name()))
    from llvmlite import binding

    return binding


@cache
def triple() -> str:
    """LLVM's target triple: that of SHAPEJIT_TARGET, or of this process.

    Objects for another target are built, but not loaded.
    """
    given = os.environ.get("SHAPEJIT_TARGET")
    if given:
        return given
    return str(binding().get_process_triple())


def is_arm64() -> bool:
    """Whether it is an arm of 64 bits."""
    return triple().startswith(("aarch64", "arm64"))


def is_x86() -> bool:
    """Whether it is an x86, of 32 or 64 bits."""
    return triple().startswith(("x86", "i686"))


@cache
def name() -> str:
    """Its name in LLVM."""
    given = text("NUMBA_CPU_NAME")
    if given is not None:
        return given
    return str(binding().get_host_cpu_name())


@cache
def features() -> frozenset[str]:
    """Its features, by LLVM's names."""
    given = text("NUMBA_CPU_FEATURES")
    if given is not None:
        return frozenset(f[1:] for f in given.split(",") if f.startswith("+"))
    if (text("NUMBA_CPU_NAME") or "").lower() == "generic":
        return frozenset()
    return frozenset(name for name, there in binding().get_host_cpu_features().items() if there)


# The features of each level for which wheels contain objects, the best first.
LEVELS = {
    "x86-64-v4": "+avx2,+bmi,+bmi2,+f16c,+fma,+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl",
    "x86-64-v3": "+avx2,+bmi,+bmi2,+f16c,+fma",
}


@cache
def levels() -> tuple[str, ...]:
    """The levels that it supports, the best first."""
    return tuple(
        level
        for level, all_of in LEVELS.items()
        if {f[1:] for f in all_of.split(",")} <= features()
    )


@cache
def vector() -> int:
    """The bytes of the widest vector whose byte shuffles stay in registers."""
    if {"avx512f", "avx512bw"} <= features():
        return 64
    return 32 if "avx2" in features() else 16


def target_machine() -> Any:
    """LLVM's target machine for it, which writes and loads object code."""
    llvm = binding()
    if os.environ.get("SHAPEJIT_TARGET"):
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    else:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
    given = text("NUMBA_CPU_FEATURES")
    if given is None:
        generic = name().lower() == "generic"
        given = "" if generic else str(llvm.get_host_cpu_features().flatten())
    target = llvm.Target.from_triple(triple())
    reloc = "static" if is_x86() else "default"
    return target.create_target_machine(
        cpu=name(), features=given, opt=3, reloc=reloc, codemodel="jitdefault", jit=True
    )
