"""Packed tensors against an exhaustive oracle: codes, a byte an element, moved by NumPy.

Every element is unpacked to a byte, NumPy does what was asked, and the bytes are
packed again, one bit at a time. Buffers have bytes beside them that must stay as
they are, and dirt in every bit that means nothing.
"""

import ctypes  # noqa: F401 (for scripts)
import os
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import permutations, product
from math import prod
from pathlib import Path
from typing import NamedTuple

import loops
import numpy as np
import pytest
from compiled import COMPILED
from guarded import guard_stages, guarded  # noqa: F401 (for scripts)
from hypothesis import HealthCheck, given, settings, strategies as st
from views import dirt, packed_bytes, shape_of, step_of, stepped, tensor_stepped

import shapejit as sj
from shapejit.arrays import elements
from shapejit.engine import patience
from shapejit.kernels.constants import BIT_COLUMNS, per_byte
from shapejit.planning import planner
from shapejit.planning.strategies import Strategy
from shapejit.planning.tables import BIT_ROW
from shapejit.shapes.layout import Layout

WIDTHS = {1: "uint1", 2: "uint2", 3: "uint3", 4: "uint4", 6: "uint6"}
# Steps for which whole vectors may be picked; each compiles kernels of its own.
STEPS = {1: (-1, -2), 2: (-1, 3), 3: (-1, -3), 4: (-1, 2, -4), 6: (-1, 4)}
TURNS = {1: 2, 2: 4, 3: 3, 4: 3, 6: 2}  # and rows that take turns
X86 = platform.machine() in ("x86_64", "AMD64")
MARGIN = 80  # bytes that lie beside an output, more than a line


def plain_memory(nbytes):
    """Dirty memory of so many bytes, and a check that the bytes beside it are what they were."""
    memory = dirt(nbytes + 2 * MARGIN + 64, nbytes)
    lead = MARGIN + 7 * nbytes % 64  # any byte of a line
    before = memory.copy()

    def untouched():
        inside = slice(lead, lead + nbytes)
        before[inside] = memory[inside]
        return np.array_equal(memory, before)

    return memory[lead : lead + nbytes], untouched


def tensor(codes, width, memory=plain_memory):
    """Codes as a packed Tensor, the padding behind them dirty."""
    place, _ = memory((codes.size * width + 7) // 8)
    place[...] = np.frombuffer(packed_bytes(codes, width), np.uint8)
    if codes.size * width % 8:
        place[-1] |= 0xFF << codes.size * width % 8 & 0xFF
    return sj.Tensor.frombuffer(place, WIDTHS[width], codes.shape)


def check_out(call, width, shape, expected, memory=plain_memory):
    """An `out=` is filled and returned; nothing beside it changes."""
    place, untouched = memory(len(expected))
    out = sj.Tensor.frombuffer(place, WIDTHS[width], shape)
    unused = (0xFF << (8 - -out.size * width % 8)) & 0xFF  # of the last byte: not an element's
    kept = place[-1:] & unused
    assert call(out) is out
    assert (place[-1:] & unused == kept).all()
    assert out.tobytes() == expected
    assert untouched()


def check_unpacked(t, codes, memory=plain_memory):
    """The same for the ndarray that `unpack` takes."""
    place, untouched = memory(codes.size)
    out = place.view(t.dtype.codes).reshape(codes.shape)
    assert t.unpack(out) is out
    assert np.array_equal(out.view(np.uint8), codes)
    assert untouched()


# Any chain of views


def some(draw, options):
    return draw(st.sampled_from(options))


@st.composite
def chains(draw):
    """A packed Tensor seen through up to six views, and its codes, high bits dirty, seen alike."""
    width = some(draw, list(WIDTHS))
    shape = draw(st.lists(st.integers(1, 5), max_size=6))
    for _ in range(draw(st.integers(0, 2))):
        # Long enough for tiles; a chain of short dims alone would hardly meet one.
        long = some(draw, [9, 17, 33, 65, 129, 150, 515] if COMPILED else [9, 17, 33])
        if shape and prod(shape) * long < (60_000 if COMPILED else 3000):
            shape[draw(st.integers(0, len(shape) - 1))] = long
    skipped = draw(st.integers(0, 9))
    flat = dirt(skipped + prod(shape), draw(st.integers(0, 2**32 - 1)))
    t = tensor(flat & (1 << width) - 1, width)[skipped:].reshape(shape, copy=False)
    base, codes = t.buffer, flat[skipped:].reshape(shape)
    random = draw(st.randoms(use_true_random=False))
    for _ in range(draw(st.integers(0, 6))):
        step = step_of(random, codes, STEPS[width])
        try:
            codes = stepped(codes, *step)
        except ValueError:
            assert step[0] == "reshape"
            with pytest.raises(sj.ReshapeError, match="copy=False"):
                tensor_stepped(t, *step)
            continue
        t = tensor_stepped(t, *step)
        assert t.shape == codes.shape
    assert t.buffer.base is base.base or t.buffer.base is base
    return t, codes


EXAMPLES = settings(
    max_examples=150 if COMPILED else 20,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@EXAMPLES
@given(chain=chains(), data=st.data())
def test_any_chain_of_views(chain, data, kernels):
    t, dirty = chain
    width = t.dtype.bits
    codes = dirty & (1 << width) - 1
    expected = packed_bytes(codes, width)
    shape = shape_of(data.draw(st.randoms(use_true_random=False)), codes.size)
    assert t.tobytes() == expected
    made = sj.reshape(t, shape)
    assert (made.shape, made.tobytes()) == (shape, expected)
    assert sj.reshape(t, shape, copy=True).buffer.tobytes() == expected
    check_out(lambda out: sj.reshape(t, shape, out=out), width, shape, expected)
    assert np.array_equal(t.unpack().view(np.uint8), codes)
    check_unpacked(t, codes)
    assert sj.pack(codes, t.dtype).buffer.tobytes() == expected
    if t.dtype.numpy is not None:
        assert sj.pack(dirty.view(t.dtype.numpy)).buffer.tobytes() == expected


@EXAMPLES
@given(chain=chains(), data=st.data())
def test_parts_of_one_output(chain, data, kernels):
    """Parts begin and end within bytes of the output."""
    t, dirty = chain
    width = t.dtype.bits
    codes = dirty & (1 << width) - 1
    if t.ndim:
        axis = data.draw(st.integers(0, t.ndim - 1))
        cuts = sorted(data.draw(st.lists(st.integers(0, t.shape[axis]), max_size=3)))
        ends = zip([0, *cuts], [*cuts, t.shape[axis]], strict=True)
        order = data.draw(st.permutations([(*(slice(None),) * axis, slice(*e)) for e in ends]))
        whole = np.concatenate([codes[i] for i in order], axis)
        parts, expected = [t[i] for i in order], packed_bytes(whole, width)
        assert sj.concat(parts, axis=axis).buffer.tobytes() == expected
        check_out(lambda out: sj.concat(parts, axis=axis, out=out), width, whole.shape, expected)
    axis = data.draw(st.integers(0, t.ndim))
    several = [t, t.flip(), t]
    whole = np.stack([codes, np.flip(codes), codes], axis)
    expected = packed_bytes(whole, width)
    assert sj.stack(several, axis=axis).buffer.tobytes() == expected
    check_out(lambda out: sj.stack(several, axis=axis, out=out), width, whole.shape, expected)


# Every strategy


class View(NamedTuple):
    """A row-major array of `shape`, permuted, sliced, then broadcast."""

    shape: tuple[int, ...]
    axes: tuple[int, ...] | None = None
    index: tuple[slice, ...] = ()
    to: tuple[int, ...] | None = None

    @property
    def order(self):
        return self.axes or tuple(range(len(self.shape)))

    def of_array(self, flat):
        x = flat.reshape(self.shape).transpose(self.order)[self.index]
        return x if self.to is None else np.broadcast_to(x, self.to)

    def of_tensor(self, flat):
        t = flat.reshape(self.shape, copy=False).permute_dims(self.order)[self.index]
        return t if self.to is None else t.broadcast_to(self.to)


ALL, BACK, INNER = slice(None), slice(None, None, -1), slice(1, -1)
SWAP = (1, 0)


def by(step):
    return slice(None, None, step)


def views_of_every_strategy(width):
    """Views with rows and columns around every size of block."""
    least, block = 16 * per_byte(width), BIT_ROW * per_byte(width)
    rows = (8, 9, 63, 65, 130) if COMPILED else (8, 13)
    columns = (least, least + 1, BIT_COLUMNS - 1, BIT_COLUMNS + 1) if COMPILED else (least + 1,)
    for n, m in product(rows, columns):
        yield View((n, m), SWAP)
    # Both sides in all directions, starting anywhere.
    n, m = (70, 2 * least + 7) if COMPILED else (19, least + 3)
    for outer, inner in product((ALL, BACK, slice(1, None)), (ALL, BACK, slice(3, -1))):
        yield View((n, m), SWAP, (inner, outer))
    yield from (View((n, m), SWAP, (ALL, by(step))) for step in (2, -3))
    if COMPILED:
        for n, m in ((block - 1, least), (block, BIT_COLUMNS), (block + 1, BIT_COLUMNS + 1)):
            yield View((n, m), SWAP)
        yield View((2 * block + 3, 2 * least + 1), SWAP, (BACK, BACK))
        yield View((12, 5 * BIT_COLUMNS + 1), SWAP)  # many short rows in one piece
        yield View((2, 10, 5, 31, 34), (3, 0, 4, 2, 1))  # the same in groups
        yield View((5 * block // 4 + 1, least), SWAP)
        # Few columns, in lanes of every size: rows at even distances, and at others.
        for m in (3, 7, 11, 15, 27, 29, 61, 120):
            yield View((block + 17, m), SWAP, (slice(1, None), ALL))
            yield View((5, 11, 130, m), (3, 2, 0, 1), (ALL, ALL, slice(1, None), ALL))
            yield View((700, m), SWAP, (ALL, BACK))
        # Few rows of few columns: less than a byte each, far apart on the stage.
        yield from (View((n, m), SWAP) for n, m in ((5, 38), (6, 3), (7, 100)))
        # Few rows, which are joined: in words, several of them in one, and longer ones.
        for n in (5, 8, 14, 16, 23, 31, 57, 63, 64, 75, 200):
            yield View((n, 3 * BIT_COLUMNS + 5), SWAP)
    # Several dims on either side.
    shape = (7, 40, 3, 50) if COMPILED else (3, 10, 2, 9)
    yield from (View(shape, axes) for axes in permutations(range(4)))
    yield View(shape, (3, 1, 0, 2), (INNER, BACK, INNER, BACK))
    for axes in ((4, 3, 2, 1, 0), (3, 0, 4, 1, 2), (1, 3, 4, 0, 2)):
        yield View((5, 6, 7, 8, 9) if COMPILED else (2, 3, 2, 5, 7), axes)
    yield View((2,) * (12 if COMPILED else 9), (*range(0, 9, 2), *range(1, 9, 2), *range(9, 12))
               if COMPILED else (*range(0, 9, 2), *range(1, 9, 2)))  # fmt: skip
    # Rows: short, of a line or so, of more than a page; and one run.
    for m in (3, 10, 131, 1030) if COMPILED else (3, 10, 67):
        yield View((41, m), None, (ALL, slice(1, None)))
        yield View((41, m), None, (ALL, INNER))
        yield View((41, m), None, (BACK, slice(None, -1)))
    yield View((9, 11, 35), (1, 0, 2))
    for m in (2, 3, 4, 6, 12):  # wider elements
        yield View((67, 141, m) if COMPILED else (7, 18, m), (1, 0, 2))
        yield View((67, 141, 2 * m) if COMPILED else (7, 18, 2 * m), (1, 0, 2), (ALL, BACK))
    yield View((9, 11, 35), None, (ALL, INNER, slice(2, None)))
    if COMPILED:
        yield View((3, 8 * 4096 + 77), None, (ALL, INNER))
        yield View((3, 8 * 4096 * 6 + 7), None, (ALL, slice(1, None)))
    for n in (1, 2, 7, 15, 16, 17, 129, 1000, 8 * 4096 + 3) if COMPILED else (1, 7, 33, 200):
        yield View((n + 2,), None, (slice(1, None),))
        yield View((n + 2,), None, (INNER,))
    # Elements that lie apart, backwards, interleaved, or are the same one.
    n = 9999 if COMPILED else 300
    yield from (View((n,), None, (by(step),)) for step in (*STEPS[width], 5, -7))
    for m in (TURNS[width], 5, 7, 33):
        yield from (View((m, n // 3), SWAP), View((n // m, m), None, (ALL, BACK)))
        yield from (View((n // m, m), None, (INNER, by(step))) for step in STEPS[width])
    for m in (5, 7, 33, *(step for step in STEPS[width] if step > 1)):
        yield View((n // m, m), SWAP)
    yield View((99, 1), to=(99, 50))
    yield View((99, 7, 1), (1, 0, 2), to=(7, 99, 9))
    yield View((40, 70), SWAP, to=(3, 70, 40))
    yield View((), to=(333,))


class Moved(NamedTuple):
    """A View, its codes, and all that should become of it."""

    view: View
    skipped: int
    flat: np.ndarray
    codes: np.ndarray
    expected: bytes


@cache
def moved(width):
    """All fixed views of elements of a width; each begins at another bit."""
    made = []
    for i, view in enumerate(views_of_every_strategy(width)):
        skipped = i % 9
        flat = dirt(skipped + prod(view.shape), i) & (1 << width) - 1
        codes = view.of_array(flat[skipped:])
        made.append(Moved(view, skipped, flat, codes, packed_bytes(codes, width)))
    return made


@pytest.mark.parametrize(
    ("kind", "shape"), [("uint4", (32769, 65)), ("uint2", (65537, 129)), ("uint3", (16385, 33))]
)
def test_rows_that_end_in_a_line_of_the_tile_before(kind, shape):
    """The last tile is shorter than a line: the one before it writes the bits after that, too."""
    most = 1 << sj.dtype(kind).bits
    codes = np.random.default_rng(0).integers(0, most, shape, np.uint8)
    made = sj.ascontiguous(sj.pack(codes, kind).T)
    assert np.array_equal(made.unpack().view(np.uint8), codes.T)


def check_moved(width, memory=plain_memory):
    """Copies, unpacks and packs every fixed view, with its source and output in such memory."""
    for view, skipped, flat, codes, expected in moved(width):
        t = view.of_tensor(tensor(flat, width, memory)[skipped:])
        check_out(lambda out, t=t: sj.ascontiguous(t, out=out), width, t.shape, expected, memory)
        check_unpacked(t, codes, memory)
        place, _ = memory(flat.size)
        dirty = 0xFF << width & 0xFF if t.dtype.numpy is not None else 0
        place[...] = flat | dirty
        given = view.of_array(place[skipped:].view(t.dtype.codes))
        assert sj.pack(given, t.dtype).buffer.tobytes() == expected


def check_joined(width, memory=plain_memory):
    """Joins every fixed view with a part before it, so that its rows begin at other bits."""
    for i, (view, skipped, flat, codes, _) in enumerate(moved(width)):
        if flat.size > 200_000:
            continue
        t = view.of_tensor(tensor(flat, width, memory)[skipped:])
        axis = -1 if i % 4 else 0
        ahead = (slice(None),) * (axis % t.ndim) + (slice(0, 1 + i % 3),)
        whole = np.concatenate([codes[ahead], codes, codes[ahead]], axis)
        parts = [t[ahead], t, t[ahead]]
        check_out(
            lambda out, parts=parts, axis=axis: sj.concat(parts, axis=axis, out=out),
            width,
            whole.shape,
            packed_bytes(whole, width),
            memory,
        )


@pytest.mark.parametrize("width", WIDTHS)
def test_every_strategy(width, kernels):
    check_moved(width)


@pytest.mark.parametrize("width", WIDTHS)
def test_every_strategy_into_a_part(width, kernels):
    check_joined(width)


@pytest.mark.parametrize("width", WIDTHS)
def test_every_strategy_in_boxes(width, kernels):
    """Boxes are made of large tensors only, unless asked for."""
    loops.use_boxes()
    check_moved(width)
    check_joined(width)


@pytest.mark.parametrize("width", WIDTHS)
def test_every_strategy_is_met(width, kernels):
    met = set()
    for use in (lambda: None, loops.use_boxes):
        use()
        for view, skipped, flat, *_ in moved(width):
            t = view.of_tensor(tensor(flat, width)[skipped:])
            met |= {planner.plan(t.layout, width).strategy, planner.plan(t.layout, 8).strategy}
    assert met >= {strategy for strategy in Strategy if strategy.row.bits}


# Memory that ends where the tensor ends


class Guarded:
    """Memory beside which no byte may be touched."""

    def __init__(self, at_end):
        self.at_end = at_end

    def __call__(self, nbytes):
        """Dirty memory that ends where the page behind it begins, or begins with its own."""
        pages = guarded(nbytes)
        lead = pages.size - nbytes if self.at_end else 0
        place = pages[lead : lead + nbytes]
        place[...] = dirt(nbytes, nbytes)
        return place, lambda: True


def run_alone(code, **environment):
    """A script in a process of its own, which may end as it likes: it must end well."""
    start = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
    start += "import loops\nfrom test_packed import *\nguard_stages()\n"
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", start + code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, (done.returncode, done.stdout[-1000:], done.stderr[-3000:])


def test_a_guard_page_ends_the_process():
    """Otherwise the test below could not fail."""
    code = "place, _ = Guarded(True)(10); ctypes.string_at(place.ctypes.data, {})"
    run_alone(code.format(10))
    with pytest.raises(AssertionError, match="Segmentation"):
        run_alone(code.format(11))


@pytest.mark.parametrize("width", WIDTHS if COMPILED else (3, 4))
def test_nothing_beside_the_memory_is_touched(width):
    run_alone(
        f"""
for kind in ("serial", "streamed") if COMPILED else ("streamed",):
    loops.use(kind)
    for at_end in (True, False):
        check_moved({width}, Guarded(at_end))
    check_joined({width}, Guarded(True))
loops.use_boxes()
for at_end in (True, False):
    check_moved({width}, Guarded(at_end))
check_joined({width}, Guarded(True))
"""
    )


# Other machines, other threads


def check_repeated(width, views, repeats):
    """The same copies again and again, none of them with a bit of the one before."""
    for view in views:
        flat = dirt(3 + prod(view.shape)) & (1 << width) - 1
        codes = view.of_array(flat[3:])
        t = view.of_tensor(tensor(flat, width)[3:])
        out = sj.reshape(t, -1, copy=True)
        expected = np.frombuffer(packed_bytes(codes, width), np.uint8)
        own = np.full(expected.size, 0xFF, np.uint8)  # the bits of elements
        own[-1] >>= -codes.size * width % 8
        joined = packed_bytes(np.concatenate([codes] * 3, -1), width)
        for _ in range(repeats):
            out.buffer[...] = ~expected
            sj.reshape(t, -1, out=out)
            assert np.array_equal(out.buffer & own, expected)
        assert sj.concat([t] * 3, axis=-1).buffer.tobytes() == joined


@pytest.mark.parametrize("width", [1, 3, 4])
def test_numpy_writes_beside_other_threads(width):
    """Two threads write every row's first three elements, and its other four: they share bytes."""
    rows, rounds = 20_001, 8
    codes = dirt(7 * rows).reshape(rows, 7) & (1 << width) - 1
    memory = np.zeros(7 * rows * width // 8 + 1, np.uint8)

    def write(columns):
        some = codes[:, columns.start : columns.stop]
        at = columns.start * width
        layout = Layout.of(some.shape, (7 * width, width), at, width)
        for _ in range(rounds):
            elements.write(some ^ some.dtype.type(1), memory.ctypes.data * 8, layout)
            elements.write(some, memory.ctypes.data * 8, layout)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, [range(3), range(3, 7)]))
    assert memory.tobytes() == packed_bytes(codes, width)


@pytest.mark.parametrize("kind", ["uint8", "bfloat16", "float64", "complex128", "V3", "O"])
@pytest.mark.parametrize("axes", [(1, 0, 2), (2, 0, 1), (2, 1, 0), (0, 2, 1)])
def test_numpy_copies_what_is_transposed(axes, kind):
    """In columns where that is faster, also the last ones, backwards and into gaps."""
    dtype = sj.dtype(kind).numpy if kind == "bfloat16" else np.dtype(kind)
    rows = 2 * elements.COLUMNS_FROM // (33 * 70 * dtype.itemsize)
    flat = np.arange(rows * 33 * 70, dtype=np.uint64) % 251
    x = flat.astype(np.uint8).astype(dtype) if kind not in ("V3", "O") else flat.astype(object)
    if kind == "V3":
        x = np.repeat(flat.astype(np.uint8), 3).view(kind)
    x = x.reshape(rows, 33, 70)
    for seen in (x.transpose(axes), x.transpose(axes)[::-1, :, ::-1], x.transpose(axes)[1:, 3:]):
        plain = np.array(seen, order="C", copy=True)
        wide = np.zeros((*seen.shape[:-1], seen.shape[-1] + 5), seen.dtype)
        for made in (np.zeros(seen.shape, seen.dtype), wide[..., 2:-3]):
            elements.assign(made, seen)
            assert made.tolist() == plain.tolist() if kind == "O" else same_bytes(made, plain)
        assert kind == "O" or not wide[..., :2].view(np.uint8).any()
    wide = np.zeros(x.transpose(axes).shape, np.float64)
    if kind in ("uint8", "bfloat16"):
        elements.assign(wide, x.transpose(axes))
        assert np.array_equal(wide, x.transpose(axes).astype(np.float64))


def same_bytes(x, y):
    return x.shape == y.shape and x.tobytes() == y.tobytes()


@pytest.mark.skipif(not COMPILED, reason="with the JIT off there is one thread")
def test_threads_share_bytes():
    """Eight threads, each with a few rows, begin and end within one another's bytes."""
    table = [((8, 5), (ALL, slice(1, 4))), ((8, 5), (ALL, BACK)), ((40, 33), (ALL, INNER))]
    table += [((701, 131), (ALL, INNER)), ((701, 33), (BACK, BACK)), ((9, 70_001), (ALL, BACK))]
    views = [View(shape, None, index) for shape, index in table]
    views += [View((30, 65, 131), (0, 2, 1)), View((130, 999), SWAP, (INNER, INNER))]
    code = f"loops.use('parallel')\nfor width in WIDTHS: check_repeated(width, {views}, 50)"
    run_alone(code, NUMBA_NUM_THREADS="8")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kernels", ["parallel"], indirect=True)
def test_threads_walk_side_by_side(width, kernels):
    """One thread ends each odd row in the byte in which the other one, at that time, begins it.

    Were a byte not changed at once, some of these copies would be wrong.
    """
    block = BIT_ROW * per_byte(width) if COMPILED else 40
    view = View((2 * block - 1, 601 if COMPILED else 30), SWAP, (INNER, BACK))
    check_repeated(width, [view], 300 if COMPILED else 1)


@pytest.mark.skipif(not (COMPILED and X86), reason="the features named are those of x86")
@pytest.mark.parametrize(
    ("cpu", "features", "vector", "widths"),
    [("generic", "", 16, (3,)), ("haswell", "+avx2,+bmi,+bmi2", 32, (4,))],
    ids=["SSE2", "AVX2"],
)
def test_narrower_vectors(cpu, features, vector, widths):
    """What is compiled for lesser machines is right, too."""
    code = f"""
from shapejit.runtime import kernels
assert kernels.vector() == {vector}
loops.use("streamed by one thread")
for width in {widths}:
    check_moved(width, Guarded(True))
    check_joined(width)
"""
    run_alone(code, NUMBA_CPU_NAME=cpu, NUMBA_CPU_FEATURES=features)


# More elements than int32 counts


def free_gib():
    """What the machine has left, in GiB, by /proc/meminfo; without one, nothing."""
    facts = Path("/proc/meminfo")
    lines = facts.read_text().splitlines() if facts.exists() else []
    return sum(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")) / 2**20


@pytest.mark.skipif(not COMPILED, reason="with the JIT off this takes hours")
@pytest.mark.skipif(free_gib() < 12, reason="less than 12 GiB of memory are free")
def test_four_gi_elements():
    side, count = 65_536, 2**32
    memory = np.zeros(count // 2, np.uint8)  # mapped where it is marked, and only there
    places = [0, 7, side + 1, 2**31 - 1, 2**31 + 2, 3 * 2**30 + 12_345, count - side, count - 1]
    marks = {place: 1 + i for i, place in enumerate(places)}
    for place, code in marks.items():
        memory[place // 2] = code << 4 * (place % 2)
    t = sj.Tensor.frombuffer(memory, "uint4", (count,))
    assert (t.shape, t.size, t.nbytes) == ((count,), count, 2**31)
    assert t[-4:].tobytes() == bytes([0, 8 << 4])
    assert t[::-1][:3].tobytes() == bytes([8, 0])
    assert t[count - side - 1 :][:3].tobytes() == bytes([7 << 4, 0])
    assert t[2**31 - 1 :: 3].unpack()[:2].tolist() == [4, 5]
    square = t.reshape((side, side), copy=False)
    far = square[-1:, -3:].unpack().astype(int)
    assert far.tolist() == [[0, 0, 8]]
    assert square.T[-3:, ::-1][:, :2].unpack().astype(int).tolist() == [[0, 0], [0, 0], [8, 0]]
    turned = square.T.ascontiguous()
    for place, code in marks.items():
        row, column = divmod(place, side)
        assert int(turned[column, row].unpack()) == code
    assert np.count_nonzero(turned.buffer) == len(marks)
    # One run that begins within a byte, into the same memory.
    out = sj.Tensor.frombuffer(turned.buffer[: 2**31 - 1], "uint4", (count - 2,))
    assert sj.ascontiguous(t[1:-1], out=out) is out
    for place in places[1:-1]:
        assert int(out[place - 1].unpack()) == marks[place]
    assert np.count_nonzero(out.buffer) == len(marks) - 2


@pytest.mark.skipif(not COMPILED, reason="with the JIT off there are no kernels")
@pytest.mark.parametrize("kind", ["int4", "uint3", "uint8", "bfloat16"])
def test_later_calls_unpack_with_few_functions_of_the_package(kind):
    """The same elements as the first one, into new arrays and into outputs, and no others."""
    raw = np.random.default_rng(0).integers(0, 256, 4096, np.uint8)
    many = sj.Tensor.frombuffer(raw[: sj.dtype(kind).nbytes(900)], kind, (30, 30))
    for t in (many, many.T, many[2:, ::-1], many[:, 1:]):
        with patience.force_numpy():
            wanted = t.unpack().tobytes()
        for _ in range(4):
            out = np.empty(t.shape, t.dtype.codes)
            assert t.unpack(out) is out
            assert t.unpack().tobytes() == out.tobytes() == wanted
        for wrong in (out[:-1], out.view(f"V{out.itemsize}"), out[:, ::-1], out.tolist()):
            with pytest.raises(sj.ShapeJitError):
                t.unpack(wrong)
