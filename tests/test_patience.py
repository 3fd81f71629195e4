"""Small work is NumPy's until kernels are worth a compilation; the results do not tell which."""

import os
import subprocess
import sys
from math import prod

import numpy as np
import pytest
from compiled import COMPILED
from hypothesis import given, strategies as st

from shapejit import few
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
        patched.setattr(few, "MOST", data.draw(st.sampled_from([1, 7, few.MOST])))
        few.copy(8 * address_of(source), seen, 8 * address_of(target), into)
    wanted = bits_of(source, seen)
    assert bits_of(target, into) == wanted
    changed = np.unpackbits(before ^ target, bitorder="little")
    own = np.zeros(8 * nbytes, bool)
    for index in np.ndindex(*shape):
        at = into.offset + sum(i * s for i, s in zip(index, into.strides, strict=True))
        own[at : at + wider] = True
    assert not changed[~own].any()
    assert len(wanted) == prod(shape)


# What small work there is; it is done by NumPy first, and then by kernels.
WORK = """
import sys, numpy as np, ml_dtypes as ml, numba, shapejit as sj
from shapejit import few, patience
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
    yield sj.repack(raw[:60], shape=(10, 12), dtype="uint4", source="lsb", target="msb")
    yield from sj.reshape_batch([floats[:, :k].T for k in range(40)], -1)
    turned = sj.plan((4, 5), "int4", lambda t: t.T)
    yield turned.map([tensor("int4")[:4, k : k + 5] for k in range(40)])[3].tobytes()
    scheme = sj.schemes["gguf:q8_0"]
    yield scheme.decode(scheme.encode(np.ones((2, 32), np.float32))).tobytes()
def results():
    return [x if isinstance(x, bytes) else (x.dtype, x.shape, x.tobytes()) for x in work()]
"""

SAME = """
with patience.none(): compiled = results()
assert len(plain) == len(compiled)
for k, (a, b) in enumerate(zip(plain, compiled)): assert a == b, k
"""

NONE_COMPILED = """
compiled = []
from numba.core import event
class Listener(event.Listener):
    def on_start(self, event): compiled.append(event.data["dispatcher"].py_func.__name__)
    def on_end(self, event): pass
listener = Listener()
event.register("numba:compile", listener)
few.MOST = 500
plain = results()
assert not compiled, compiled
event.unregister("numba:compile", listener)
"""


def run(code, **environment):
    command = [sys.executable, "-c", code]
    environment = {**os.environ, "SHAPEJIT_PATIENCE": "1e9", **environment}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stderr


def test_small_work_waits_for_no_compiler(tmp_path):
    assert run(WORK + NONE_COMPILED, NUMBA_CACHE_DIR=str(tmp_path)) == (0, "")


def test_kernels_make_what_numpy_makes():
    assert run(WORK + "plain = results()" + SAME) == (0, "")


def test_kernels_that_are_on_disk_are_used_at_once(tmp_path):
    """And many small copies are worth a compilation, once."""
    code = """
import numba, numpy as np, shapejit as sj, sys
t = sj.Tensor.frombuffer(bytes(range(15)), "int4", (5, 6)).T
from shapejit.runtime import compilation
for _ in range(int(sys.argv[1])): t.ascontiguous()
used = "shapejit.kernels.codes" in sys.modules
assert used == (sys.argv[2] == "kernels"), used
"""
    for calls, patience, wanted in (
        (3, "1", "numpy"),
        (90, "0.002", "kernels"),
        (1, "1", "kernels"),
    ):
        command = [sys.executable, "-c", code, str(calls), wanted]
        environment = {
            **os.environ,
            "SHAPEJIT_PATIENCE": patience,
            "NUMBA_CACHE_DIR": str(tmp_path),
        }
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")


def test_a_patience_that_is_no_number_is_refused():
    _, errors = run("import shapejit as sj, numpy as np; sj.pack(np.zeros(3, np.uint8), 'int4')",
                    SHAPEJIT_PATIENCE="long")  # fmt: skip
    assert "FormatError: SHAPEJIT_PATIENCE is a number of seconds, not 'long'" in errors
