"""A kind of benchmark that asv lacks: a ratio of interleaved calls, one sample per round."""

import re

from asv_runner.benchmarks import benchmark_types
from asv_runner.benchmarks.track import TrackBenchmark

TURNS, SECONDS = 13, 0.003


def ratios(measure, ways, turns=TURNS):
    """The time of the first way over that of the second, both interleaved: a number a round."""
    clocks = {name: measure.clock(way) for name, way in ways.items()}
    ours, theirs = measure.samples(clocks, turns, SECONDS).values()
    return [a / b for a, b in zip(ours, theirs, strict=False)]


class RatioBenchmark(TrackBenchmark):
    """A benchmark `ratio_...`, whose turns asv takes as samples; with --quick there is one."""

    name_regex = re.compile("^ratio_.+$")

    def run(self, *param):
        quick = any(getattr(source, "repeat", 0) == 1 for source in self._attr_sources)
        return {"samples": self.func(*param, turns=1 if quick else TURNS), "number": 1}


benchmark_types.append(RatioBenchmark)
