"""The size of a core's cache, as the system reports it, and plans that depend on it."""

import numpy as np
import pytest

import shapejit as sj
from shapejit.planning.planner import plan
from shapejit.runtime import cpu_caches
from shapejit.shapes.layout import Layout

KIB = 1024
SIZES = 512 * KIB, 1024 * KIB, 2048 * KIB


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A function that makes Linux tell of these caches: (level, type, size) by folder."""
    monkeypatch.setattr(cpu_caches, "LINUX", tmp_path)
    monkeypatch.setattr("sys.platform", "linux")

    def tells(*caches):
        for k, cache in enumerate(caches):
            folder = tmp_path / f"index{k}"
            folder.mkdir()
            for name, text in zip(("level", "type", "size"), cache, strict=False):
                (folder / name).write_text(f"{text}\n")
        cpu_caches.l2.cache_clear()
        return cpu_caches.l2()

    yield tells
    cpu_caches.l2.cache_clear()


@pytest.mark.parametrize(
    ("caches", "size"),
    [
        ([("1", "Data", "48K"), ("2", "Unified", "1024K"), ("3", "Unified", "32M")], 1024),
        ([("2", "Instruction", "256K"), ("2", "Data", "1M")], 1024),
        ([("2", "Unified", "524288")], 512),
        ([("2", "Unified", "128K")], 256),
        ([("2", "Unified", "16384K")], 2048),
        ([], 2048),
        ([("3", "Unified", "32768K")], 2048),
        ([("2", "Unified")], 2048),
        ([("2", "Unified", "")], 2048),
        ([("2", "Unified", "0K")], 2048),
        ([("two", "Unified", "1M"), ("2", "Unified", "a lot"), ("2", "Unified", "512K")], 512),
    ],
    ids=str,
)
def test_what_linux_tells(system, caches, size):
    assert system(*caches) == size * KIB


def test_where_macos_says_nothing_a_size_is_assumed(system, monkeypatch):
    """Linux has no sysctlbyname, or none that knows these names."""
    system()
    monkeypatch.setattr("sys.platform", "darwin")
    monkeypatch.setattr(cpu_caches, "MACOS", (b"hw.nosuchcache",))
    cpu_caches.l2.cache_clear()
    assert cpu_caches.l2() == cpu_caches.DEFAULT


def transposed(shape, axes, bits):
    return plan(Layout.row_major(shape, bits).permute(axes), bits)


def box(made):
    """The bytes of a box of the target."""
    return made.nbytes // int(np.prod([loop.size for loop in made.loops], dtype=int))


def test_plans_follow_the_cache(l2):
    """Boxes fill the same part of each cache, and replace long tiles from twice a cache on."""
    boxes, late, tiles = {}, {}, {}
    for size in SIZES:
        l2(size)
        boxes[size] = box(transposed((512, 31, 17, 33, 15), (4, 2, 0, 3, 1), 8))
        late[size] = [
            transposed((rows, 64), (1, 0), 8).strategy.name for rows in (10_000, 20_000, 40_000)
        ]
        tiles[size] = int(transposed((4096, 4096), (1, 0), 8).sides.tile[1][4])
    assert boxes[SIZES[0]] <= 128 * KIB < boxes[SIZES[1]] <= 256 * KIB
    assert boxes[SIZES[2]] == boxes[SIZES[1]]
    assert late == {
        SIZES[0]: ["TILES", "BOXES", "BOXES"],
        SIZES[1]: ["TILES", "TILES", "BOXES"],
        SIZES[2]: ["TILES", "TILES", "TILES"],
    }
    assert tiles == {SIZES[0]: 256, SIZES[1]: 512, SIZES[2]: 512}


@pytest.mark.parametrize("size", SIZES)
def test_copies_are_the_same(l2, size):
    l2(size)
    rng = np.random.default_rng(0)
    for shape, axes in [((300, 31, 17, 15), (3, 1, 0, 2)), ((1500, 1100), (1, 0))]:
        x = rng.integers(0, 256, shape, np.uint8).transpose(axes)
        assert sj.ascontiguous(x).tobytes() == x.tobytes()
    codes = rng.integers(0, 2, (64, 64, 64, 16)).astype(np.uint8)
    narrow = sj.pack(codes, "uint1").permute_dims((2, 0, 3, 1))
    assert np.array_equal(sj.unpack(sj.ascontiguous(narrow)), codes.transpose(2, 0, 3, 1))
