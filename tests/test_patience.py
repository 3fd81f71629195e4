"""NumPy works until kernels are ready; the results do not depend on it."""

import gc
import os
import subprocess
import sys
from math import prod

import numpy as np
import pytest
from compiled import COMPILED
from hypothesis import given, strategies as st

import shapejit as sj
from shapejit.engine import copying, numpy_fallback, patience, routes
from shapejit.engine.addresses import layout_of
from shapejit.engine.converting import cast_conversion
from shapejit.engine.execution import work_of
from shapejit.kernels.plain_conversions import converted
from shapejit.planning import planner
from shapejit.runtime import kernels
from shapejit.runtime.launches import address_of
from shapejit.shapes.layout import Layout

pytestmark = pytest.mark.skipif(not COMPILED, reason="nothing is compiled with the JIT off")


def bits_of(memory, layout):
    """The elements as ints, bit by bit."""
    stream = np.unpackbits(memory, bitorder="little")
    codes = []
    for index in np.ndindex(*layout.shape):
        at = layout.offset + sum(i * s for i, s in zip(index, layout.strides, strict=True))
        codes.append(sum(int(b) << k for k, b in enumerate(stream[at : at + layout.bits])))
    return codes


@st.composite
def placed(draw, shape, bits, memory):
    """A Layout of a shape within so many bytes, no two of whose elements share a bit."""
    order = draw(st.permutations(range(len(shape))))
    strides, step = [0] * len(shape), bits
    for axis in order:
        step += draw(st.sampled_from([0, 0, 1, 8]))
        strides[axis] = step * draw(st.sampled_from([1, -1]))
        step *= shape[axis]
    low = -sum(min(0, (n - 1) * s) for n, s in zip(shape, strides, strict=True))
    offset = low + draw(st.integers(0, 9))
    layout = Layout.of(shape, strides, offset, bits)
    assert layout.span[1] <= 8 * memory
    return layout


@given(st.data())
def test_few_elements_are_copied_bit_by_bit(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 4), max_size=4)))
    bits = data.draw(st.sampled_from([1, 2, 3, 4, 6, 8, 16, 32, 128]))
    wider = data.draw(st.sampled_from([bits, max(bits, 8)]))
    nbytes = 64 * 4**4
    source = np.random.default_rng(0).integers(0, 256, nbytes, np.uint8)
    target = np.random.default_rng(1).integers(0, 256, nbytes, np.uint8)
    seen = data.draw(placed(shape, bits, nbytes))
    into = data.draw(placed(shape, wider, nbytes))
    before = target.copy()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            numpy_fallback, "MOST", data.draw(st.sampled_from([1, 7, numpy_fallback.MOST]))
        )
        numpy_fallback.copy([8 * address_of(source)], seen, [8 * address_of(target)], into)
    wanted = bits_of(source, seen)
    assert bits_of(target, into) == wanted
    changed = np.unpackbits(before ^ target, bitorder="little")
    own = np.zeros(8 * nbytes, bool)
    for index in np.ndindex(*shape):
        at = into.offset + sum(i * s for i, s in zip(index, into.strides, strict=True))
        own[at : at + wider] = True
    assert not changed[~own].any()
    assert len(wanted) == prod(shape)


ASSIGNED = """float16 float32, float16 float64, float32 float16, float32 float64, float32 bfloat16,
float64 float16, float64 float32, bfloat16 float32, bfloat16 float64, int16 float32, int16 int8"""


@pytest.mark.parametrize(("source", "target"), [pair.split() for pair in ASSIGNED.split(",")])
def test_what_assignment_converts_is_what_kernels_compute(source, target):
    made = cast_conversion(sj.dtype(source), sj.dtype(target))
    move, kind = numpy_fallback.arithmetic(made).do, sj.dtype(source).numpy
    wide = 8 * kind.itemsize
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 1 << wide, 1 << 18, f"u{kind.itemsize}", endpoint=False)
    if wide == 16:
        codes = np.arange(1 << 16, dtype=np.uint16)
    elif wide == 32:  # what lies at and beside halves, infinities, and NaNs
        halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
        codes = np.concatenate(
            [codes, *(halves.view(np.uint32) + np.uint32(k) for k in (0, 1, 4096))]
        )
        codes = np.concatenate([codes, 0x7F800001 + np.arange(3, dtype=np.uint32)])
    made_by_numpy = np.empty(codes.shape, sj.dtype(target).numpy)
    move(codes.view(kind), made_by_numpy)
    wanted = converted(codes, made).astype(f"u{made_by_numpy.itemsize}")
    assert np.array_equal(made_by_numpy.view(wanted.dtype), wanted)


# What small work there is; it is done by NumPy first, and then by kernels.
WORK = """
import sys, threading, numpy as np, ml_dtypes as ml, shapejit as sj
from shapejit.engine import copying, numpy_fallback, patience, routes
from shapejit.engine.addresses import layout_of
rng = np.random.default_rng(0)
raw = rng.integers(0, 256, 60 * 70 * 16, np.uint8)
def array(name): return raw.view(name)[: 60 * 70].reshape(60, 70)
def tensor(name):
    return sj.Tensor.frombuffer(raw[: sj.dtype(name).nbytes(60 * 70)], name, (60, 70))
floats = array("float32")
def work():
    for name in ("uint8", "float32"):
        x = array(name)
        yield sj.ascontiguous(x.T)
        yield sj.ascontiguous(x[::-1, 3::2])
        yield sj.concat([x.T, x.T[:, 1:]], axis=1)
        yield sj.stack([x, x], axis=-1)
        yield sj.plan(x.shape, name, lambda t: t.T)(x)
    for name in ("uint3", "int4"):
        t = tensor(name)
        for seen in (t.T, t[1:, ::-1], t[:, 1::3], t[3:, 5:].T):
            yield seen.ascontiguous().tobytes()
            yield seen.unpack()
            yield sj.reshape(seen, -1, copy=True).tobytes()
        yield sj.concat([t[:, :5].T, t[:, 1:3].T], axis=0).tobytes()
        yield sj.pack(raw[:420].reshape(20, 21).T & 7, name).tobytes()
    for name in ("bfloat16", "float8_e5m2", "int8"):
        yield sj.cast(floats.T, name)
        yield sj.cast(sj.cast(floats, name)[::-1], "float32")
    for name in ("int4",):
        yield sj.cast(sj.asarray(floats).T, name).tobytes()
        yield sj.cast(tensor(name)[1:, ::-1], "bfloat16").tobytes()
        scale = np.linspace(0.5, 2, 60 * 14, dtype=np.float32).reshape(60, 14)
        yield sj.dequantize(tensor(name), scale, block_shape=(1, 5)).tobytes()
        yield sj.quantize(sj.asarray(floats), scale, dtype=name, block_shape=(1, 5)).tobytes()
    yield sj.cast(array("complex64"), "complex128")
    yield sj.cast(array("float64"), "bfloat16")
    yield sj.cast(array("float64").T, "int32")
    yield sj.repack(raw[:60], shape=(10, 12), dtype="uint4", source="lsb", target="msb")
    words = {"dtype": "int4", "source": "lsb", "target": "compressed-tensors"}  # adds 8
    yield sj.repack(raw[:65536], shape=(128, 1024), **words)
    yield from sj.reshape_batch([floats[:, :k].T for k in range(40)], -1)
    turned = sj.plan((4, 5), "int4", lambda t: t.T)
    yield turned.map([tensor("int4")[:4, k : k + 5] for k in range(40)])[3].tobytes()
    scheme = sj.schemes["gguf:q8_0"]
    yield scheme.decode(scheme.encode(np.ones((2, 32), np.float32))).tobytes()
def results():
    return [x if isinstance(x, bytes) else (x.dtype, x.shape, x.tobytes()) for x in work()]
"""

BY_NUMPY = """
import time
numpy_fallback.MOST = 500
patience.LOOKED_FOR = 0  # however long it takes
plain = results()
def states(): return {kernel.state for kernel in sj.kernel_status().values()}
while not states(): time.sleep(0.01)  # another thread looks
assert states() == {"missing"}
assert not {"numba", "shapejit.builder.objects"} & sys.modules.keys()
assert "shapejit-builder" not in [thread.name for thread in threading.enumerate()]
"""

# Outputs of batches are checked before one is written, also where NumPy writes them.
BATCH_OUTPUTS = """
import numpy as np, pytest, shapejit as sj
xs = [np.arange(k, k + 6, dtype=np.int16).reshape(2, 3) for k in range(4)]
wanted = [x.T.reshape(-1).tolist() for x in xs]
sources = [x.T for x in xs]
own = [np.zeros(6, np.int16) for _ in xs]
slab = np.zeros((4, 6), np.int16)
for outs in (own, list(slab), list(slab[::-1])):
    assert sj.reshape_batch(sources, (-1,), out=outs) is outs
    assert [into.tolist() for into in outs] == wanted
keyed = dict(zip("abcd", [np.zeros((3, 2), np.int16) for _ in xs]))
shapes = {k: (3, -1) for k in "abcd"}
assert sj.reshape_batch(dict(zip("abcd", sources)), shapes, out=keyed) is keyed
assert [into.reshape(-1).tolist() for into in keyed.values()] == wanted
fixed, wide = np.zeros(6, np.int16), np.zeros(12, np.int16)
fixed.flags.writeable = False
slab[:] = 0
wrong = (
    [*slab[:3], np.zeros(6, np.uint16)], [*slab[:3], np.zeros(5, np.int16)], [*slab[:3], fixed],
    [*slab[:3], np.zeros((6, 1), np.int16)], [*slab[:3], wide[::2]], [*slab[:3], slab[2]],
    [*slab[:2], slab.reshape(-1)[15:21], slab[3]], [*slab[:3], xs[0].reshape(-1)], list(slab[:3]),
)
for outs in wrong:
    with pytest.raises(sj.ShapeJitError): sj.reshape_batch(sources, (-1,), out=outs)
    assert not slab.any()
lent = sj.asarray(slab).numpy()
with pytest.raises(sj.ShapeJitError): sj.reshape_batch(list(slab), (-1,), out=list(lent))
class Mute(np.ndarray):
    def __setitem__(self, *_): pass
strided = np.lib.stride_tricks.as_strided
for shape in ((4, 5), (40, 30)):
    for count in (3, 40):
        many, made = [np.ones(shape, np.float32)] * count, (shape[0], 1, shape[1])
        outs = [np.zeros(made, np.float32) for _ in range(count)]
        steps = 4 * shape[1], 999, 4
        outs[1:3] = [strided(x, made, steps) for x in outs[1:3]]
        outs[-1] = outs[-1].view(Mute)
        sj.reshape_batch(many, made, out=outs)
        assert all(np.asarray(x).all() for x in outs)
for shapes in ((4,), (-1, -1), (-2, 3), (True, 6), [(6,)] * 3):
    with pytest.raises(sj.ShapeJitError): sj.reshape_batch(sources, shapes)
"""


@pytest.mark.parametrize("patience", ["inf", "0"])
def test_outputs_of_batches_are_checked_before_one_is_written(patience, tmp_path):
    folder = tmp_path if patience == "inf" else os.environ.get("NUMBA_CACHE_DIR", tmp_path)
    assert run(BATCH_OUTPUTS, folder, patience) == (0, "")


BY_KERNELS = """
with patience.force_kernels(): compiled = results()
assert {kernel.state for kernel in sj.kernel_status().values()} == {"ready"}
assert len(plain) == len(compiled)
for k, (a, b) in enumerate(zip(plain, compiled)): assert a == b, k
"""

# A small copy of a kind of its own, and what became of the kernels that it takes. Each takes NumPy
# `step` seconds by the clock that is looked at.
SMALL = """
import time, numpy as np, shapejit as sj
from shapejit.engine import calls, patience
now, step = 0.0, 0.001
def clock():
    global now
    now += step
    return now
patience.perf_counter = calls.perf_counter = clock
def small(name):
    nbytes = sj.dtype(name).nbytes(30)
    return sj.Tensor.frombuffer(bytes(range(nbytes)), name, (5, 6)).T
t, other = small("int4"), small("uint3")
def states(): return {kernel.state for kernel in sj.kernel_status().values()}
def copies(count):
    for _ in range(count): t.ascontiguous()
def copies_until(state):
    global step
    before, step = step, 0.0
    while state not in states():
        copies(1)
        time.sleep(0.001)  # other threads load and build
    step = before
"""


def run(code, folder, patience="inf"):
    command = [sys.executable, "-c", code]
    own = {"SHAPEJIT_PATIENCE": patience, "NUMBA_CACHE_DIR": str(folder)}
    done = subprocess.run(
        command, env={**os.environ, **own}, capture_output=True, text=True, timeout=600
    )
    return done.returncode, done.stderr


def test_numpy_does_all_work_for_whoever_has_infinite_patience(tmp_path):
    assert run(WORK + BY_NUMPY, tmp_path) == (0, "")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_kernels_make_what_numpy_makes(tmp_path):
    # Those that other tests have built are there; NumPy works before they are looked for.
    folder = os.environ.get("NUMBA_CACHE_DIR", tmp_path)
    plain = "patience.LOOKED_FOR = float('inf'); plain = results()"
    assert run(WORK + plain + BY_KERNELS, folder) == (0, "")


def test_many_small_copies_are_worth_a_kernel_and_find_it_on_disk_later(tmp_path):
    code = """
copies(3)
copies_until("missing")
copies(40)
assert states() == {"missing"}
copies(10)
assert states() <= {"asked for", "ready"}
copies_until("ready")
"""
    assert run(SMALL + code, tmp_path, "0.05") == (0, "")
    assert run(SMALL + "copies(3); copies_until('ready')", tmp_path) == (0, "")


def test_each_kind_of_work_is_asked_for_when_it_has_taken_long_itself(tmp_path):
    code = """
other.ascontiguous()
copies(60)
assert states() <= {"asked for", "ready"}
before = set(sj.kernel_status())
other.ascontiguous()
assert set(sj.kernel_status()) == before
"""
    assert run(SMALL + code, tmp_path, "0.05") == (0, "")


def test_time_between_calls_does_not_count(tmp_path):
    code = """
for _ in range(40):
    copies(1)
    now += 0.1
assert states() <= {"missing"}
"""
    assert run(SMALL + code, tmp_path, "0.05") == (0, "")


@pytest.mark.parametrize("given", ["long", "", "-1", "nan"])
def test_a_patience_that_is_no_number_of_seconds_is_refused(given, tmp_path):
    code = "import shapejit as sj, numpy as np; sj.pack(np.zeros(3, np.uint8), 'int4')"
    _, errors = run(code, tmp_path, given)
    said = (
        f"FormatError: SHAPEJIT_PATIENCE is a number of seconds, at least 0 or inf, not {given!r}"
    )
    assert said in errors


@pytest.mark.parametrize(
    "call",
    ["sj.cast(x, 'bfloat16')", "sj.cast(x, 'int8')", "program(x)", "sj.onnx.cast(x, to=3)"],
)
def test_small_calls_of_one_operation_alone_come_to_be_compiled(call, tmp_path):
    code = f"""
x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
program = sj.plan(x.shape, x.dtype, lambda t: t.permute_dims((2, 0, 1)).ascontiguous())
def found(): return [s for name, s in sj.kernel_status().items() if "run_route" in name]
end = time.monotonic() + 200
while [kernel.state for kernel in found()] != ["ready"]:
    assert time.monotonic() < end, sj.kernel_status()
    made = {call}
"""
    folder = os.environ.get("NUMBA_CACHE_DIR", tmp_path)
    assert run(SMALL + code, folder, "0.02") == (0, "")


def test_kernels_that_are_loaded_while_the_interpreter_ends_stay_without_a_word(tmp_path):
    folder = os.environ.get("NUMBA_CACHE_DIR", tmp_path)
    code = """
import atexit, numpy as np, shapejit as sj
def late():
    assert (sj.cast(np.ones((300, 300), np.float32), "bfloat16") == 1).all()
    assert "ready" in {kernel.state for kernel in sj.kernel_status().values()}
"""
    assert run(code + "late()", folder, "0") == (0, "")  # now they are on disk
    assert run(code + "atexit.register(late)", folder, "0") == (0, "")


def test_a_kernel_that_becomes_ready_within_a_call_is_used_by_the_next(monkeypatch):
    answers = iter([False])
    x = np.arange(77 * 41, dtype=np.int32).reshape(77, 41).T
    target = np.empty(x.shape, x.dtype)
    monkeypatch.setattr(patience.Kind, "kernels_ready", lambda kind, needs: next(answers, True))
    copying.copy(x, target, False)
    np.testing.assert_array_equal(target, x)


@pytest.mark.parametrize("kind", ["uint8", "int4"])
def test_while_a_network_is_compiled_the_kernels_of_another_plan_work(kind, monkeypatch):
    codes = np.random.default_rng(5).integers(0, 8, (160, 200, 40, 5), np.uint8)
    x = sj.permute_dims(sj.cast(codes, kind), (0, 3, 1, 2))
    layout = x.layout if isinstance(x, sj.Tensor) else layout_of(x)
    other = planner.plan(layout, count=2, networks=False)
    assert kernels.wait(work_of(other).launch.names)
    ready = patience.Kind.kernels_ready

    def but_networks(kind, needs):
        return "network_generator" not in str(needs()) and ready(kind, needs)

    def by_numpy(*_):
        raise AssertionError("NumPy should not copy this")

    monkeypatch.setattr(patience.Kind, "kernels_ready", but_networks)
    monkeypatch.setattr(routes, "patience", lambda: 0.0)
    monkeypatch.setattr(numpy_fallback, "copy", by_numpy)
    monkeypatch.setattr(copying, "assign", by_numpy)
    for _ in range(3):
        made = sj.reshape(x, tuple(x.shape), copy=True)
    monkeypatch.undo()
    moved = np.asarray(sj.cast(made, "uint8"))
    np.testing.assert_array_equal(moved, codes.transpose(0, 3, 1, 2))


def test_scales_live_as_long_as_calls_that_compiled_code_repeats():
    """They are copied for later calls; NumPy's work in between replaces what did the last one."""
    x = np.arange(256, dtype=np.int64).astype(np.int8).reshape(16, 16)
    scale = (np.arange(16) + 1).astype(np.float32).reshape(16, 1)
    want = x.astype(np.float32) * scale
    with patience.force_kernels():
        for _ in range(3):
            assert (sj.dequantize(x, scale) == want).all()
    with patience.force_numpy():
        assert (sj.dequantize(x, scale) == want).all()
    gc.collect()
    others = []
    for k in range(200):
        others += [np.full(16, k, np.float32), np.full((16, 1), 7, np.float32)]
        assert (sj.dequantize(x, scale) == want).all()


SCALES = [
    np.float32(0.3),
    np.float32([[1e38], [3], [0]]),
    np.float64([[0.1] * 4]),
    np.float32(np.nan),
]


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64"])
@pytest.mark.parametrize("scale", SCALES, ids=range(len(SCALES)))
@pytest.mark.parametrize("zero", [None, 3, 2.5])
def test_small_codes_that_numpy_scales_again_have_the_bits_of_kernels(kind, scale, zero):
    info = np.iinfo(kind)
    codes = np.array([[info.min, 1, 2, 3], [4, 5, 6, 7], [8, 9, info.max - 1, info.max]], kind)
    results = {}
    for by in (patience.force_numpy, patience.force_kernels):
        with by():
            for _ in range(3):
                for x in (codes, codes.T.copy().T):
                    made = sj.dequantize(x, scale, zero_point=zero)
                    results.setdefault((made.dtype, made.tobytes()), by)
    assert len(results) == 1


@pytest.mark.parametrize("kind", ["int8", "uint16", "int32", "int4", "float8_e5m2"])
@pytest.mark.parametrize("scale", [np.float32(0.3), np.float32([[1e-38], [3], [-1]])], ids=range(2))
@pytest.mark.parametrize("zero", [None, 3, 2.5])
def test_small_floats_that_numpy_quantises_again_have_the_bits_of_kernels(kind, scale, zero):
    x = np.array([[0.5, -np.nan, np.inf, -np.inf], [1.5, 2.5, 1e9, -0.0], [3.3, -7, 99, -300]])
    results = {}
    for by in (patience.force_numpy, patience.force_kernels):
        with by():
            for source in ("float32", "float64"):
                for given in (x.astype(source), x.astype(source).T.copy().T):
                    for _ in range(3):
                        made = sj.quantize(given, scale, dtype=kind, zero_point=zero)
                        assert made.shape == x.shape
                        results.setdefault((source, made.tobytes()), by)
    assert len(results) == 2
