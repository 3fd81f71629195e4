"""This machine: its name in the history, whether it is idle, and its recorded results."""

import json
import os
import platform
import re
import time

from shapejit.bench.machine import fact, machine as described_machine, processor
from shapejit.runtime.cpu_caches import data_caches

from .exits import MeasureError
from .repository import RESULTS, RecordError, git

QUIET = 0.5  # load average of a machine that measures nothing but itself
_VENDORS = {"GenuineIntel": "intel", "AuthenticAMD": "amd", "0x41": "arm", "0xc0": "ampere"}
_WIDEST = {"avx512f": "avx512", "avx2": "avx2", "sve": "sve"}  # the first that it has


def name_of_this():
    """What tells machines with other figures apart: processor, vectors, caches, cores.

    Vendor, family and model, the widest vectors, the caches that a core sees from the second
    level on, and the number of cores; no frequency, which is calibrated anew at each boot.
    """
    vendor = _VENDORS.get(fact("vendor"), fact("vendor")) or processor()
    flags = fact("flags").split()
    vectors = next((text for flag, text in _WIDEST.items() if flag in flags), "128-bit")
    caches = [f"l{level} {size >> 10}K" for level, size in data_caches() if level > 1]
    cores = f"{os.cpu_count()} cores"
    parts = [vendor, fact("family"), fact("model"), vectors, *caches, cores]
    return re.sub(r"[^a-z0-9]+", "-", " ".join(parts).lower()).strip("-")


def machine(name=None):
    """The facts asv stores of a machine; those recorded for its name, if there are any.

    The name says what it is, so that another machine of the kind has the same
    curves, and no other; facts that change with an update of the system are left out.
    """
    name = name or name_of_this()
    known = RESULTS / name / "machine.json"
    if known.is_file():
        facts = json.loads(known.read_text())
        facts.pop("version", None)
        return facts
    facts = {"machine": name, "os": platform.system(), "arch": platform.machine()}
    return {**facts, "cpu": processor(), "num_cpu": str(os.cpu_count()), "ram": ""}


def must_be_quiet(busy=False):
    """Raise where other programs have the cores, unless that does not matter."""
    load = os.getloadavg()[0]
    if load > QUIET and not busy:
        raise MeasureError(f"load average {load:.1f}: other programs would be measured; or --busy")


def described():
    """What a record says of the commit and the machine."""
    facts = described_machine()
    return {"commit": git("rev-parse", "HEAD"), "cpu": facts["cpu"], "threads": facts["threads"]}


def keep(folder, text, name=None):
    """Write what was measured today on this machine: the path."""
    folder.mkdir(parents=True, exist_ok=True)
    day = time.strftime("%Y-%m-%d", time.gmtime())
    path = folder / f"{day}-{machine(name)['machine']}.json"
    path.write_text(text)
    return path


def last(folder):
    """The text of the last record."""
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise RecordError(f"nothing is recorded in {folder}")
    return paths[-1].read_text()
