"""The machine code of a package's kernels for one instruction set, on any processor.

`suite.machine_code` runs it with a Python that has the package: `python emission.py ISA [REGEX]`.
It calls cases of the benchmarks, compiles the kernels that they request for the instruction set,
and counts their instructions.
"""

import gc
import json
import os
import re
import sys
from importlib import import_module
from time import process_time
from typing import NamedTuple

OURS = "shapejit"
NBYTES = 1 << 22  # of a case: enough for the kernels of large copies
# Suites whose cases are not called: other processes, and what asks for no more kernels.
LEFT_OUT = ("busy", "first-call", "files")


class Isa(NamedTuple):
    """What is compiled for: LLVM's target, a processor and the features that numba is given."""

    triple: str
    cpu: str
    features: str


X86, ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"
_AVX2 = "+avx2,+bmi,+bmi2,+f16c,+fma,+ssse3"
_AVX512 = f"{_AVX2},+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl"
ISAS = {
    "x86-64-v3": Isa(X86, "x86-64-v3", _AVX2),
    "x86-64-v4": Isa(X86, "x86-64-v4", _AVX512),
    # Without vectors of any length: LLVM ends with an assertion where it meets ours among them.
    "neoverse-v1": Isa(ARM, "neoverse-v1", "+neon,-sve,-sve2"),
}

COLUMNS = ("instructions", "spills", "code bytes", "compile seconds")
INSTRUCTION = re.compile(r"\t[a-z]")


def counted(text, arm):
    """Figures of assembly by LLVM, with its comments on what is spilled."""
    figures = dict.fromkeys(COLUMNS[:2], 0)
    for line in text.splitlines():
        if INSTRUCTION.match(line):
            figures["instructions"] += 1
            figures["spills"] += "Spill" in line.partition("//" if arm else "#")[2]
    return figures


class Emission:
    """A machine for the instruction set, and the figures of what it emits."""

    def __init__(self, isa):
        from llvmlite import binding

        binding.initialize_all_targets()
        binding.initialize_all_asmprinters()
        self.arm = isa.triple == ARM
        target = binding.Target.from_triple(isa.triple)
        # As numba has it on x86; what is not position-independent is as on ARM.
        options = {"opt": 3, "reloc": "static", "codemodel": "default"}
        self.machine = target.create_target_machine(cpu=isa.cpu, features=isa.features, **options)
        self.machine.set_asm_verbosity(True)

    def figures(self, module):
        """Those of a module, compiled for the instruction set."""
        from llvmlite import binding

        text = self.machine.emit_assembly(module.clone())
        figures = counted(text, self.arm)
        data = self.machine.emit_object(module)
        sections = binding.ObjectFileRef.from_data(data).sections()
        figures["code bytes"] = sum(
            part.size() for part in sections if (part.name() or b"").startswith(b".text")
        )
        return figures


def built(isa, names):
    """The figures of all kernels of these names, and what fails."""
    objects, emission = import_module(f"{OURS}.builder.objects"), Emission(isa)
    rows, failed = {}, {}
    for name in names:
        start = process_time()
        try:
            module = objects.optimised(name, "kernel")
        except Exception as fault:  # others are compiled all the same
            failed[str(name)] = f"{type(fault).__name__}: {fault}"
            continue
        seconds = round(process_time() - start, 3)
        rows[str(name)] = emission.figures(module) | {"compile seconds": seconds}
    return rows, failed


def emitted(isa, patterns):
    """The figures of all kernels that the cases ask for, by name, and what fails."""
    os.environ |= {"NUMBA_CPU_NAME": isa.cpu, "NUMBA_CPU_FEATURES": isa.features}
    os.environ |= {"NUMBA_NUM_THREADS": "1", "SHAPEJIT_PATIENCE": "0"}
    os.environ["SHAPEJIT_TARGET"] = isa.triple
    tables, failed = import_module("tables"), {}
    with import_module(f"{OURS}.runtime.kernels").recorded() as names:
        for suite in tables.suites.SUITES:
            for case in tables.suites.recorded(suite).values():
                if suite in LEFT_OUT or not all(re.search(p, case.id) for p in patterns):
                    continue
                try:
                    case = tables.sized(case, NBYTES)
                    case.ways(tables.measured())[OURS]()
                except Exception as fault:  # others are compiled all the same
                    failed[case.id] = f"{type(fault).__name__}: {fault}"
        # What runs once those are ready that small copies ask for first.
        mover = import_module(f"{OURS}.kernels.small_plans").PLANE_MOVER
        rows, lacking = built(isa, dict.fromkeys((*names, mover)))
    versions = {name: import_module(name).__version__ for name in ("llvmlite", "numba")}
    return {"kernels": rows, "failed": failed | lacking, "versions": versions}


def main():
    isa, *patterns = sys.argv[1:]
    gc.disable()  # as the builder: a tenth of every compilation
    print(json.dumps(emitted(ISAS[isa], patterns)))


if __name__ == "__main__":
    main()
