"""Programs on batches of columns, in dask's bags and delayed lists, and in other processes."""

import pickle
import re
from math import inf

import numpy as np
import pytest

import shapejit as sj
from shapejit.engine import patience

TURN = sj.plan((2, 3), "uint8", lambda t: t.T.cast("float32"))
ROWS = sj.plan((None, 3), "uint8", lambda t: t.T.cast("float32"))


@pytest.fixture(autouse=True)
def numpy_does_small_work(monkeypatch):
    monkeypatch.setattr(patience, "patience", lambda: inf)


def images(count, shape=(2, 3)):
    return np.arange(count * np.prod(shape), dtype=np.uint8).reshape(count, *shape)


def turned(stack):
    return stack.swapaxes(1, 2).astype(np.float32)


def objects(arrays):
    made = np.empty(len(arrays), object)
    made[:] = arrays
    return made


def check_same(made, expected):
    assert (made.dtype, made.shape) == (expected.dtype, expected.shape)
    if made.dtype == object:
        for x, y in zip(made, expected, strict=True):
            check_same(x, y)
    else:
        assert made.tobytes() == expected.tobytes()


@pytest.mark.parametrize("program", [TURN, ROWS])
@pytest.mark.parametrize("count", [0, 1, 5])
def test_map_batches(program, count):
    batch = {"label": np.arange(count), "image": images(count), "depth": images(count)}
    kept = {name: column.copy() for name, column in batch.items()}
    made = program.map_batches(batch)
    assert [*made] == [*batch]
    assert made["label"] is batch["label"]
    for name in ("image", "depth"):
        check_same(made[name], turned(batch[name]))
    made = program.map_batches(batch, columns=["depth"])
    assert made["image"] is batch["image"]
    check_same(made["depth"], turned(batch["depth"]))
    for name, column in kept.items():
        check_same(batch[name], column)


def test_rows_of_one_shape_in_an_object_array_become_one_array():
    stack = images(4)
    for program in (TURN, ROWS):
        for column in (objects([*stack]), [*stack]):
            made = program.map_batches({"image": column}, columns="image")
            check_same(made["image"], turned(stack))
        check_same(program.map_batches({"image": objects([*stack])})["image"], turned(stack))


def test_rows_of_several_lengths():
    rows = [images(1, (n, 3))[0] for n in (2, 5, 2)]
    made = ROWS.map_batches({"image": objects(rows)})
    check_same(made["image"], objects([x.T.astype(np.float32) for x in rows]))
    with pytest.raises(sj.ReshapeError, match=r"column 'image': tensor 1: .* \(5, 3\)"):
        TURN.map_batches({"image": objects(rows)})


def test_object_arrays_without_rows():
    batch = {"image": objects([]), "label": np.arange(0)}
    for program in (TURN, ROWS):
        for columns in (None, "image"):
            made = program.map_batches(batch, columns=columns)
            assert [*made] == [*batch]
            assert {name: len(column) for name, column in made.items()} == {"image": 0, "label": 0}
            assert made["label"] is batch["label"]


def test_what_is_refused():
    batch = {"image": images(2), "label": np.arange(2)}
    with pytest.raises(sj.UnknownNameError, match="did you mean 'image'"):
        TURN.map_batches(batch, columns=["imag"])
    with pytest.raises(sj.ReshapeError, match="column 'label'"):
        TURN.map_batches(batch, columns="label")
    wrong = {"image": images(2).astype(np.int8), "label": images(2)[:, 0], "text": "ab"}
    with pytest.raises(sj.ReshapeError) as told:
        TURN.map_batches(wrong)
    for name, why in {
        "image": "the dtype is int8, the program's uint8",
        "label": r"the shape is \(.*\), the program's",
        "text": "str is no ndarray of rows",
    }.items():
        assert re.search(f"column '{name}': {why}", str(told.value))
    with pytest.raises(sj.ReshapeError, match="the batch is empty"):
        TURN.map_batches({})
    with pytest.raises(sj.DTypeError, match="column 'image': "):
        TURN.map_batches({"image": images(2).astype(np.int8)}, columns="image")
    with pytest.raises(sj.DTypeError, match="a batch is a dict"):
        TURN.map_batches(images(2))
    with pytest.raises(sj.DTypeError, match="column 'image': a column is an ndarray"):
        TURN.map_batches({"image": 3}, columns="image")


@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_bags_and_delayed_lists(scheduler):
    dask = pytest.importorskip("dask")
    bag = pytest.importorskip("dask.bag")
    stack = images(7)
    expected = turned(stack)
    program = pickle.loads(pickle.dumps(TURN))
    with dask.config.set(scheduler=scheduler):
        items = bag.from_sequence([*stack], npartitions=3)
        check_same(np.stack(items.map(program).compute()), expected)
        check_same(np.stack(items.map_partitions(program.map).compute()), expected)
        many = dask.delayed(program.map)([dask.delayed(x) for x in stack])
        check_same(np.stack(many.compute()), expected)


def test_equal_programs_are_equal_tasks():
    tokenize = pytest.importorskip("dask.base").tokenize
    program = sj.plan((2, 3), "uint8", lambda t: t.T.cast("float32"))
    before = tokenize(program)
    program.map([*images(3)])
    assert before == tokenize(program) == tokenize(TURN)
    assert before != tokenize(sj.plan((2, 3), "uint8", lambda t: t.T))
