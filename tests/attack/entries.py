"""The compiled entry point of small calls: arrays of kinds that it knows, and lookalikes."""

import threading

import ml_dtypes
import numpy as np
from numpy.lib.stride_tricks import as_strided

import shapejit as sj

from .hostile import REFUSED, tried
from .pretenders import liar

DTYPES = [np.float32, np.int8, ml_dtypes.bfloat16, np.complex128, ">i4", "V5", object, "U3"]


def case(random):
    random.choice(CASES)(random)


def source(random):
    """An array of few elements: backwards, repeated, of 64 dims, of huge strides."""
    dtype = np.dtype(random.choice(DTYPES))
    shape = [random.choice([0, 1, 2, 3, 5, 8, 17]) for _ in range(random.choice([0, 1, 2, 3, 4]))]
    codes = np.frombuffer(random.randbytes(int(np.prod(shape)) * 16), np.uint8)
    if dtype.kind in "OU":
        x = np.array([str(n) for n in codes[::16]], object).astype(dtype).reshape(shape)
    else:
        x = codes[: int(np.prod(shape)) * dtype.itemsize].copy().view(dtype).reshape(shape)
    x = x.transpose(random.sample(range(x.ndim), x.ndim))
    x = x[(*(slice(None, None, random.choice([1, 1, -1, 2])) for _ in shape), ...)]
    more = random.choice(["", "", "dims", "repeated", "huge"])
    if more == "dims":
        x = x.reshape(x.shape + (1,) * (64 - x.ndim))
    elif more == "repeated":
        x = np.broadcast_to(x, (3, *x.shape))
    elif more == "huge" and not dtype.hasobject:
        x = as_strided(x, (1, *x.shape), (random.choice([2**62, -(2**62), 1]), *x.strides))
    return x


def calls(x):
    """The calls that enter through compiled code: what they do to an array like this one."""
    flat = x.shape if x.ndim < 64 else (1,) * (63 - 4) + x.shape[:4]
    found = {
        "ascontiguous": (lambda x, out: sj.ascontiguous(x, out=out), x.dtype, x.shape),
        "reshape": (lambda x, out: sj.reshape(x, -1, copy=True, out=out), x.dtype, (x.size,)),
        "reshape to a shape": (
            lambda x, out: sj.reshape(x, flat, copy=True, out=out), x.dtype, flat),
    }  # fmt: skip
    if x.dtype in (np.float32, np.int8, ml_dtypes.bfloat16):
        found["cast"] = lambda x, out: sj.cast(x, "float64", out=out), np.dtype("f8"), x.shape
        program = sj.plan(x.shape, x.dtype, lambda t: t.flip().ascontiguous())
        found["program"] = program_call(program), x.dtype, x.shape
    if x.ndim < 64:
        found["stack"] = lambda x, out: sj.stack([x, x], out=out), x.dtype, (2, *x.shape)
    if x.ndim < 64 and x.dtype in (np.float32, np.int8):
        found["stack of two dtypes"] = (
            lambda x, out: sj.stack([x, np.asarray(x).astype("f8")], out=out),
            np.dtype("f8"), (2, *x.shape),
        )  # fmt: skip
    return found


def program_call(program):
    return lambda x, out: program(x, out=out)


def wanted(name, x, dtype, shape):
    x = np.flip(x) if name == "program" and x.ndim else x
    x = np.stack([x, x]) if name.startswith("stack") else x
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(x).astype(dtype).reshape(shape)


def known(random):
    """A source, and a call that has met its kind."""
    x = source(random)
    name, (call, dtype, shape) = random.choice(list(calls(x).items()))
    expected = wanted(name, x, dtype, shape)
    for _ in range(4):
        out = np.empty(shape, dtype)
        made = tried(lambda: call(x, out))  # noqa: B023  # called at once
        if made is not REFUSED:
            assert made is out
            same(out, expected)
        made = tried(lambda: call(x, None))
        if made is not REFUSED:
            same(made, expected)
    return x, call, expected, made is REFUSED


def same(made, expected):
    assert (made.dtype, made.shape) == (expected.dtype, expected.shape)
    if expected.dtype.hasobject:
        assert made.tolist() == expected.tolist()
    else:
        assert made.tobytes() == expected.tobytes()


def outs(random):
    """Outputs that do not fit: refused, and left as they are."""
    x, call, expected, _ = known(random)
    memory = np.zeros(expected.nbytes + 64, np.uint8)
    fit = np.zeros(expected.shape, expected.dtype)
    wrong = [
        np.zeros((*expected.shape, 2)[-63:], expected.dtype),
        np.zeros(expected.shape, "V7"),
        np.zeros(expected.shape, fit.dtype.newbyteorder()) if fit.dtype.kind in "f" else 3,
        np.broadcast_to(np.zeros((), expected.dtype), expected.shape) if fit.size > 1 else None,
        fit[..., ::-1] if fit.size and fit.ndim and fit.shape[-1] > 1 else "out",
        [], 3, memory, memory.data, fit.tolist(), type(fit), np.ma.array(fit),
    ]  # fmt: skip
    fit.flags.writeable = False
    for out in [*random.sample(wrong, 4), fit]:
        if out is None:
            continue
        before = fit.tobytes() if not fit.dtype.hasobject else b""
        assert tried(lambda: call(x, out)) is REFUSED, f"out= is {out!r}"  # noqa: B023
        assert fit.dtype.hasobject or fit.tobytes() == before


def overlaps(random):
    """An output that shares bytes with the source is refused, one beside it is filled."""
    n = random.choice([2, 3, 4, 8])
    memory = np.frombuffer(bytearray(random.randbytes(4 * n * n * 4)), np.float32)
    x = memory[n * n : 2 * n * n].reshape(n, n).T
    for _ in range(4):
        sj.ascontiguous(x, out=np.empty((n, n), np.float32))
    begin = random.randrange(3 * n * n)
    out = memory[begin : begin + n * n].reshape(n, n)
    before, expected = memory.tobytes(), x.tobytes()
    apart = begin + n * n <= n * n or begin >= 2 * n * n
    made = tried(lambda: sj.ascontiguous(x, out=out))
    assert (made is out) == apart
    assert out.tobytes() == expected if apart else memory.tobytes() == before


def subclasses(random):
    """Arrays that say something else of themselves, as sources and as outputs."""
    x, call, expected, refused = known(random)
    if refused:
        return
    made = tried(lambda: call(liar(random, x), None))
    if made is not REFUSED:
        same(np.asarray(made), expected)
    out = np.zeros(expected.shape, expected.dtype)
    if tried(lambda: call(x, liar(random, out))) is not REFUSED:
        same(out, expected)


def threads(random):
    """Another thread changes the shape of the array, and drops all others, while calls run."""
    x = np.arange(24, dtype=np.float32)
    end = threading.Event()
    shapes = [(2, 12), (4, 6), (24,), (6, 4), (1, 2, 3, 4)]

    def change():
        while not end.is_set():
            x.shape = shapes[len(dropped) % 5]
            dropped[:] = [x.reshape(4, 6).T for _ in range(len(dropped) % 7 + 1)]

    dropped = []
    thread = threading.Thread(target=change)
    thread.start()
    out, wide = np.empty((6, 4), np.float32), np.arange(24.0).reshape(4, 6)
    try:
        for _ in range(300):
            for call in (
                lambda: sj.ascontiguous(x, out=out),
                lambda: sj.reshape(x, -1, copy=True),
                lambda: sj.cast(x, "float64"),
                lambda: [sj.ascontiguous(y) for y in dropped],
                lambda: list(sj.stack([x, x])),
                lambda: list(sj.stack([x, wide, x], axis=0)),
            ):
                made = tried(call)
                for one in made if isinstance(made, list) else [made]:
                    assert one is REFUSED or sorted(one.reshape(-1).tolist()) == list(range(24))
    finally:
        end.set()
        thread.join()


CASES = [outs, overlaps, subclasses, known]
