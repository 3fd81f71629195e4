"""Every operation on every dtype, on one tensor and on thousands, with and without `out=`."""

import copy
import pickle
from functools import partial
from math import prod

import loops
import numpy as np
from views import (
    places_in_shape,
    shape_of,
    shape_within,
    step_of,
    stepped,
    steps_of,
    tensor_stepped,
    turned_matrix,
)

import shapejit as sj

from .known import DTYPES, NUMPYS, PACKED, check_same, codes_in, known, output, raw

COUNTS = {1: 60_000, 2: 20_000, 7: 5000, 100: 300, 2000: 40}  # tensors, elements of each


def case(random):
    """One call of one function with tensors of every kind."""
    loops.use(random.choice(list(loops.LIMITS)))
    random.choice(CALLS)(random)


def many(random, most_tensors=2000, alike=None, as_array=None, dtypes=None, places=None):
    """Known tensors: of one dtype and kind, and of one shape, if they are `alike`."""
    counts = [n for n in COUNTS if n <= most_tensors]
    count = random.choice([*counts, *(n for n in counts if n < 100), 1])
    most = COUNTS[count] if random.random() < 0.3 else min(COUNTS[count], 2000)
    if count < 3 and random.random() < 0.02:
        most = 2_000_000  # enough for several threads, and for streams past the caches
    alike = random.random() < 0.5 if alike is None else alike

    def kind():
        array = random.random() < 0.5 if as_array is None else as_array
        tensors = random.choice([DTYPES, PACKED])  # elements that share bytes are the most work
        return random.choice(dtypes or (NUMPYS if array else tensors)), array

    def view():
        if most >= 300 and random.random() < 0.25:
            return turned_matrix(random, most)
        shape = shape_within(random, most)
        if random.random() < 0.5:
            return places_in_shape(random, shape)
        return steps_of(random, np.arange(prod(shape)).reshape(shape), 6)[1]

    one, seen = kind(), view() if places is None else places
    if alike:
        same = random.random() < 0.5  # strides, too
        views = (seen if same else places_in_shape(random, seen.shape) for _ in range(count - 1))
        return [known(random, *one, places) for places in (seen, *views)]
    some = [(*(one if random.random() < 0.5 else kind()), view()) for _ in range(min(count, 9))]
    return [known(random, *random.choice(some)) for _ in range(count)]


def dtype_of(k):
    return sj.dtype(k.x.dtype)


def attempt(call, outs, wanted):
    """Call with outs: they are filled with the codes that are wanted, or nothing was written."""
    try:
        made = call()
    except sj.ShapeJitError:
        if not any(out.may_be_refused for out in outs):
            raise
        for out in outs:
            out.check_unchanged()
        return None
    for out, codes in zip(outs, wanted, strict=True):
        out.check(codes)
    return made


def check_sources(tensors):
    for k in tensors:
        k.memory.check_unchanged()


def outputs(random, tensors, shapes):
    """An output for each tensor."""
    pairs = zip(tensors, shapes, strict=True)
    return [output(random, k.x, dtype_of(k), shape) for k, shape in pairs]


def lies_in(x, memory):
    """Whether a result is memory of its source."""
    place = x.buffer if isinstance(x, sj.Tensor) else x
    return np.may_share_memory(place, memory.whole)


def as_view(codes, shape):
    """The codes in this shape without a copy; None where there is no such view."""
    try:
        return codes.reshape(shape, copy=False)
    except ValueError:
        return None


def view_of(k, shape):
    """Whether the elements lie so that they can be seen in this shape.

    NumPy answers, for an array with the same strides.
    """
    strides = k.x.strides
    places = np.lib.stride_tricks.as_strided(np.empty(0, np.uint8), k.x.shape, strides)
    return as_view(places, shape) is not None


def asked(random, shape):
    """A shape as people write it: a -1 in it, an array of it."""
    shape = list(shape)
    if shape and random.random() < 0.4:
        at = random.randrange(len(shape))
        if prod(shape[:at] + shape[at + 1 :]) > 0:
            shape[at] = -1
    return random.choice([tuple, list, partial(np.array, dtype=np.int64)])(shape)


# One call for each tensor


def reshape(random):
    for k in many(random, 7):
        shape = shape_of(random, k.codes.size)
        codes = k.codes.reshape(shape)
        target = asked(random, shape)
        match how := random.choice([None, True, False, "out"]):
            case "out":
                (out,) = outputs(random, [k], [shape])
                call = random.choice(reshapes(k, 0 in shape))
                made = attempt(lambda: call(k.x, target, out=out.x), [out], [codes])  # noqa: B023
                assert made is None or made is out.x
            case False if not view_of(k, shape):
                try:
                    sj.reshape(k.x, target, copy=False)
                except sj.ReshapeError:
                    pass
                else:
                    raise AssertionError("copy=False gave a view where there is none")
            case _:
                call = random.choice(reshapes(k, 0 in shape))
                made = call(k.x, target, copy=how)
                check_same(made, k.x, dtype_of(k), codes)
                if k.codes.size:
                    assert lies_in(made, k.memory) == (how is not True and view_of(k, shape))
        check_sources([k])


def reshapes(k, zeros):
    """The reshapes of all dialects that mean the same here."""
    calls, kind = [sj.reshape], dtype_of(k)
    if kind.onnx is not None and kind.bits != 6 and not zeros:  # the opset's list lacks float6
        calls.append(sj.onnx.reshape)
    if kind.openvino is not None:
        calls.append(partial(sj.openvino.reshape, special_zero=False))
    if kind.onednn is not None:
        calls.append(
            lambda x, shape, **how: sj.onednn.dynamic_reshape(x, shape, special_zero=False, **how)
        )
    return calls


def ascontiguous(random):
    for k in many(random, 7):
        made = sj.ascontiguous(k.x)
        check_same(made, k.x, dtype_of(k), k.codes)
        assert made.contiguous if isinstance(made, sj.Tensor) else made.flags.c_contiguous
        (out,) = outputs(random, [k], [k.codes.shape])
        attempt(lambda: sj.ascontiguous(k.x, out=out.x), [out], [k.codes])  # noqa: B023
        check_sources([k])


def views(random):
    """The view operations themselves."""
    for k in many(random, 7):
        x, codes = k.x, k.codes
        for _ in range(random.randint(1, 6)):
            step = step_of(random, codes)
            x, codes = (
                view_step(x, *step),
                stepped(codes, *step, copy=None),
            )
            check_same(x, k.x, dtype_of(k), codes)
        check_sources([k])


def view_step(x, name, arguments):
    """The step by the package's own functions."""
    match name:
        case "slice":
            return x[arguments]
        case "flip":
            return sj.flip(x, axis=arguments)
        case "squeeze":
            return sj.squeeze(x, arguments)
        case "expand_dims":
            return sj.expand_dims(x, axis=arguments)
    return getattr(sj, name)(x, arguments)


def unpacks(random):
    """Tensor -> an element a byte, new or in an output."""
    for k in many(random, 7, as_array=False):
        kind, like = dtype_of(k), np.empty(0)
        made = k.x.unpack()
        assert made.dtype == kind.codes
        assert made.shape == k.codes.shape
        assert made.tobytes() == k.codes.tobytes()
        if kind.numpy is not None:
            out = output(random, like, kind, k.codes.shape)
            assert k.x.unpack(out.x) is out.x
            out.check(k.codes)
            check_same(np.asarray(k.x), like, kind, k.codes)
        assert k.x.tobytes() == raw(k.codes, kind)
        check_sources([k])


def packs(random):
    """An element a byte -> Tensor."""
    for k in many(random, 7, dtypes=[d for d in PACKED if d.numpy is not None]):
        kind = dtype_of(k)
        out = output(random, sj.asarray(np.empty(0)), kind, k.codes.shape)
        attempt(lambda: sj.pack(k.x, out=out.x), [out], [k.codes])  # noqa: B023
        made = sj.pack(k.x)
        check_same(made, out.x, kind, k.codes)
        assert made.buffer.tobytes() == raw(k.codes, kind)
        check_sources([k])


def codes_packed(random):
    """Bytes as codes of any packed dtype, refused where one is out of its range."""
    for k in many(random, 7, dtypes=[sj.dtype("uint8")]):
        kind = random.choice(PACKED)
        codes = k.codes & (1 << kind.bits) - 1
        if random.random() < 0.8:
            k.memory.place[...] &= (1 << kind.bits) - 1
            k.memory.before[...] = k.memory.whole
        out = output(random, sj.asarray(np.empty(0)), kind, k.codes.shape)
        fits = codes_in(k.x, sj.dtype("uint8")).tobytes() == codes.tobytes()
        try:
            made = sj.pack(k.x, kind.name)
        except sj.FormatError:
            assert not fits
        else:
            assert fits, "codes out of range"
            check_same(made, out.x, kind, codes)
            attempt(lambda: sj.pack(k.x, kind, out=out.x), [out], [codes])  # noqa: B023
        check_sources([k])


def equal(random):
    """array_equal sees every bit, and no bit beside the elements."""
    for k in many(random, 7):
        kind = dtype_of(k)
        places = places_in_shape(random, k.codes.shape)
        other = known(random, kind, random.random() < 0.5 and kind.numpy is not None, places)
        want = other.codes.tobytes() == k.codes.tobytes()
        assert sj.array_equal(k.x, other.x) == want
        same = raw(k.codes, kind)
        content = np.frombuffer(bytearray(same), np.uint8)
        t = sj.Tensor.frombuffer(content, kind, k.codes.shape)
        assert sj.array_equal(k.x, t)
        assert sj.array_equal(t.T if t.ndim == 2 else t, k.x.T if t.ndim == 2 else k.x)
        if k.codes.size:
            bit = random.randrange(k.codes.size * kind.bits)
            content[bit // 8] ^= 1 << bit % 8
            assert not sj.array_equal(t, k.x)
        check_sources([k, other])


def pickled(random):
    """Pickles and copies keep elements, and whether they may be written."""
    for k in many(random, 7, as_array=False):
        for made in (
            pickle.loads(pickle.dumps(k.x, random.randint(2, 5))),
            copy.deepcopy(k.x),
            copy.copy(k.x),
        ):
            check_same(made, k.x, dtype_of(k), k.codes)
            assert made.buffer.flags.writeable == k.x.buffer.flags.writeable
        check_sources([k])


# Programs


def program_of(random, tensors):
    """A random program for tensors alike, and the codes that it makes of each."""
    dtype, codes = dtype_of(tensors[0]), tensors[0].codes
    steps, _ = steps_of(random, codes, 6, copy=None)

    def moved(t):
        for step in steps:
            t = tensor_stepped(t, *step, copy=None)
        return t

    def expected(codes):
        for step in steps:
            codes = stepped(codes, *step, copy=None)
        return codes

    program = sj.plan(codes.shape, dtype, moved)
    if random.random() < 0.1:
        program = pickle.loads(pickle.dumps(program))
    wanted = [expected(k.codes) for k in tensors]
    assert program.shape == wanted[0].shape
    return program, wanted


def programs(random):
    """One call for each tensor, some of them repeated."""
    tensors = many(random, 100, alike=True)
    program, wanted = program_of(random, tensors)
    for k, codes in zip(tensors, wanted, strict=True):
        check_same(program(k.x), k.x, program.dtype, codes)
        out = output(random, k.x, program.dtype, codes.shape)
        for _ in range(random.choice([1, 1, 5])):
            attempt(lambda: program(k.x, out=out.x), [out], [codes])  # noqa: B023
    check_sources(tensors)


def maps(random):
    """All of them in one launch, into whatever `map` takes."""
    tensors = many(random, alike=True)
    program, wanted = program_of(random, tensors)
    xs = [k.x for k in tensors]
    match random.choice(["new", "list", "slab", "function"]):
        case "new":
            made = program.map(random.choice([list, tuple, iter])(xs))
            for x, codes in zip(made, wanted, strict=True):
                check_same(x, xs[0], program.dtype, codes)
        case "slab":
            whole = np.stack(wanted)
            out = output(random, xs[0], program.dtype, whole.shape)
            attempt(lambda: program.map(xs, out=out.x), [out], [whole])
        case "list":
            outs = outputs(random, tensors, [program.shape] * len(xs))
            attempt(lambda: program.map(xs, out=[out.x for out in outs]), outs, wanted)
        case "function":
            outs = outputs(random, tensors, [program.shape] * len(xs))
            refusable = any(out.may_be_refused for out in outs)
            try:
                program.map(xs, out=lambda i: outs[i].x)
            except sj.ShapeJitError:
                assert refusable
            else:
                for out, codes in zip(outs, wanted, strict=True):
                    out.check(codes)
    check_sources(tensors)


def imaps(random):
    """One after the other, into memory of its own or a ring of outputs."""
    tensors = many(random, alike=True)
    program, wanted = program_of(random, tensors)
    xs = (k.x for k in tensors)
    chunk = random.choice([None, 1, 2, 3, 50, 10**6])
    if random.random() < 0.5:
        for x, codes in zip(program.imap(xs, chunk=chunk), wanted, strict=True):
            check_same(x, tensors[0].x, program.dtype, codes)
    else:
        size = random.randint(1, 5)
        ring = [output(random, tensors[0].x, program.dtype, program.shape) for _ in range(size)]
        ring = [out for out in ring if not out.may_be_refused]
        made = program.imap(xs, lambda i: ring[i % len(ring)].x, chunk=chunk)
        for i, (x, codes) in enumerate(zip(made, wanted, strict=True) if ring else ()):
            assert x is ring[i % len(ring)].x
            ring[i % len(ring)].check(codes)
    check_sources(tensors)


def stacked(random):
    """A program of a stack of tensors, which may be any view."""
    rows = random.choice([0, 1, 2, 7, 100])
    shape = (rows, *shape_within(random, COUNTS[max(rows, 1)]))
    (k,) = many(random, 1, alike=True, places=places_in_shape(random, shape))
    dtype = dtype_of(k)
    row = k._replace(codes=np.zeros(shape[1:], k.codes.dtype))
    steps, _ = steps_of(random, row.codes, 6, copy=None)

    def moved(t):
        for step in steps:
            t = tensor_stepped(t, *step, copy=None)
        return t

    wanted = []
    for codes in (k.codes[i, ...] for i in range(rows)):
        for step in steps:
            codes = stepped(codes, *step, copy=None)
        wanted.append(codes)
    program = sj.plan(shape[1:], dtype, moved)
    whole = np.stack(wanted) if rows else np.empty((0, *program.shape), k.codes.dtype)
    check_same(program.map(k.x), k.x, dtype, whole)
    out = output(random, k.x, dtype, whole.shape)
    attempt(lambda: program.map(k.x, out=out.x), [out], [whole])
    outs = outputs(random, [k] * rows, [program.shape] * rows)
    attempt(lambda: program.map(k.x, out=[out.x for out in outs]), outs, wanted)
    check_sources([k])


# Unlike tensors, and joins


def reshape_batches(random):
    tensors = many(random)
    shapes = [shape_of(random, k.codes.size) for k in tensors]
    targets = [asked(random, shape) for shape in shapes]
    one = random.random() < 0.2
    if one:
        shapes, targets = [(k.codes.size,) for k in tensors], random.choice([-1, (-1,), [-1]])
    wanted = [k.codes.reshape(shape) for k, shape in zip(tensors, shapes, strict=True)]
    xs = [k.x for k in tensors]
    names = [random.choice([i, f"w{i}", (i,)]) for i in range(len(xs))]
    keyed = random.random() < 0.3

    def arranged(values):
        return dict(zip(names, values, strict=True)) if keyed else list(values)

    if keyed and not one:
        targets = arranged(targets)
    match how := random.choice([None, True, False, "out", "out"]):
        case "out":
            outs = outputs(random, tensors, shapes)
            places = arranged(out.x for out in outs)
            made = attempt(
                lambda: sj.reshape_batch(arranged(xs), targets, out=places), outs, wanted
            )
            assert made is None or made is places
        case False if not all(view_of(k, s) for k, s in zip(tensors, shapes, strict=True)):
            try:
                sj.reshape_batch(arranged(xs), targets, copy=False)
            except sj.ReshapeError:
                pass
            else:
                raise AssertionError("copy=False gave a view where there is none")
        case _:
            made = sj.reshape_batch(arranged(xs), targets, copy=how)
            assert not keyed or list(made) == names
            results = made.values() if keyed else made
            for x, k, codes in zip(results, tensors, wanted, strict=True):
                check_same(x, k.x, dtype_of(k), codes)
                if codes.size:
                    assert lies_in(x, k.memory) == (how is not True and view_of(k, codes.shape))
    check_sources(tensors)


def joins(random):
    """concat and stack, also of parts that begin within bytes of the output."""
    tensors = many(random, alike=True)
    parts, ndim = [k.codes for k in tensors], tensors[0].codes.ndim
    xs = [k.x for k in tensors]
    if ndim and random.random() < 0.6:
        axis = random.randrange(-ndim, ndim)
        before = (slice(None),) * (axis % ndim)
        for i, part in enumerate(parts):
            cut = (*before, slice(random.choice([None, None, 1, 2]), None))
            parts[i], xs[i] = part[cut], xs[i][cut]
        join, whole = sj.concat, np.concatenate(parts, axis)
    else:
        axis = random.randrange(-ndim - 1, ndim + 1)
        join, whole = sj.stack, np.stack(parts, axis)
    kind = dtype_of(tensors[0])
    check_same(join(xs, axis=axis), xs[0], kind, whole)
    out = output(random, xs[0], kind, whole.shape)
    attempt(lambda: join(xs, axis=axis, out=out.x), [out], [whole])
    check_sources(tensors)


CALLS = [
    reshape, ascontiguous, views, unpacks, packs, codes_packed, equal, pickled,
    programs, maps, maps, maps, imaps, stacked, reshape_batches, reshape_batches, reshape_batches,
    joins, joins,
]  # fmt: skip
