"""A pytest plugin: each report is a line of a journal; tests that have ended are not run again."""

import json
import os
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

VARIABLE = "SHAPEJIT_TEST_JOURNAL"  # its path


class Report(NamedTuple):
    """What became of a phase of a test; its last one is the teardown."""

    test: str
    phase: str
    outcome: str = ""
    seconds: float = 0.0
    text: str = ""


def add(path, report):
    with Path(path).open("a") as file:
        file.write(json.dumps(report) + "\n")


def read(path):
    """The reports of each test since it was last started; of the last one to be started, last."""
    found = defaultdict(list)
    if Path(path).exists():
        for line in Path(path).read_text().splitlines():
            report = Report(*json.loads(line))
            if report.phase == "start":
                found.pop(report.test, None)
            found[report.test].append(report)
    return found


def has_ended(reports):
    return reports[-1].phase == "teardown"


def pytest_collection_modifyitems(config, items):
    """Leave out what has ended; the first parameters of each test come first, then the second."""
    before = Counter()
    turn = {item: before.update([item.originalname]) or before[item.originalname] for item in items}
    items.sort(key=turn.get)
    ended = {test for test, reports in read(os.environ[VARIABLE]).items() if has_ended(reports)}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in ended])
    items[:] = [item for item in items if item.nodeid not in ended]


def pytest_runtest_logstart(nodeid):
    add(os.environ[VARIABLE], Report(nodeid, "start"))


def pytest_runtest_logreport(report):
    seconds = round(report.duration, 1)
    phase = Report(report.nodeid, report.when, report.outcome, seconds, report.longreprtext)
    add(os.environ[VARIABLE], phase)
