"""ONNX's layout operators: versions, meanings, dtypes, peers."""

import re
from random import Random

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference.ops import load_op

import shapejit as sj
from shapejit.dialects.onnx.versions import versions
from shapejit.errors import TraceError

OPSETS = range(1, 29)
OBSOLETE = {"consumed_inputs"}
# Operators of which a table says which types the inputs after the first may have.
LAYOUTS = [
    *("Transpose", "Squeeze", "Unsqueeze", "Flatten", "Expand", "Concat", "Split", "Slice", "Tile"),
    *("Identity", "Size", "DepthToSpace", "SpaceToDepth", "Pad", "Gather", "CenterCropPad"),
    *("Reshape", "Shape"),
]


def listed(schema, name):
    """The canonical names of the types that an input of a schema may have."""
    formal = next(i for i in schema.inputs if i.name == name)
    return {
        sj.dtype(kind, vocabulary="onnx").name
        for text in formal.types
        if (found := re.fullmatch(r"tensor\((\w+)\)", text))
        for kind in [TENSOR_TYPES[found[1]]]
    }


TENSOR_TYPES = {
    helper.tensor_dtype_to_string(code).removeprefix("TensorProto.").lower(): code
    for code in onnx.TensorProto.DataType.values()
    if code
}


@pytest.mark.parametrize("operator", LAYOUTS)
def test_versions_are_those_of_the_schemas(operator):
    history = {s.since_version: s for s in onnx.defs.get_all_schemas_with_history()
               if s.name == operator and s.domain == ""}  # fmt: skip
    assert [row.since for row in versions(operator)] == sorted(history)
    for row in versions(operator):
        schema = history[row.since]
        assert row.attributes == set(schema.attributes) - OBSOLETE
        for i, name in enumerate(row.operands):
            # A name of its own, or the first input; one that came later has no types before.
            names = [x.name for x in schema.inputs]
            wanted = names[0] if i == 0 else name
            assert row.operands[name] == (listed(schema, wanted) if wanted in names else set())
    for opset in OPSETS:
        if opset >= min(history):
            since = onnx.defs.get_schema(operator, opset).since_version
            assert sj.onnx.version(operator, opset).since == since


# What the operators mean, as the texts say it with NumPy: random calls. ------------------


def shapes(random, rank=None, least=0):
    rank = random.randint(0, 4) if rank is None else rank
    return tuple(random.randint(least, 4) for _ in range(rank))


def some_axes(random, rank, least=0):
    """Different axes in any order, some counted from the back."""
    chosen = random.sample(range(rank), random.randint(min(least, rank), rank))
    return [axis - random.choice([0, rank]) for axis in chosen]


def transposed(random):
    shape = shapes(random)
    perm = random.sample(range(len(shape)), len(shape))
    if random.random() < 0.2:
        return shape, lambda x: sj.onnx.transpose(x), lambda x: x.T
    return shape, lambda x: sj.onnx.transpose(x, perm=perm), lambda x: x.transpose(perm)


def squeezed(random):
    shape = tuple(random.choice([1, 1, 3]) for _ in range(random.randint(0, 4)))
    if random.random() < 0.3:
        return shape, lambda x: sj.onnx.squeeze(x), lambda x: np.squeeze(x)[...]
    axes = [i - random.choice([0, len(shape)]) for i, n in enumerate(shape) if n == 1]
    random.shuffle(axes)
    axes = axes[: random.randint(0, 4)]
    given = random.choice([axes, np.array(axes, np.int64)])
    return shape, lambda x: sj.onnx.squeeze(x, given), lambda x: np.squeeze(x, tuple(axes))


def unsqueezed(random):
    shape, count = shapes(random), random.randint(0, 3)
    rank = len(shape) + count
    axes = [i - random.choice([0, rank]) for i in random.sample(range(rank), count)]
    return shape, lambda x: sj.onnx.unsqueeze(x, axes), lambda x: np.expand_dims(x, tuple(axes))


def flattened(random):
    shape = shapes(random)
    axis = random.randint(-len(shape), len(shape))
    front = shape[: axis if axis >= 0 else axis + len(shape)]
    rows = int(np.prod(front, dtype=int))
    columns = int(np.prod(shape[len(front) :], dtype=int))
    return (
        shape,
        lambda x: sj.onnx.flatten(x, axis=axis),
        lambda x: x.reshape(rows, columns),
    )


def expanded(random):
    shape = tuple(random.choice([1, 1, 3]) for _ in range(random.randint(0, 3)))
    whole = (*shapes(random, random.randint(0, 2)), *(n if n > 1 else 2 for n in shape))
    asked = [random.choice([n, 1]) for n in whole][random.randint(0, len(whole)) :]
    return (
        shape,
        lambda x: sj.onnx.expand(x, np.array(asked, np.int64)),
        lambda x: np.broadcast_to(x, np.broadcast_shapes(shape, tuple(asked))),
    )


def sliced(random):
    shape = shapes(random, random.randint(1, 3))
    axes = some_axes(random, len(shape))
    ends = [-(2**63), -7, -3, -2, -1, 0, 1, 2, 3, 7, 2**63 - 1]
    starts, stops = ([random.choice(ends) for _ in axes] for _ in range(2))
    steps = [random.choice([1, 1, 2, 3, -1, -2, 2**62]) for _ in axes]

    def want(x):
        """Starts and ends are clamped to [0, n], for negative steps to [0, n-1] and [-1, n-1]."""
        for axis, start, stop, step in zip(axes, starts, stops, steps, strict=True):
            n = x.shape[axis]
            start, stop = (i + n if i < 0 else i for i in (start, stop))
            low, high = (0, n) if step > 0 else (-1, n - 1)
            start = min(max(start, 0), high)
            taken = range(start, min(max(stop, low), high), step)
            x = np.take(x, list(taken) if n else [], axis)
        return x

    kind = np.int32 if all(abs(i) < 2**31 for i in starts + stops + steps) else np.int64
    given = [np.array(v, kind) for v in (starts, stops, axes, steps)]
    return shape, lambda x: sj.onnx.slice(x, *given), want


def tiled(random):
    shape = shapes(random)
    repeats = [random.randint(0, 3) for _ in shape]
    return shape, lambda x: sj.onnx.tile(x, repeats), lambda x: np.tile(x, repeats)


def joined(random):
    shape = shapes(random, random.randint(1, 4))
    axis, count = random.randrange(-len(shape), len(shape)), random.randint(1, 4)
    return (
        shape,
        lambda x: sj.onnx.concat([x] * count, axis=axis),
        lambda x: np.concatenate([x] * count, axis),
    )


def gathered(random):
    shape = shapes(random, random.randint(1, 4), 1)
    axis = random.randrange(-len(shape), len(shape))
    size, found = shape[axis], shapes(random, random.randint(0, 2))
    rng = np.random.default_rng(random.getrandbits(32))
    indices = rng.integers(-size, size, found).astype(random.choice([np.int32, np.int64]))
    return (
        shape,
        lambda x: sj.onnx.gather(x, indices, axis=axis),
        lambda x: np.asarray(np.take(x, indices, axis), x.dtype),
    )


def padded(random):
    shape = shapes(random, random.randint(1, 3), 1)
    mode = random.choice(["constant", "edge", "reflect", "wrap"])
    axes = some_axes(random, len(shape))
    before, behind = ([random.randint(-1, 5) for _ in axes] for _ in range(2))

    def want(x):
        widths, part = [(0, 0)] * x.ndim, [slice(None)] * x.ndim
        for axis, b, e in zip(axes, before, behind, strict=True):
            widths[axis] = max(b, 0), max(e, 0)
            part[axis] = slice(max(-b, 0), x.shape[axis] - max(-e, 0))
        x = x[tuple(part)]
        if x.size == 0:
            return None
        if mode != "constant":
            return np.pad(x, widths, mode)
        made = np.full([n + b + e for n, (b, e) in zip(x.shape, widths, strict=True)], NOTHING(x))
        made = made.astype(x.dtype)
        made[tuple(slice(b, b + n) for n, (b, _) in zip(x.shape, widths, strict=True))] = x
        return made

    pads, kind = np.array(before + behind, np.int64), random.choice([np.int32, np.int64])

    def got(x):
        return sj.onnx.pad(x, pads, None, np.array(axes, kind), mode=mode)

    keeps = all(
        shape[a] > -min(b, 0) - min(e, 0) for a, b, e in zip(axes, before, behind, strict=True)
    )
    return (shape, got, want) if keeps else padded(random)


def NOTHING(x):
    return "" if x.dtype == object else 0


def centered(random):
    shape = shapes(random, random.randint(1, 3))
    axes = some_axes(random, len(shape))
    sizes = [random.randint(0, 7) for _ in axes]
    (op,) = [node_class("CenterCropPad")]
    return (
        shape,
        lambda x: (
            sj.onnx.center_crop_pad(x, np.array(sizes, np.int64), axes=axes or None)
            if axes
            else sj.onnx.center_crop_pad(x, [], axes=[])
        ),
        lambda x: op.eval(x, np.array(sizes, np.int64), axes=axes) if axes else x,
    )


def depth(random):
    block, mode = random.randint(1, 3), random.choice(["DCR", "CRD"])
    b, c, h, w = shapes(random, 4, 1)
    shape = b, c * block * block, h, w

    def want(x):
        if mode == "DCR":
            apart = x.reshape(b, block, block, c, h, w).transpose(0, 3, 4, 1, 5, 2)
        else:
            apart = x.reshape(b, c, block, block, h, w).transpose(0, 1, 4, 2, 5, 3)
        return apart.reshape(b, c, h * block, w * block)

    return shape, lambda x: sj.onnx.depth_to_space(x, blocksize=block, mode=mode), want


def space(random):
    block, mode = random.randint(1, 3), random.choice(["DCR", "CRD"])
    b, c, h, w = shapes(random, 4, 1)
    shape = b, c, h * block, w * block

    def want(x):
        order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
        apart = x.reshape(b, c, h, block, w, block).transpose(order)
        return apart.reshape(b, c * block * block, h, w)

    def got(x):
        return sj.onnx.space_to_depth(x, blocksize=block, mode=mode, opset=28)

    return shape, got, want


def parted(random):
    shape = shapes(random, random.randint(1, 3))
    axis, size = random.randrange(-len(shape), len(shape)), 0
    size = shape[axis]
    cuts = sorted(random.choices(range(size + 1), k=random.randint(0, 3)))
    sizes = np.diff([0, *cuts, size])
    pick = random.randrange(len(sizes))
    return (
        shape,
        lambda x: sj.onnx.split(x, sizes, axis=axis)[pick],
        lambda x: np.split(x, cuts, axis)[pick],
    )


MEANINGS = (
    *(transposed, squeezed, unsqueezed, flattened, expanded, sliced, tiled, joined, gathered),
    *(padded, centered, depth, space, parted),
)


def node_class(name):
    """onnx's own implementation of an operator."""
    return load_op("", name, 25)


def codes(shape, name, seed):
    """Elements of a dtype, every bit pattern possible; short texts."""
    kind, count = sj.dtype(name), int(np.prod(shape, dtype=int))
    if name == "string":
        return np.array([f"text {i}" for i in range(count)], object).reshape(shape)
    made = np.random.default_rng(seed).integers(0, 256, count * kind.numpy.itemsize, np.uint8)
    if kind.packed:
        made %= 2**kind.bits
    return (made % 2 if name == "bool" else made).view(kind.numpy).reshape(shape)


def same(got, want):
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    if want.dtype == object:
        assert got.tolist() == want.tolist()
    else:
        assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("meaning", MEANINGS)
def test_meanings(meaning):
    """Of ndarrays and of Tensors, row-major and not, of widths from 4 bits to 16 bytes."""
    random = Random(18)
    dtypes = ["int4", "uint8", "bfloat16", "float32", "complex128", "string"]
    for seed in range(120):
        shape, got, want = meaning(random)
        known = dtypes if meaning in OF_NARROW else dtypes[1:]
        # onnx's own CenterCropPad puts 0 between texts.
        name = random.choice(known[:-1] if meaning is centered else known)
        x = codes(shape, name, seed)
        if random.random() < 0.3:
            x = x.copy(order="F")
        expected = want(x)
        if expected is None:
            continue
        made = got(x)
        assert type(made) is np.ndarray
        same(made, expected)
        if name != "string":
            t = got(sj.pack(x) if name == "int4" else sj.asarray(x))
            assert type(t) is sj.Tensor
            same(np.asarray(t), expected)
            if meaning in MOVING:
                same(sj.plan(x.shape, name, got)(x), expected)
            elif x.size and expected.size:
                with pytest.raises(TraceError, match="join elements"):
                    sj.plan(x.shape, name, got)


# Versions of these list int4.
OF_NARROW = {transposed, squeezed, unsqueezed, flattened, padded}
# These only move elements, one source and one result: programs take them.
MOVING = {
    *(transposed, squeezed, unsqueezed, flattened, expanded, sliced, tiled),
    *(depth, space, parted),
}


@pytest.mark.parametrize("operator", [name for name in LAYOUTS if name not in ("Reshape", "Shape")])
def test_every_dtype_at_every_opset(operator):
    """What a version lists is moved; all else is refused, with a hint at what lists it."""
    call, want = CALLS[operator]
    for row in versions(operator):
        types = next(iter(row.operands.values()))
        for kind in sj.dtypes.all():
            if kind.numpy is None or kind.numpy.kind == "U":
                continue
            x = codes((1, 4, 2, 3), kind.name, 1)
            if kind.name in types:
                same(call(x, row.since), want(x))
            else:
                with pytest.raises(sj.DTypeError, match=rf"{row} does not list {kind} in its T"):
                    call(x, row.since)


def pads(x, opset):
    return sj.onnx.pad(x, [0, 0, 0, 1, 0, 0, 0, 0], mode="edge", opset=opset)


# One call that every version allows, and what it gives for (1, 4, 2, 3).
CALLS = {
    "Transpose": (lambda x, o: sj.onnx.transpose(x, perm=[3, 2, 1, 0], opset=o), lambda x: x.T),
    "Squeeze": (lambda x, o: sj.onnx.squeeze(x, [0], opset=o), lambda x: x[0]),
    "Unsqueeze": (lambda x, o: sj.onnx.unsqueeze(x, [0], opset=o), lambda x: x[None]),
    "Flatten": (lambda x, o: sj.onnx.flatten(x, axis=2, opset=o), lambda x: x.reshape(4, 6)),
    "Expand": (lambda x, o: sj.onnx.expand(x, [2, 1, 1, 3], opset=o), lambda x: np.repeat(x, 2, 0)),
    "Concat": (
        lambda x, o: sj.onnx.concat([x, x], axis=1, opset=o),
        lambda x: np.concatenate([x, x], 1),
    ),
    "Split": (lambda x, o: sj.onnx.split(x, [1, 3], axis=1, opset=o)[1], lambda x: x[:, 1:]),
    "Slice": (lambda x, o: sj.onnx.slice(x, [1], [9], [1], opset=o), lambda x: x[:, 1:]),
    "Tile": (
        lambda x, o: (
            sj.onnx.tile(x, 2, 1, opset=o) if o < 6 else sj.onnx.tile(x, [1, 2, 1, 1], opset=o)
        ),
        lambda x: np.concatenate([x, x], 1),
    ),
    "Identity": (lambda x, o: sj.onnx.identity(x, opset=o), lambda x: x),
    "Size": (lambda x, o: sj.onnx.size(x, opset=o), lambda x: np.array(x.size)),
    "DepthToSpace": (
        lambda x, o: sj.onnx.depth_to_space(x, blocksize=2, opset=o),
        lambda x: x.reshape(1, 2, 2, 1, 2, 3).transpose(0, 3, 4, 1, 5, 2).reshape(1, 1, 4, 6),
    ),
    "SpaceToDepth": (
        lambda x, o: sj.onnx.space_to_depth(x, blocksize=1, opset=o),
        lambda x: x,
    ),
    "Pad": (pads, lambda x: np.concatenate([x[..., :1], x], 3)),
    "Gather": (lambda x, o: sj.onnx.gather(x, [2, 0], axis=1, opset=o), lambda x: x[:, [2, 0]]),
    "CenterCropPad": (
        lambda x, o: sj.onnx.center_crop_pad(x, [2], axes=[1], opset=o),
        lambda x: x[:, 1:3],
    ),
}


# Refusals, memory ---------------------------------------------------------------------------

X = np.arange(24, dtype=np.float32).reshape(1, 4, 2, 3)
op = sj.onnx
REFUSED = [
    (lambda: op.transpose(X, perm=[0, 1, 2]), "perm .* is not a permutation of the 4 dims"),
    (lambda: op.transpose(X, perm=[0, 1, 2, -1]), "asked by onnx.Transpose-25$"),
    (lambda: op.squeeze(X, [1]), r"dim 1 of \(1, 4, 2, 3\) has size 4, not 1(.|\n)*Squeeze-25"),
    (lambda: op.squeeze(X, [-4], opset=9), r"negative \(from opset 11 on they may be\)"),
    (lambda: op.squeeze(X, [4]), "axis 4 is out of bounds for 4 dims"),
    (lambda: op.squeeze(X, [0, -4]), "repeated axis"),
    (lambda: op.unsqueeze(X, [5, 5]), "repeated axis"),
    (lambda: op.unsqueeze(X, [5]), "axis 5 is out of bounds for 5 dims"),
    (lambda: op.flatten(X, axis=5), r"axis 5 is not in \[-4, 4\]"),
    (lambda: op.flatten(X, axis=-1, opset=9), "must not be negative"),
    (lambda: op.expand(X, [5, 2, 3]), r"shapes \(1, 4, 2, 3\), \(5, 2, 3\) cannot be broadcast"),
    (lambda: op.expand(X, [-1]), "cannot be broadcast"),
    (lambda: op.slice(X, [0], [1], [0], [0]), "steps must not be 0"),
    (lambda: op.slice(X, [0, 0], [1]), "2 starts, 1 ends, 2 axes and 2 steps must be equal"),
    (lambda: op.slice(X, [0, 0], [1, 1], [0, -4]), "repeated axis"),
    (lambda: op.slice(X, [0], [1], [0], [1], opset=9), r"no input steps \(opset 10 does\)"),
    (lambda: op.split(X, [1, 2], axis=1), r"split \[1, 2\] does not divide dim 1"),
    (lambda: op.split(X, [5, -1], axis=1), "does not divide"),
    (lambda: op.split(X, axis=1, num_outputs=3, opset=13), "4 elements cannot be 3 equal parts"),
    (lambda: op.split(X, [2, 2], axis=1, num_outputs=2), "exclude num_outputs=2"),
    (lambda: op.split(X, axis=1), "split or num_outputs must be given"),
    (lambda: op.split(X, axis=1, num_outputs=0), "at least 1, not 0"),
    (lambda: op.tile(X, [1, 2]), "must be 4 sizes, one for each dim"),
    (lambda: op.tile(X, [1, 1, 1, -1]), "must be 4 sizes"),
    (lambda: op.tile(X, [1, 1, 1, 1], 0), "no input axis"),
    (lambda: op.concat([X]), "axis must be given(.|\n)*Concat-13"),
    (lambda: op.concat([X], axis=4), "out of bounds"),
    (lambda: op.concat([X, X[:, 1:]], axis=0), "onnx.Concat-13: only dim 0 may differ"),
    (lambda: op.concat([], axis=0), "onnx.Concat-13: "),
    (lambda: op.depth_to_space(X, blocksize=3), r"4 channels cannot be blocks of 3 \* 3"),
    (lambda: op.depth_to_space(X, blocksize=0), "at least 1, not 0"),
    (lambda: op.depth_to_space(X[0], blocksize=1), "must have 4 dims, not 3"),
    (lambda: op.depth_to_space(X, blocksize=2, mode="XYZ"), "mode must be one of DCR, CRD"),
    (lambda: op.depth_to_space(X, blocksize=2, mode="CRD", opset=9), "no attribute mode"),
    (lambda: op.space_to_depth(X, blocksize=2), "2 rows and 3 columns cannot be blocks"),
    (lambda: op.space_to_depth(X, blocksize=1, mode="CRD", opset=25), "no attribute mode"),
    (lambda: op.gather(X, [4], axis=1), "index 4 is out of bounds for dim 1 of size 4"),
    (lambda: op.gather(X, [-1], axis=1, opset=9), "indices must not be negative"),
    (lambda: op.pad(X, [0] * 7), r"pads \[.*\] must be 2 \* 4 numbers"),
    (lambda: op.pad(X, [0] * 8, mode="wrap", opset=18), "one of constant, reflect, edge"),
    (lambda: op.pad(X, [0, 0], axes=[0], opset=13), r"no input axes \(opset 18 does\)"),
    (lambda: op.pad(X, [0] * 4 + [-9] * 4), "remove more elements than there are"),
    (lambda: op.pad(X, [1] * 8, np.zeros(2, np.float32)), "must be one element, not 2"),
    (lambda: op.center_crop_pad(X, [2, 2]), "must be 4 sizes"),
    (lambda: op.expand(X, [1], opset=7), "opset 7 has no Expand: it is new in opset 8"),
]  # fmt: skip
WRONG_KINDS = [
    (lambda: op.transpose([1, 2]), "expects a numpy.ndarray or a shapejit.Tensor, not list"),
    (lambda: op.transpose(X, perm="0123"), "a sequence of ints"),
    (lambda: op.squeeze(X, np.array([0], np.int32)), "Squeeze-25 must be int64, not int32"),
    (lambda: op.slice(X, np.array([0], np.int16), [1]), "must be int32 or int64, not int16"),
    (lambda: op.expand(X, [1.5]), "must hold ints only"),
    (lambda: op.concat([X, X.astype(np.int8)], axis=0), "is int8, input 0 float32"),
    (lambda: op.concat([X, None], axis=0), "input 1: onnx.Concat-13 expects"),
    (lambda: op.gather(X, np.array([0], np.uint8)), "does not list uint8 in its T of indices"),
    (lambda: op.pad(X, [1] * 8, np.zeros(1, np.int8)), "onnx.Pad-25 must be float32, not int8"),
    (lambda: op.pad(X, [1] * 8, "a"), "must be of float32"),
    (lambda: op.flatten(X, axis=True), "axis must hold ints only"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "table"), [(sj.ReshapeError, REFUSED), (sj.DTypeError, WRONG_KINDS)]
)
def test_refusals(kind, table):
    for call, message in table:
        with pytest.raises(kind, match=message):
            call()


def test_views_copies_and_out():
    calls = [
        (op.transpose, (), {}), (op.squeeze, ([0],), {}), (op.unsqueeze, ([0],), {}),
        (op.flatten, (), {}), (op.expand, ([1],), {}), (op.slice, ([1], [3], [1]), {}),
        (op.identity, (), {}), (op.tile, ([1] * 4,), {}), (op.tile, ([1, 2, 1, 1],), {}),
        (op.depth_to_space, (), {"blocksize": 2}), (op.space_to_depth, (), {"blocksize": 1}),
    ]  # fmt: skip
    for call, inputs, named in calls:
        y = call(X, *inputs, **named)
        moved = call is op.depth_to_space or inputs == ([1, 2, 1, 1],)
        assert np.shares_memory(y, X) != moved, call
        copy = call(X, *inputs, **named, copy=True)
        assert not np.shares_memory(copy, X)
        out = np.zeros(y.shape, np.float32)
        assert call(X, *inputs, **named, out=out) is out
        assert out.tobytes() == copy.tobytes() == y.tobytes()
        if moved:
            with pytest.raises(sj.ReshapeError, match="copy=False"):
                call(X, *inputs, **named, copy=False)
        else:
            assert np.shares_memory(call(X, *inputs, **named, copy=False), X)
    out = np.zeros((1, 8, 2, 3), np.float32)
    assert op.concat([X, X], axis=1, out=out) is out
    assert op.gather(X, [0, 1, 2, 3, 0, 1, 2, 3], axis=1, out=out) is out
    assert op.pad(X, [0, 4], axes=[1], out=out) is out
    assert op.center_crop_pad(X, [8], axes=[1], out=out) is out
    parts = op.split(X, [1, 3], axis=1)
    assert all(np.shares_memory(part, X) for part in parts)
    assert not any(np.shares_memory(part, X) for part in op.split(X, [1, 3], axis=1, copy=True))
    assert not op.expand(X, [2, 1, 1, 1]).flags.writeable


def test_values_of_pads():
    """A number, an array, a Tensor: in the dtype of the data; text."""
    x = np.array([1, 2], np.int8)
    for value in (7, np.int8(7), np.array(7, np.int8), np.array([7], np.int8)):
        given = np.asarray(value) if isinstance(value, np.int8) else value
        assert op.pad(x, [0, 1], given).tolist() == [1, 2, 7]
        assert np.asarray(op.pad(sj.asarray(x), [0, 1], given)).tolist() == [1, 2, 7]
    narrow = sj.pack(np.array([1, 2], np.uint8), "uint4")
    assert op.pad(narrow, [0, 1], 7).tobytes().hex() == "2107"
    assert op.pad(narrow, [0, 1], narrow[1:]).tobytes().hex() == "2102"
    text = np.array(["a", "b"])
    assert op.pad(text, [1, 0], "longer").tolist() == ["longer", "a", "b"]
    assert op.pad(text, [1, 0]).tolist() == ["", "a", "b"]
    joined = op.concat([text, np.array(["longer"], object)], axis=0)
    assert joined.tolist() == ["a", "b", "longer"]
    floats = np.ones(1, np.float32)
    assert np.isnan(op.pad(floats, [1, 0], float("nan"))).tolist() == [True, False]
