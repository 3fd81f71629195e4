"""The machine code of a package's kernels for one instruction set, on whatever processor.

`machine_code` runs it, by a Python that has the package: `python emission.py ISA [--all] [REGEX]`.
Cases of the benchmarks are called. What they ask for is compiled for the instruction set and
counted. A package that builds kernels by their names runs none of them; what runs here of an older
one, which compiles where it calls, is the same code without optimisation, for any processor.
"""

import gc
import json
import os
import platform
import re
import sys
import weakref
from contextlib import contextmanager
from hashlib import blake2b
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from time import process_time
from typing import NamedTuple

import numpy as np

OURS = "shapejit"
NBYTES = 1 << 22  # of a case: enough for the kernels of large copies
# Suites whose cases are not called: other processes, and what asks for no more kernels.
LEFT_OUT = ("busy", "first-call", "files")
LONGEST = 64  # letters of values in a name
WRAPPER = "_ZN7cpython"  # what the name of a function begins with that Python calls


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
    "apple-m2": Isa(ARM, "apple-m2", "+neon"),
}

COLUMNS = (
    "instructions",
    "vector instructions",
    "loads",
    "stores",
    "spills",
    "reloads",
    "code bytes",
    "compile seconds",
)

FUNCTION = re.compile(r"^(define [^@\n]*?(\w+) @.*\{\n)((?:.*\n)*?)\}\n", re.MULTILINE)
INSTRUCTION = re.compile(r"^\t([a-z][\w.]*)(?:[ \t]+(.*))?$")
NO_ACCESS = ("lea", "nop", "prefetch", "prfm", "call", "jmp")
# Of x86: what has memory as its last operand, and only reads it.
READING = ("bt", "cmp", "test", "ptest", "vptest", "vtest", "comis", "ucomis", "vcomis", "vucomis",
           "mul", "imul", "div", "idiv", "push")  # fmt: skip


def _emptied(found):
    """A function as it is, or one that does nothing if it has what this processor may lack."""
    head, kind, body = found.groups()
    if "@llvm.x86." not in body:
        return found[0]
    value = "void" if kind == "void" else f"{kind} zeroinitializer"
    return f"{head}  ret {value}\n}}\n"


def counted(text, arm):
    """Figures of assembly by LLVM, with its comments on what is spilled and reloaded."""
    figures = dict.fromkeys(COLUMNS[:6], 0)
    vector = re.compile(r"\b[vq]\d" if arm else "%[xyz]mm")
    for line in text.splitlines():
        code, _, comment = line.partition("//" if arm else "#")
        found = INSTRUCTION.match(code.rstrip())
        if found is None:
            continue
        name, operands = found[1], found[2] or ""
        figures["instructions"] += 1
        figures["vector instructions"] += bool(vector.search(operands))
        figures["spills"] += "Spill" in comment
        figures["reloads"] += "Reload" in comment
        access = (_access_arm if arm else _access_x86)(name, operands)
        if access:
            figures[access] += 1
    return figures


def _access_arm(name, operands):
    if "[" not in operands or name.startswith(NO_ACCESS):
        return ""
    return "stores" if name.startswith("st") else "loads"


def _access_x86(name, operands):
    if "(" not in operands or name.startswith(NO_ACCESS):
        return ""
    last = re.search(r"\)(?:\s*\{[^}]*\})*$", operands)
    return "stores" if last and not name.startswith(READING) else "loads"


class Emission:
    """Stands where numba finishes its modules, and counts what each kernel became."""

    def __init__(self, isa):
        from llvmlite import binding

        binding.initialize_all_targets()
        binding.initialize_all_asmprinters()
        self.isa, self.rows, self.arm = isa, {}, isa.triple == ARM
        # Whether this processor has all that is compiled for.
        has = {name for name, there in binding.get_host_cpu_features().items() if there}
        self.native = {feature[1:] for feature in isa.features.split(",")} <= has
        target = binding.Target.from_triple(isa.triple)
        # As numba has it on x86; what is not position-independent is as on ARM.
        options = {"opt": 3, "reloc": "static", "codemodel": "default"}
        self.machine = target.create_target_machine(cpu=isa.cpu, features=isa.features, **options)
        self.machine.set_asm_verbosity(True)
        self.layout = str(self.machine.target_data)
        self.compiling = []  # names of what is being compiled, the outermost first
        self.host = ""

    def install(self):
        """Before kernels are imported."""
        from llvmlite import binding
        from numba.core import codegen, dispatcher

        kind, library = codegen.JITCPUCodegen, codegen.CPUCodeLibrary
        kind._init = self._started(kind._init, binding.get_process_triple())
        kind._create_empty_module = self._emptied(kind._create_empty_module)
        kind._customize_tm_options = _here
        kind._customize_tm_features = lambda _: ""
        binding.get_default_triple = lambda: self.isa.triple
        library._optimize_final_module = self._optimised(library._optimize_final_module)
        library._finalize_final_module = self._finished(binding.parse_assembly)
        dispatcher.Dispatcher.compile = self._named(dispatcher.Dispatcher.compile)

    def _started(self, start, triple):
        def init(codegen, module):
            start(codegen, module)
            layout = codegen._data_layout
            self.host = f'target datalayout = "{layout}"\ntarget triple = "{triple}"\n'
            codegen._tm, codegen._data_layout = self.machine, self.layout

        return init

    def _emptied(self, empty):
        def made(codegen, name):
            module = empty(codegen, name)
            if codegen._data_layout:
                module.triple = self.isa.triple
            return module

        return made

    def _optimised(self, optimise):
        def optimised(library):
            text = re.sub(r"^target .*\n", "", str(library._final_module), flags=re.MULTILINE)
            library.runnable = self.host + (text if self.native else FUNCTION.sub(_emptied, text))
            optimise(library)

        return optimised

    def _finished(self, parse):
        def finished(library):
            module = library._final_module
            if len(self.compiling) == 1:
                self.count(module)
            library._finalize_dynamic_globals()
            # The module that runs; the other one is linked into kernels that call this one.
            made = parse(library.runnable)
            made.name = module.name
            made._CPUCodeLibrary__library = weakref.proxy(library)
            library._codegen._add_module(made)
            library._codegen._scan_and_fix_unresolved_refs(made)
            library._codegen._engine.finalize_object()
            library._finalized = True

        return finished

    def _named(self, compile_):
        def compiled(dispatcher, kinds):
            function = dispatcher.py_func
            if not function.__module__.startswith(OURS) or tuple(kinds) in dispatcher.overloads:
                return compile_(dispatcher, kinds)
            name = f"{function.__module__}.{function.__qualname__}"
            with self.naming(name, ", ".join(filter(None, map(_tag, kinds)))):
                return compile_(dispatcher, kinds)

        return compiled

    @contextmanager
    def naming(self, name, tags):
        """Within it the kernel is compiled."""
        name = name.removeprefix(f"{OURS}.").removeprefix("kernels.")
        key, k = f"{name}({tags})", 1
        while key in self.rows:  # other signatures that the tags do not tell apart
            k += 1
            key = f"{name}({tags}) {k}"
        self.compiling.append(key)
        self.overhead, start = 0.0, process_time()
        try:
            yield
        finally:
            key = self.compiling.pop()
            if not self.compiling and key in self.rows:
                self.rows[key]["compile seconds"] = round(process_time() - start - self.overhead, 3)

    def count(self, module):
        """Keep the figures of a kernel: all of its module but what Python calls it by."""
        start = process_time()
        emitted = module.clone()
        for function in emitted.functions:
            if function.name.startswith(WRAPPER):
                function.linkage = "available_externally"  # which is not emitted
        self.rows[self.compiling[0]] = self.figures(emitted)
        self.overhead += process_time() - start

    def figures(self, module):
        """Those of a module, compiled for the instruction set."""
        from llvmlite import binding

        text = self.machine.emit_assembly(module.clone())
        figures = counted(text, self.arm) | main_loop(text, self.arm)
        data = self.machine.emit_object(module)
        sections = binding.ObjectFileRef.from_data(data).sections()
        figures["code bytes"] = sum(
            part.size() for part in sections if (part.name() or b"").startswith(b".text")
        )
        return figures


def _here(codegen, options):
    """What runs here is for this processor, and made quickly."""
    from llvmlite import binding

    x86 = platform.machine().lower() in ("x86_64", "amd64")
    has = binding.get_host_cpu_features().flatten()
    options.update(cpu=binding.get_host_cpu_name(), features=has, opt=0, jit=True)
    options["codemodel"] = "jitdefault"
    options["reloc"] = "static" if x86 else "default"


def _tag(kind):
    """What tells signatures apart: widths and counts, no numbers and no tables of them."""
    from numba import types

    value = getattr(kind, "value", None)
    if value is not None:
        return f"{len(value)}" if isinstance(value, tuple) else type(value).__name__
    if isinstance(kind, types.UniTuple):
        return str(kind.count)
    return "" if kind == types.int64 or isinstance(kind, types.Array) else str(kind)


def _name_functions(emission):
    """Let functions that are no kernels of numba's have names, too, if the package has any."""
    try:
        written = import_module(f"{OURS}.kernels.machine_code")
        make = written._machine_code
    except (ImportError, AttributeError):
        return

    def named(name, kind, write, what):
        with emission.naming(name, _brief(repr(what))):
            return make(name, kind, write, what)

    written._machine_code = named


def _brief(text):
    """The values of a repr without names of classes and fields; the end of many is a digest."""
    values = " ".join(re.findall(r"[\w.-]+(?![\w.-]*[=(])", text))
    digest = blake2b(values.encode(), digest_size=4).hexdigest()
    return values if len(values) <= LONGEST else f"{values[:LONGEST]} .. {digest}"


# What functions are called that modules of kernels write with LLVM's builder.
WRITTEN = {
    "conversions": "shapejit_convert",
    "network_code": "shapejit_shuffle",
    "unit_code": "shapejit_unit",
    "encode_code": "shapejit_encode",
}


def _label(name, types):
    """What a kernel is called in the figures, by its name and numba's types of tags."""
    kernel, *what = name
    if kernel in WRITTEN:
        return f"{WRITTEN[kernel]}({_brief(repr(name.what))})"
    kinds = next(part for part in what if isinstance(part, tuple))
    tags = (kind[1:] if kind[0] == "n" else str(types[kind]) for kind in kinds
            if kind[0] == "n" or kind in types)  # fmt: skip
    return f"{kernel}({', '.join(tags)})"


def built(emission, names):
    """Count all kernels of these names; what fails."""
    objects, failed = import_module(f"{OURS}.builder.objects"), {}
    types = {tag: objects.TYPES[tag] for tag in objects.TAGS}
    for name in names:
        label, start = _label(name, types), process_time()
        try:
            module = objects.optimised(name, "kernel")
        except Exception as fault:  # others are compiled all the same
            failed[label] = f"{type(fault).__name__}: {fault}"
            continue
        seconds = round(process_time() - start, 3)
        emission.rows[label] = emission.figures(module) | {"compile seconds": seconds}
    return failed


def emitted(isa, patterns, everything=False):
    """The figures of all kernels that the cases ask for, by name, and what fails."""
    os.environ |= {"NUMBA_CPU_NAME": isa.cpu, "NUMBA_CPU_FEATURES": isa.features}
    os.environ |= {"NUMBA_NUM_THREADS": "1", "SHAPEJIT_PATIENCE": "0"}
    emission, (place, *_) = Emission(isa), find_spec(OURS).submodule_search_locations
    by_names = Path(place, "builder").is_dir()
    if not by_names:  # an older package, which compiles where it calls
        emission.install()
    else:
        os.environ["SHAPEJIT_TARGET"] = isa.triple
        recording = import_module(f"{OURS}.runtime.kernels").recorded()
        names = recording.__enter__()  # for as long as the process
    spec = spec_from_file_location("tables", Path(__file__).with_name("tables.py"))
    tables = module_from_spec(spec)
    spec.loader.exec_module(tables)
    _name_functions(emission)
    failed = {}
    for suite in tables.suites.SUITES:
        for case in tables.suites.recorded(suite, everything).values():
            if suite in LEFT_OUT or not all(re.search(p, case.id) for p in patterns):
                continue
            try:
                case = tables.sized(case, NBYTES)
                case.ways(tables.measured(), np)[OURS]()
            except Exception as fault:  # others are compiled all the same
                failed[case.id] = f"{type(fault).__name__}: {fault}"
    objects = sum(
        len(files) for _, _, files in os.walk(os.environ.get("NUMBA_CACHE_DIR", os.devnull))
    )
    if by_names:
        # What runs once those are ready that small copies ask for first.
        mover = import_module(f"{OURS}.kernels.small_plans").PLANE_MOVER
        failed |= built(emission, dict.fromkeys((*names, mover)))
        objects = len(emission.rows)
    versions = {name: import_module(name).__version__ for name in ("llvmlite", "numba")}
    return {"kernels": emission.rows, "failed": failed, "versions": versions, "objects": objects}


def main():
    isa, *patterns = (word for word in sys.argv[1:] if word != "--all")
    gc.disable()  # as the builder: a tenth of every compilation
    print(json.dumps(emitted(ISAS[isa], patterns, "--all" in sys.argv)))


if __name__ == "__main__":
    from main_loops import main_loop

    del sys.path[0]  # this folder
    main()
