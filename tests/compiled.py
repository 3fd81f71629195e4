"""Whether kernels are compiled, and one by its name, as tests call it."""

from shapejit.runtime import kernels
from shapejit.runtime.kernel_names import Call

COMPILED = kernels.compiled()


def kernel(name, kinds, returns="i"):
    """The kernel "module.function" for arguments of these kinds, built or loaded meanwhile."""
    call = Call(name, tuple(kinds), returns, held=False)
    assert kernels.wait((call,)), kernels.kernel_status()
    return kernels.called(call)
