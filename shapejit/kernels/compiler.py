"""The numba target of kernels: compiler passes, a cache of call signatures, code generation.

It is separate from numba's own CPU target, so that other functions compiled in this process are not
affected.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from numba.core import compiler, typed_passes, types, typing, untyped_passes
from numba.core.codegen import AOTCodeLibrary, AOTCPUCodegen
from numba.core.compiler_machinery import PassManager
from numba.core.cpu import CPUContext
from numba.core.registry import CPUTarget
from numba.core.target_extension import CPU, target_override, target_registry

from ..runtime.processor import target_machine, triple

TARGET_NAME = "shapejit"  # of the target
PASSES = (
    untyped_passes.TranslateByteCode,
    untyped_passes.FixupArgs,
    untyped_passes.IRProcessing,
    untyped_passes.ReconstructSSA,
    typed_passes.NopythonTypeInference,
    typed_passes.PreLowerStripPhis,
    typed_passes.NativeLowering,
    typed_passes.NoPythonBackend,
)


class Compiler(compiler.CompilerBase):  # type: ignore[misc]  # numba is not type-checked
    """A compiler with only the passes that kernels need, which takes a tenth less time."""

    def define_pipelines(self) -> list[PassManager]:
        """One pipeline."""
        passes = PassManager("kernels")
        for one in PASSES:
            passes.add_pass(one, one.name())
        passes.finalize()
        return [passes]


class _Typing(typing.Context):  # type: ignore[misc]  # numba is not type-checked
    """A cache of signatures: that of an operator or intrinsic is found once for given types.

    Without it kernels take 8 % longer to compile.
    """

    def init(self) -> None:
        """Begin with no signature."""
        super().init()
        self._found: dict[Any, Any] = {}

    def refresh(self) -> None:
        """Look for new declarations, as this target does."""
        with target_override(TARGET_NAME):
            super().refresh()

    def resolve_function_type(self, func: Any, args: Any, kws: Any) -> Any:
        """The signature of a call."""
        if kws or not isinstance(func, types.Function):
            return super().resolve_function_type(func, args, kws)
        call = func, args
        if call not in self._found:
            self._found[call] = super().resolve_function_type(func, args, kws)
        return self._found[call]


class _Library(AOTCodeLibrary):  # type: ignore[misc]  # numba is not type-checked
    """numba's modules, optimised, but neither emitted nor loaded: kernels are, each as a whole.

    Each function is optimised together with those that it calls. Kernels that are only optimised as
    a whole are a sixth shorter, but take as long to compile. -O3 instead of -O2 takes 40 % longer,
    for kernels that are a tenth longer and no faster.
    """

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        passes, builder = self._codegen._module_pass_manager(opt=2)
        passes.run(self._final_module, builder)

    def get_pointer_to_function(self, name: str) -> int:
        """A dummy address, which numba requests at the end."""
        self._ensure_finalized()
        return 0


class _Codegen(AOTCPUCodegen):  # type: ignore[misc]  # numba is not type-checked
    """numba's code generator for the target processor."""

    _library_class = _Library

    def _init(self, llvm_module: Any) -> None:
        self._tm = target_machine()
        self._target_data = self._tm.target_data
        self._data_layout = str(self._target_data)
        self._tm_features, self._loopvect, self._opt_level = "", False, 0

    def _create_empty_module(self, name: str) -> Any:
        module = super()._create_empty_module(name)
        module.triple = triple()
        return module

    def set_env(self, *_: object) -> None:
        """Does nothing: only code that raises, or calls Python, needs an environment."""


class _Context(CPUContext):  # type: ignore[misc]  # numba is not type-checked
    """The context that lowers functions to modules of that generator."""

    def init(self) -> None:
        """Prepare what modules need."""
        self.is32bit = False
        self._internal_codegen = _Codegen(TARGET_NAME)

    def post_lowering(self, *_: object) -> None:
        """Leave out numba's runtime, which kernels do not call."""


class Hardware(CPU):  # type: ignore[misc]  # numba is not type-checked
    """The name of the target."""


class _Target(CPUTarget):  # type: ignore[misc]  # numba is not type-checked
    """Both contexts, made when they are first asked for."""

    @cached_property
    def _toplevel_typing_context(self) -> Any:
        return _Typing()

    @cached_property
    def _toplevel_target_context(self) -> Any:
        return _Context(self.typing_context, self._target_name)


target_registry[TARGET_NAME] = Hardware
TARGET = _Target(TARGET_NAME)
