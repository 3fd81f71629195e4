"""Kernels compiled to object files with one exported symbol, and no undefined ones but `SYMBOLS`.

numba compiles a kernel without wrappers. The native function that calls it is generated here: for
an Entry it takes the address of a table of int64 with all arguments; for a Function its ints; for a
Call it follows CPython's METH_FASTCALL. LLVM drops all code that this function does not use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from llvmlite import binding, ir
from numba import typeof, types
from numba.core import cgutils
from numba.np import arrayobj

from ..kernels import pointers
from ..kernels.compiler import TARGET
from ..kernels.constants import TAGS
from ..kernels.llvm import I64, POINTER, Builder, Value
from ..runtime import object_files, processor
from ..runtime.kernel_names import STARTS, Call, Code, Entry, Function, Name
from ..runtime.loading import PYTHON

# The symbols that object code may import from the process that loads it.
SYMBOLS = frozenset(("memcpy", "memmove", "memset", "usleep", *PYTHON))
# An ndarray as NumPy's C API documents it, in bytes from its beginning (PyArrayObject_fields).
DATA, SHAPE = 16, 32
MACHINE = processor.target_machine()

NUMBA_TYPES: dict[str, Any] = {tag: typeof(value) for tag, value in TAGS.items()} | {
    "i": types.int64,
    "o": types.int64,
    "v": types.int64,
    **pointers.POINTER_TYPES,
    "a": types.Array(types.int64, 1, "C"),
    "t": types.Array(types.int64, 2, "C"),
}


class BuildError(Exception):
    """A kernel that cannot be compiled to an object file of its own."""


def built(name: Name, symbol: str) -> bytes:
    """The object file of a kernel, whose function is called `symbol`."""
    return bytes(MACHINE.emit_object(optimised(name, symbol)))


def optimised(name: Name, symbol: str) -> Any:
    """The LLVM module of a kernel, which exports only `symbol`; numba has optimised its part."""
    if isinstance(name, Code):
        return _alone(_written(name, symbol), symbol)
    module_name, _, function = name.kernel.partition(".")
    dispatcher = getattr(import_module(f"..kernels.{module_name}", __package__), function)
    annotated = dispatcher.py_func.__annotations__.values()
    kinds = tuple(
        annotation if annotation in pointers.POINTER_TYPES else kind
        for kind, annotation in zip(_kinds(name), annotated, strict=False)
    )
    signature = tuple(map(_type_of, kinds))
    dispatcher.compile(signature)
    made = dispatcher.overloads[signature]
    around = ir.Module(symbol)
    _WRITERS[type(name)](around, name, symbol, _calling(made, kinds))
    module = binding.parse_assembly(made.library.get_llvm_str())
    module.link_in(binding.parse_assembly(str(around)))
    return _alone(module, symbol)


def _kinds(name: Any) -> tuple[str, ...]:
    match name:
        case Entry(_, kinds):
            return STARTS + kinds
        case Function(_, ints, tags):
            return ("i",) * ints + tags
        case _:
            return name.kinds  # type: ignore[no-any-return]


def _type_of(kind: str) -> Any:
    """The numba type of an argument."""
    return NUMBA_TYPES[kind]


# Native functions whose words are arguments of the kernel.


def _calling(made: Any, kinds: tuple[str, ...]) -> Callable[[Builder, Iterator[Value]], Value]:
    """A generator of the call of a compiled kernel, whose result is an int64."""

    def call(builder: Builder, words: Iterator[Value]) -> Value:
        context = TARGET.target_context
        given = [_argument(context, builder, kind, words) for kind in kinds]
        convention, kernel = context.call_conv, made.fndesc
        form = convention.get_function_type(kernel.restype, kernel.argtypes)
        function = ir.Function(builder.module, form, kernel.llvm_func_name)
        _, result = convention.call_function(
            builder, function, kernel.restype, kernel.argtypes, given
        )
        if kernel.restype == types.none:
            return ir.Constant(I64, 0)
        if isinstance(result.type, ir.PointerType):
            return builder.ptrtoint(result, I64)
        return result if result.type == I64 else builder.zext(result, I64)

    return call


def _argument(context: Any, builder: Builder, kind: str, words: Iterator[Value]) -> Value:
    form = _type_of(kind)
    if form == types.int64:
        return next(words)
    if kind in pointers.POINTER_TYPES:
        word = next(words)
        pointer = isinstance(word.type, ir.PointerType)
        return word if pointer else pointers.of_number(builder, word, form)
    if not isinstance(form, types.Array):
        return context.get_constant_null(form)
    data, shape = next(words), [next(words) for _ in range(form.ndim)]
    itemsize = ir.Constant(I64, 8)
    strides = [itemsize] if form.ndim == 1 else [builder.mul(itemsize, shape[1]), itemsize]
    array = arrayobj.make_array(form)(context, builder)
    place = builder.inttoptr(data, I64.as_pointer())
    arrayobj.populate_array(
        array, data=place, shape=shape, strides=strides, itemsize=itemsize, meminfo=None
    )
    return array._getvalue()


def _entry(module: Any, name: Entry, symbol: str, call: Any) -> None:
    """`int64 symbol(int64 table)`."""
    function = ir.Function(module, ir.FunctionType(I64, [I64]), symbol)
    builder = ir.IRBuilder(function.append_basic_block())
    table = builder.inttoptr(function.args[0], I64.as_pointer())

    def words() -> Iterator[Value]:
        at = 0
        while True:
            yield builder.load(builder.gep(table, [ir.Constant(I64, at)]))
            at += 1

    builder.ret(call(builder, words()))


def _function(module: Any, name: Function, symbol: str, call: Any) -> None:
    """`int64 symbol(int64, ...)`."""
    function = ir.Function(module, ir.FunctionType(I64, [I64] * name.ints), symbol)
    builder = ir.IRBuilder(function.append_basic_block())
    builder.ret(call(builder, iter(function.args)))


def _fastcall(module: Any, name: Call, symbol: str, call: Any) -> None:
    """`PyObject *symbol(PyObject *self, PyObject **arguments, Py_ssize_t count)`."""
    function = ir.Function(module, ir.FunctionType(POINTER, [POINTER, POINTER, I64]), symbol)
    builder = ir.IRBuilder(function.append_basic_block())

    def python(function_name: str, returns: Any, *given: Any) -> Value:
        kind = ir.FunctionType(returns, [value.type for value in given])
        found = cgutils.get_or_insert_function(module, kind, function_name)
        return builder.call(found, given)

    def field(address: Value, offset: int) -> Value:
        place = builder.gep(builder.inttoptr(address, POINTER), [ir.Constant(I64, offset)])
        return builder.load(builder.bitcast(place, I64.as_pointer()))

    objects = builder.bitcast(function.args[1], I64.as_pointer())
    words = []
    for k, kind in enumerate(name.kinds):
        if kind == "v":
            words.append(function.args[1])
            continue
        given = builder.load(builder.gep(objects, [ir.Constant(I64, k)]))
        if kind == "i":
            words.append(python("PyLong_AsLongLong", I64, builder.inttoptr(given, POINTER)))
        elif kind == "o":
            words.append(given)
        elif kind in ("a", "t"):
            sizes = field(given, SHAPE)
            words.append(field(given, DATA))
            words += [field(sizes, 8 * axis) for axis in range(1 + (kind == "t"))]
    state = None if name.held else python("PyEval_SaveThread", POINTER)
    result = call(builder, iter(words))
    if state is not None:
        python("PyEval_RestoreThread", ir.VoidType(), state)
    if name.returns == "o":
        builder.ret(builder.inttoptr(result, POINTER))
        return
    made = "PyLong_FromLongLong" if name.returns == "i" else "PyBool_FromLong"
    builder.ret(python(made, POINTER, result))


_WRITERS: dict[type, Callable[..., None]] = {Entry: _entry, Function: _function, Call: _fastcall}


# Code that no numba function stands for, and objects.


def _written(name: Code, symbol: str) -> Any:
    """The module of a function that is written with LLVM's builder."""
    writer = import_module(f"..kernels.{name.writer}", __package__)
    module = TARGET.target_context.create_module(symbol)
    function = ir.Function(module, writer.SIGNATURE, symbol)
    writer.write(function, name.what)
    return binding.parse_assembly(str(module))


def _alone(module: Any, symbol: str) -> Any:
    """A module in which all but `symbol` is internal, and unused code is dropped."""
    for one in (*module.functions, *module.global_variables):
        if not one.is_declaration and one.name != symbol:
            one.linkage = "internal"
    passes = binding.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    options = binding.create_pipeline_tuning_options()
    passes.run(module, binding.create_pass_builder(MACHINE, options))
    asked = {one.name for one in module.functions if one.is_declaration}
    unknown = {name for name in asked - SYMBOLS if not name.startswith("llvm.")}
    if unknown:
        raise BuildError(f"it asks for {', '.join(sorted(unknown))}, which a kernel may not call")
    return module


def kept(name: Name) -> bytes | None:
    """Build a kernel that is not on disk; return None, or the code if there is no folder.

    If several processes request one kernel, one of them builds it.
    """
    label = object_files.symbol(name)
    with object_files.claimed(label):
        if object_files.is_kept(name):
            return None
        code = built(name, label)
        return None if object_files.write(name, code) else code
