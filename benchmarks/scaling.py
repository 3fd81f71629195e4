"""Where a distributed conversion stops to scale: 1 to 10 000 workers, simulated.

    python -m benchmarks.scaling --storage lustre --total 1TiB --item 8MiB --item 64MiB

Workers (a core each) take items one after the other: a task from the scheduler, which hands out
one at a time; a range from storage; the conversion; a range to storage. Storage answers after a
latency, gives each worker a rate of its own, and all together no more than its bandwidth. The size
of an item is in bytes written, as `shapejit convert --item-size` is, and so is the total. What an
item costs was measured (`benchmarks.item_costs`); the storage is a row of STORAGES, or given.
(`shapejit.operations.scaling`, of the same name, is about scales of quantised numbers.)
"""

import argparse
import json
import sys
from dataclasses import dataclass, replace
from math import ceil, inf

from .repository import ROOT

COSTS = ROOT / "benchmarks" / "costs"
WORKERS = (1, 3, 10, 30, 100, 300, 1000, 3000, 10000)
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
SIMULATED = 20_000  # items at most: of more the formula alone is drawn
HALF = 0.5  # of the speed that workers would have who share nothing: scaling has ended


@dataclass(frozen=True)
class Storage:
    """Latency in seconds per request; bytes per second of one worker, and of all together."""

    latency: float
    stream: float
    bandwidth: float

    @property
    def streams(self):
        """How many workers storage serves at once, each at its full rate."""
        return max(1, int(self.bandwidth / self.stream))

    @property
    def rate(self):
        """Bytes per second of a worker that is served."""
        return min(self.stream, self.bandwidth)


# Orders of magnitude of such systems; --latency, --stream and --bandwidth say what yours has.
STORAGES = {
    "nvme": Storage(1e-4, 2e9, 6e9),  # one machine's own disk
    "nfs": Storage(1e-3, 5e8, 1.2e9),  # one server behind 10 Gbit/s
    "lustre": Storage(2e-3, 1e9, 1e11),
    "s3": Storage(3e-2, 9e7, 1e11),  # per connection
}


@dataclass(frozen=True)
class Item:
    """What one item costs: bytes read and written, seconds of a core, of the scheduler.

    `call` are those of the seconds of a core that the item's size has no influence on.
    """

    read: float
    written: float
    work: float
    task: float
    call: float = 0.0

    @classmethod
    def of(cls, nbytes, costs):
        """An item of `nbytes` written, by measured costs, which are per byte read."""
        read, call = nbytes / costs["written_per_byte"], costs["seconds_per_item"]
        work = call + read * costs["seconds_per_byte"]
        return cls(read, nbytes, work, costs["seconds_per_task"], call)

    def moved(self, storage):
        """Seconds in which its bytes go through storage, once that has answered."""
        return (self.read + self.written) / storage.rate

    def alone(self, storage):
        """Seconds of an item with nobody else around."""
        return self.task + 2 * storage.latency + self.moved(storage) + self.work

    def on_bytes(self, storage):
        """Seconds of `alone` that are in proportion to the item's size."""
        return self.work - self.call + self.moved(storage)


def bounds(workers, items, item, storage):
    """Seconds that each of what is shared takes at least for all items, by its name."""
    return {
        "workers": ceil(items / workers) * item.alone(storage),
        "scheduler": items * item.task,
        "storage": items * item.moved(storage) / storage.streams,
    }


def seconds(workers, items, item, storage):
    """The time of the whole, and what bounds it: the workers, the scheduler or the storage."""
    found = bounds(workers, items, item, storage)
    limit = max(found, key=found.get)
    return found[limit], limit


def simulated(workers, items, item, storage):
    """The time of the whole, event by event."""
    import simpy

    env = simpy.Environment()
    scheduler = simpy.Resource(env, 1)
    streams = simpy.Resource(env, storage.streams)
    left = iter(range(items))

    def moved(nbytes):
        yield env.timeout(storage.latency)
        with streams.request() as turn:
            yield turn
            yield env.timeout(nbytes / storage.rate)

    def worker():
        for _ in left:
            with scheduler.request() as turn:
                yield turn
                yield env.timeout(item.task)
            yield from moved(item.read)
            yield env.timeout(item.work)
            yield from moved(item.written)

    for _ in range(min(workers, items)):
        env.process(worker())
    env.run()
    return env.now


def most_workers(items, item, storage):
    """The number of workers from which on another one is wasted, and on what it would wait."""
    alone = item.alone(storage)
    ends = {
        "items": items,
        "scheduler": alone / item.task if item.task else inf,
        "storage": alone * storage.streams / moved if (moved := item.moved(storage)) else inf,
    }
    limit = min(ends, key=ends.get)
    return max(1, int(ends[limit])), limit


def rows(sizes, total, costs, storage):
    """One row per size of an item and number of workers; efficiency beside work on bytes alone."""
    for nbytes in sizes:
        item, items = Item.of(nbytes, costs), max(1, round(total / nbytes))
        best = items * item.on_bytes(storage)
        for workers in WORKERS:
            time, limit = seconds(workers, items, item, storage)
            exact = simulated(workers, items, item, storage) if items <= SIMULATED else None
            yield {
                "item": nbytes,
                "items": items,
                "workers": workers,
                "seconds": time,
                "simulated": exact,
                "efficiency": best / workers / (exact or time),
                "limit": limit,
            }


def table(found):
    """The rows as text."""
    lines = ["    item  workers      time  simulated  efficiency  bound by"]
    for row in found:
        exact = "-" if row["simulated"] is None else f"{row['simulated']:.1f} s"
        lines.append(
            f"{text(row['item']):>8} {row['workers']:8d} {row['seconds']:7.1f} s {exact:>10} "
            f"{row['efficiency']:10.0%}  {row['limit']}"
        )
    return "\n".join(lines)


def summary(sizes, total, costs, storage):
    """For each size of an item: where scaling ends, and what an item costs beside its bytes."""
    lines = ["    item    items  overhead  ends at  bound by    bytes in a worker"]
    for nbytes in sizes:
        item, items = Item.of(nbytes, costs), max(1, round(total / nbytes))
        overhead = 1 - item.on_bytes(storage) / item.alone(storage)
        end, limit = most_workers(items, item, storage)
        memory = text(item.read + item.written)
        lines.append(
            f"{text(nbytes):>8} {items:8d} {overhead:9.1%} {end:8d}  {limit:10} {memory:>18}"
        )
    return "\n".join(lines)


def chart(found):
    """The rows as a page of HTML that plotly draws: efficiency over the workers."""
    import plotly.graph_objects as go

    figure = go.Figure()
    for nbytes in dict.fromkeys(row["item"] for row in found):
        own = [row for row in found if row["item"] == nbytes]
        figure.add_scatter(
            x=[row["workers"] for row in own],
            y=[row["efficiency"] for row in own],
            text=[f"{row['seconds']:.1f} s, bound by {row['limit']}" for row in own],
            name=f"items of {text(nbytes)}",
            mode="lines+markers",
        )
    figure.add_hline(y=HALF, line_dash="dot")
    figure.update_layout(
        template="plotly_white", xaxis_title="workers", yaxis_title="efficiency of a worker"
    )
    figure.update_xaxes(type="log")
    figure.update_yaxes(range=[0, 1.05], tickformat=".0%")
    return figure.to_html(include_plotlyjs=True)


def text(nbytes):
    """A number of bytes in its largest unit."""
    unit = max((u for u in UNITS if UNITS[u] <= nbytes), key=UNITS.get, default="KiB")
    return f"{nbytes / UNITS[unit]:.4g} {unit}"


def size(given):
    """The bytes, one or more, that a text such as 64MiB means."""
    factor, number = 1, given
    for unit, nbytes in UNITS.items():
        if given.endswith(unit):
            factor, number = nbytes, given.removesuffix(unit)
    return max(1, round(positive(number) * factor))


def positive(given):
    """A number above 0."""
    found = float(given)
    if not 0 < found < inf:
        raise argparse.ArgumentTypeError(f"{given} is not a number above 0")
    return found


def duration(given):
    """Seconds, 0 or more."""
    found = float(given)
    if not 0 <= found < inf:
        raise argparse.ArgumentTypeError(f"{given} is not a number of seconds, 0 or more")
    return found


def costs_of(name=None):
    """What was measured, of the machine named or the one recorded last; raises LookupError."""
    known = {path.stem: path for path in sorted(COSTS.glob("*.json"))}
    if not known or name not in {None, *known}:
        asked = name or "any machine"
        raise LookupError(f"no costs of {asked} in {COSTS}, but of: {', '.join(known) or 'none'}")
    paths = known.values() if name is None else [known[name]]
    return max((json.loads(path.read_text()) for path in paths), key=lambda c: c["recorded"])


def main(argv=None):
    """0 printed, 2 wrong arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scaling",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--storage", choices=STORAGES, default="lustre")
    parser.add_argument("--latency", type=duration, help="seconds per request")
    parser.add_argument("--stream", type=positive, help="bytes per second of one worker")
    parser.add_argument("--bandwidth", type=positive, help="bytes per second of all together")
    parser.add_argument("--task", type=duration, help="seconds of the scheduler per task")
    parser.add_argument("--total", type=size, default=UNITS["TiB"], help="bytes written (1TiB)")
    parser.add_argument("--item", type=size, action="append", help="bytes written; repeatable")
    parser.add_argument("--costs", metavar="MACHINE", help="if not those recorded last")
    parser.add_argument("--html", metavar="FILE", help="draw the curves, too")
    args = parser.parse_args(argv)
    given = {k: getattr(args, k) for k in ("latency", "stream", "bandwidth")}
    known = {k: value for k, value in given.items() if value is not None}
    storage = replace(STORAGES[args.storage], **known)
    try:
        costs = costs_of(args.costs)
    except LookupError as fault:
        parser.error(fault.args[0])
    if args.task is not None:
        costs = {**costs, "seconds_per_task": args.task}
    sizes = args.item or [size(each) for each in ("1MiB", "8MiB", "64MiB", "512MiB")]
    found = list(rows(sizes, args.total, costs, storage))
    print(f"costs of {costs['machine']['machine']}, {costs['recorded']}; {args.storage}: {storage}")
    print(f"\n{summary(sizes, args.total, costs, storage)}\n\n{table(found)}")
    if args.html:
        with open(args.html, "w", encoding="utf-8") as file:
            file.write(chart(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
