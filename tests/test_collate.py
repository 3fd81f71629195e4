"""shapejit.adapters.torch compared with torch's default_collate, also in worker processes."""

import os
import pickle
import subprocess
import sys
from collections import OrderedDict, namedtuple
from math import inf
from multiprocessing import shared_memory

import ml_dtypes
import numpy as np
import pytest

import shapejit as sj
from shapejit.engine import patience

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, IterableDataset, default_collate, get_worker_info  # noqa: E402  # behind importorskip

from shapejit.adapters.torch import Collate, collate_fn  # noqa: E402  # behind importorskip

Sample = namedtuple("Sample", ["image", "label"])

LOAD = sj.plan((16, 160, 3), "uint8", lambda t: t.permute_dims((2, 0, 1)).dequantize(1 / 255))


@pytest.fixture(autouse=True)
def numpy_does_small_work(monkeypatch):
    monkeypatch.setattr(patience, "patience", lambda: inf)


def images(count, dtype=np.uint8):
    rng = np.random.default_rng(0)
    return [*rng.integers(0, 256, (count, 16, 160, 3), np.uint8).astype(dtype)]


def loaded(image):
    return torch.from_numpy(image).permute(2, 0, 1).float() * np.float32(1 / 255)


def check_same(made, expected):
    assert type(made) is type(expected)
    if isinstance(made, torch.Tensor):
        assert (made.dtype, made.shape) == (expected.dtype, expected.shape)
        assert made.is_contiguous()
        assert torch.equal(made, expected)
    elif isinstance(made, dict):
        assert [*made] == [*expected]
        for key in made:
            check_same(made[key], expected[key])
    elif isinstance(made, tuple | list):
        assert len(made) == len(expected)
        for x, y in zip(made, expected, strict=True):
            check_same(x, y)
    else:
        assert made == expected


SAMPLES = {
    "arrays": images(9),
    "float": images(9, np.float32),
    "bool": images(9, bool),
    "views": [x.swapaxes(0, 2)[:, ::2] for x in images(9)],
    "small": [x[:2, :2] for x in images(9)],
    "0-d": [np.array(i) for i in range(3)],
    "no elements": [np.empty((0, 3))] * 2,
    "scalars": [np.float32(i) for i in range(3)],
    "tensors": [torch.from_numpy(x) for x in images(9)],
    "bfloat16": [torch.from_numpy(x).bfloat16() for x in images(9)],
    "tuples": [(x, i, i / 2, str(i), bytes([i])) for i, x in enumerate(images(9))],
    "dicts": [{"image": x, "more": [x[0], {"label": i}]} for i, x in enumerate(images(9))],
    "ordered": [OrderedDict(image=x, label=i) for i, x in enumerate(images(9))],
    "namedtuples": [Sample(x, i) for i, x in enumerate(images(9))],
    "mixed dtypes": [images(1)[0], images(1, np.float32)[0]],
}


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_become_what_torch_makes_of_them(name):
    samples = SAMPLES[name]
    check_same(collate_fn(samples), default_collate(samples))


def test_views_that_torch_does_not_take():
    for rows in (images(9), [x[:2, :2] for x in images(9)]):
        check_same(
            collate_fn([x[::-1] for x in rows]), default_collate([x[::-1].copy() for x in rows])
        )


@pytest.mark.parametrize(
    "samples",
    [
        [np.zeros((2, 3)), np.zeros((3, 2))],
        [np.array("a"), np.array("b")],
        [np.array(None)],
        [object()],
        [(1, 2), (1,)],
        [np.zeros(2), "a"],
        [np.zeros(2, "datetime64[s]")],
    ],
)
def test_what_torch_refuses_is_refused(samples):
    errors = []
    for collate in (default_collate, collate_fn):
        with pytest.raises(Exception) as caught:  # noqa: PT011  # whatever torch raises
            collate(samples)
        errors.append((type(caught.value), str(caught.value)))
    assert errors[0] == errors[1]


def test_a_program_is_done_to_what_fits_it():
    raw = images(9)
    samples = [{"image": x, "mask": x[0], "label": i} for i, x in enumerate(raw)]
    made = Collate(LOAD)(samples)
    expected = default_collate([{**s, "image": loaded(s["image"])} for s in samples])
    check_same(made, expected)
    check_same(Collate(LOAD)([torch.from_numpy(x) for x in raw]), expected["image"])
    free = sj.plan((None, 160, 3), "uint8", lambda t: t.permute_dims((2, 0, 1)).dequantize(1 / 255))
    check_same(Collate(free)(raw), expected["image"])
    half = sj.plan((16, 160, 3), "uint8", lambda t: t.cast("bfloat16"))
    check_same(Collate(half)(raw), default_collate([torch.from_numpy(x).bfloat16() for x in raw]))
    with pytest.raises(sj.DTypeError, match="program must be a Program"):
        Collate(lambda t: t)


def test_arrays_that_a_program_does_not_fit_are_not_left_raw():
    image, other = images(2)
    for odd, fault in (
        (image.astype(np.int16), "the dtype is int16, the program's uint8"),
        (image[:8], r"the shape is \(8, 160, 3\), the program's \(16, 160, 3\)"),
    ):
        for samples in ([image, odd], [{"x": image, "y": 0}, {"x": odd, "y": 1}]):
            with pytest.raises(sj.ShapeJitError, match=f"sample 1: {fault}"):
                Collate(LOAD)(samples)
        with pytest.raises(sj.ShapeJitError, match=f"sample 0: {fault}"):
            Collate(LOAD)([torch.from_numpy(odd), torch.from_numpy(other)])
        for samples in ([odd, odd], [(odd, 1), (odd, 2)]):
            with pytest.raises(sj.ReshapeError, match=f"no array of the samples fits .*: {fault}"):
                Collate(LOAD)(samples)
    assert Collate(LOAD)([1, 2]).tolist() == [1, 2]


def test_programs_with_packed_results():
    x = np.arange(-4, 4, dtype=np.float32)
    codes = x.astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
    pairs = (codes[::2] | codes[1::2] << 4).tolist()
    program = sj.plan((8,), "float32", lambda t: t.cast("float4_e2m1fn"))
    for samples in ([x, x], [torch.from_numpy(x)] * 2):
        made = Collate(program)(samples)
        assert made.dtype == torch.float4_e2m1fn_x2
        assert made.view(torch.uint8).tolist() == [pairs, pairs]
    for kind in ("int4", "uint3"):
        with pytest.raises(sj.DTypeError, match=kind):
            Collate(sj.plan((8,), "float32", lambda t, kind=kind: t.cast(kind)))([x, x])


class Tagged(torch.Tensor):
    """Tensors that stay Tagged whatever is done to them."""


def test_tensors_of_a_subclass():
    samples = [torch.from_numpy(x).as_subclass(Tagged) for x in images(2)]
    assert type(default_collate(samples)) is Tagged
    check_same(collate_fn(samples), default_collate(samples))
    check_same(collate_fn([{"x": x[:1]} for x in samples])["x"], default_collate(samples)[:, :1])
    check_same(Collate(LOAD)(samples), default_collate([*map(loaded, images(2))]))


def test_memory_of_ones_own():
    memory = shared_memory.SharedMemory(create=True, size=9 * LOAD.nbytes)
    try:
        collate = Collate(LOAD, allocate=lambda shape, dtype: np.ndarray(shape, dtype, memory.buf))
        raw = images(9)
        made = collate(raw)
        check_same(made, default_collate(list(map(loaded, raw))))
        seen = np.ndarray((9, *LOAD.shape), np.float32, memory.buf)
        seen[0] = 0.25
        assert made[0].eq(0.25).all()
        del made, seen
        slab = np.ndarray((9, *LOAD.shape), np.float32, memory.buf)
        LOAD.map(raw, out=slab)  # the same without torch
        assert slab[8].tobytes() == loaded(raw[8]).numpy().tobytes()
        del slab
    finally:
        memory.close()
        memory.unlink()


class Stream(IterableDataset):
    """Every image with its number and that of the worker."""

    def __init__(self, count):
        self.count = count

    def __iter__(self):
        worker = get_worker_info()
        rows = images(9)
        for i in range(worker.id, self.count, worker.num_workers):
            yield rows[i % 9] + np.uint8(i), i


def check_batches(loader, kept=0):
    """Each batch is that of its numbers, also those that are kept while others come."""
    raw, held, seen = images(9), [], []
    for batch, numbers in loader:
        assert type(batch) is torch.Tensor
        held = [*held, (batch, numbers)][-kept - 1 :]
        for x, ids in held:
            expected = [raw[i % 9] + np.uint8(i) for i in ids.tolist()]
            check_same(x, default_collate(list(map(loaded, expected))))
        seen += numbers.tolist()
    return sorted(seen)


@pytest.mark.parametrize("kept", [0, 3, 100])
def test_batches_of_workers(kept):
    loader = DataLoader(Stream(60), 4, num_workers=2, collate_fn=Collate(LOAD))
    assert check_batches(loader, kept) == [*range(60)]


def in_worker(batch):
    """What a user may do to a batch before it leaves the worker."""
    made = collate_fn(batch)
    assert type(pickle.loads(pickle.dumps(made))) is torch.Tensor
    return {"half": made[: len(made) // 2], "float": made.float(), "whole": made, "again": [made]}


def test_what_workers_make_of_a_batch():
    raw = images(8)
    (made,) = DataLoader(raw, 8, num_workers=1, collate_fn=in_worker)
    expected = default_collate(raw)
    half, floats = expected[:4], expected.float()
    for _ in range(2):  # the first slab may be filled again once nobody uses it
        check_same(made["half"], half)
        check_same(made["float"], floats)
        check_same(made["whole"], expected)
        check_same(made["again"], [expected])
        (other,) = DataLoader(raw[::-1], 8, num_workers=1, collate_fn=in_worker)
        check_same(other["whole"], expected.flip(0))


PROGRAM = """
import os, signal, time
import numpy as np
from torch.utils.data import DataLoader, Dataset
from shapejit.adapters.torch import collate_fn

class Images(Dataset):
    def __init__(self, killer):
        self.killer = killer
    def __len__(self):
        return 400
    def __getitem__(self, i):
        if i == self.killer:
            os.kill(os.getpid(), signal.SIGKILL)
        return np.full((160, 160, 3), i % 251, np.uint8)

def mapped():
    return open("/proc/self/maps").read().count("memfd:shapejit")

names, count = {*os.listdir("/dev/shm")}, mapped()
def nothing_is_left():
    for _ in range(600):  # others have names there, too, for a while
        if mapped() == count and names.issuperset(os.listdir("/dev/shm")):
            return True
        time.sleep(0.1)
for killer in (105, None):
    loader = DataLoader(Images(killer), 10, num_workers=2, collate_fn=collate_fn)
    try:
        for n, batch in enumerate(loader):
            assert batch[3].eq((10 * n + 3) % 251).all()
            if n == 20:
                print("broke off", mapped() > count)
                break
    except RuntimeError as fault:
        print("died", "worker" in str(fault))
    batch = None
    del loader
    print(nothing_is_left())
"""


def test_nothing_is_left_of_shared_memory():
    own = {name: value for name, value in os.environ.items() if name != patience.PATIENCE_VARIABLE}
    command = [sys.executable, "-c", PROGRAM]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600, env=own)
    lines = ["died True", "True", "broke off True", "True", ""]
    assert (run.stdout.split("\n"), run.stderr) == (lines, "")


def test_collate_pickles():
    raw = images(9)
    again = pickle.loads(pickle.dumps(Collate(LOAD)))
    check_same(again(raw), Collate(LOAD)(raw))
