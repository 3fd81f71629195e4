"""Whether kernels are compiled, and one by its name, as tests call it."""

import os
import subprocess
import sys

import pytest

from shapejit.engine import patience
from shapejit.runtime import kernels
from shapejit.runtime.kernel_names import Call

COMPILED = kernels.compiled()


def kernel(name, kinds, returns="i"):
    """The kernel "module.function" for arguments of these kinds, built or loaded meanwhile.

    With the JIT off there is none, and the test is skipped.
    """
    if not COMPILED:
        pytest.skip("with the JIT off there are no kernels")
    call = Call(name, tuple(kinds), returns, held=False)
    assert kernels.wait((call,)), kernels.kernel_status()
    return kernels.called(call)


def takes_no_kernels(code):
    """Whether a process of usual patience runs code without a kernel, or what would load one."""
    end = "import sys, shapejit as sj; sys.exit(bool(sj.kernel_status() or found & {*sys.modules}))"
    command = [sys.executable, "-c", f"{code}\nfound = {{'numba', 'llvmlite'}}\n{end}"]
    own = {name: value for name, value in os.environ.items() if name != patience.PATIENCE_VARIABLE}
    return subprocess.run(command, env=own).returncode == 0
