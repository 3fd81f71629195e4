"""The machine at hand: what it is called in the history, and whether it is quiet."""

import json
import os
import platform
import time

from .repository import RESULTS

QUIET = 0.5  # load average of a machine that measures nothing but itself


def machine(name=None):
    """The facts asv stores of a machine; those recorded for its name, if there are any.

    The name says what it is, so that another machine of the kind has the same
    curves, and no other; facts that change with an update of the system are left out.
    """
    from shapejit.bench import machine as machines

    name = name or machines.name()
    known = RESULTS / name / "machine.json"
    if known.is_file():
        facts = json.loads(known.read_text())
        facts.pop("version", None)
        return facts
    facts = {"machine": name, "os": platform.system(), "arch": platform.machine()}
    return {**facts, "cpu": machines.processor(), "num_cpu": str(os.cpu_count()), "ram": ""}


def entry(folder, suffix, name=None):
    """Where that is kept which is measured today on this machine."""
    folder.mkdir(parents=True, exist_ok=True)
    day = time.strftime("%Y-%m-%d", time.gmtime())
    return folder / f"{day}-{machine(name)['machine']}{suffix}"
