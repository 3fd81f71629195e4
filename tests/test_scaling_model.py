"""benchmarks/scaling.py: what can be computed by hand, and the formula beside the simulation."""

import json

import pytest

from benchmarks import scaling
from benchmarks.scaling import Item, Storage

pytest.importorskip("simpy")

FREE = Storage(latency=0, stream=1e15, bandwidth=1e18)
COSTS = {
    "seconds_per_item": 0.5,
    "seconds_per_byte": 1e-3,
    "written_per_byte": 2.0,
    "seconds_per_task": 0.0,
}


def both(workers, items, item, storage):
    """The simulated time, and that of the formula."""
    return scaling.simulated(workers, items, item, storage), scaling.seconds(
        workers, items, item, storage
    )


def test_one_worker_takes_the_sum_of_all_costs():
    storage = Storage(latency=0.25, stream=100, bandwidth=1000)
    item = Item.of(1000, {**COSTS, "seconds_per_task": 0.125})
    one = 0.125 + 2 * 0.25 + 1500 / 100 + 0.5 + 0.5  # 1000 bytes written, 500 read
    exact, (time, limit) = both(1, 7, item, storage)
    assert exact == pytest.approx(7 * one)
    assert (time, limit) == (pytest.approx(7 * one), "workers")


@pytest.mark.parametrize("workers", [2, 10, 100])
def test_workers_that_share_nothing_are_as_much_faster_as_they_are_many(workers):
    item = Item(read=0, written=0, work=3.0, task=0)
    assert both(workers, 300, item, FREE)[0] == pytest.approx(3.0 * 300 / workers)
    assert scaling.simulated(workers, 301, item, FREE) == pytest.approx(3.0 * (300 // workers + 1))


def test_storage_is_the_limit():
    storage = Storage(latency=0, stream=100, bandwidth=400)  # four workers at once
    item = Item(read=100, written=100, work=1.0, task=0)
    exact, (time, limit) = both(100, 200, item, storage)
    assert (time, limit) == (200 * 2.0 / 4, "storage")
    assert time <= exact <= time + item.alone(storage)
    assert scaling.most_workers(200, item, storage) == (6, "storage")


def test_the_scheduler_is_the_limit():
    item = Item(read=0, written=0, work=1.0, task=0.01)
    exact, (time, limit) = both(1000, 5000, item, FREE)
    assert (time, limit) == (pytest.approx(50.0), "scheduler")
    assert time <= exact <= time + 1.0 + 1e-6
    assert scaling.most_workers(5000, item, FREE) == (101, "scheduler")


@pytest.mark.parametrize("storage", scaling.STORAGES)
@pytest.mark.parametrize("workers", [1, 5, 40, 400])
def test_the_formula_is_near_the_simulation(storage, workers):
    item = Item.of(8 << 20, scaling.costs_of())
    exact, (time, _) = both(workers, 1200, item, scaling.STORAGES[storage])
    assert 0.999 * time <= exact <= 1.35 * time + item.alone(scaling.STORAGES[storage])


def test_overhead_and_end_of_a_size_as_convert_counts_it():
    """Item sizes are bytes of the destination, of which FP8 to bfloat16 reads half."""
    mib, costs, storage = 1 << 20, scaling.costs_of(), scaling.STORAGES["lustre"]
    lines = scaling.summary([8 * mib, 64 * mib], 1 << 40, costs, storage).split("\n")[1:]
    for nbytes, line in zip((8 * mib, 64 * mib), lines, strict=True):
        rest = costs["seconds_per_item"] + costs["seconds_per_task"] + 2 * storage.latency
        own = nbytes / 2 * costs["seconds_per_byte"] + 1.5 * nbytes / storage.stream
        _, _, items, overhead, end, *_ = line.split()
        assert int(items) == (1 << 40) // nbytes
        assert float(overhead.rstrip("%")) == pytest.approx(100 * rest / (rest + own), abs=0.1)
        assert int(end) == int((rest + own) / costs["seconds_per_task"])


def test_the_command(tmp_path, capsys):
    page = tmp_path / "scaling.html"
    options = ["--total", "2GiB", "--item", "16MiB", "--item", "1GiB", "--html", str(page)]
    assert scaling.main([*options, "--storage", "nfs", "--task", "0.001"]) == 0
    lines = capsys.readouterr().out
    assert "16 MiB      128" in lines
    assert lines.count("bound by") == 2
    assert "items of 16 MiB" in page.read_text()


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--item", "0", "0 is not a number above 0"),
        ("--item", "-1MiB", "expected one argument"),
        ("--item", "many", "invalid size value"),
        ("--total", "0TiB", "0 is not a number above 0"),
        ("--bandwidth", "0", "0 is not a number above 0"),
        ("--stream", "nan", "nan is not a number above 0"),
        ("--latency", "-1", "-1 is not a number of seconds"),
        ("--task", "inf", "inf is not a number of seconds"),
        ("--costs", "foo", "no costs of foo in "),
    ],
)
def test_wrong_arguments(option, value, message, capsys):
    with pytest.raises(SystemExit) as caught:
        scaling.main([option, value])
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_costs_say_what_they_were_measured_on():
    for path in scaling.COSTS.glob("*.json"):
        found = json.loads(path.read_text())
        assert found["machine"]["machine"] == path.stem
        assert found["seconds_per_byte"] > 0
        assert len(found["commit"]) == 40
