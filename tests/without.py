"""A pytest plugin that removes what other systems lack, before shapejit is imported."""

# These are imported first: on Linux they take for granted what they find.
import asyncio  # noqa: F401
import ctypes
import mmap
import multiprocessing.util  # noqa: F401
import os
import shutil  # noqa: F401
import signal
import sys
import tempfile  # noqa: F401
from contextlib import suppress

import pytest

VARIABLE = "SHAPEJIT_TEST_WITHOUT"

LACKING = {
    "huge pages": [(mmap, "MADV_HUGEPAGE")],
    "populated maps": [(mmap, "MAP_POPULATE")],
    "private maps": [(mmap, "MAP_PRIVATE"), (mmap, "MAP_ANONYMOUS"), (mmap, "MADV_DONTNEED")],
    "sysconf": [(os, "sysconf")],
    "fcntl": [],
    "SIGHUP": [(signal, "SIGHUP")],
    "register_at_fork": [(os, "register_at_fork")],
    "O_NOFOLLOW": [(os, "O_NOFOLLOW"), (os, "O_DIRECTORY"), (os, "O_CLOEXEC")],
    "O_NONBLOCK": [(os, "O_NONBLOCK")],
    "preadv": [(os, "preadv")],
    "pread": [(os, "preadv"), (os, "pread")],
    "renameat2": [],
    "copy_file_range": [(os, "copy_file_range")],
    "memfd_create": [(os, "memfd_create")],
    "pidfd_open": [(os, "pidfd_open")],
    "/proc": [],
    "sched_getaffinity": [(os, "sched_getaffinity")],
    "sched_setaffinity": [(os, "sched_setaffinity")],
    "POSIX's calls on files": [(os, "fchmod"), (os, "fstatvfs"), (os, "getloadavg")],
    "pages of 4 KiB": [],
}


# Tests of what is there, by what they cannot do without.
NEED = {
    "/proc": {"test_memory_goes_back_to_the_system"},
    "sysconf": {"test_the_default_is_a_part_of_the_memory"},
    "fcntl": {
        "test_two_conversions_of_one_destination",
        "test_the_file_of_a_killed_writer_is_removed_by_the_next",
    },
    "renameat2": {
        "test_at_any_moment_the_destination_is_the_old_folder_or_the_new_one",
        "test_another_checkpoint_is_replaced_and_files_beside_it_stay",
    },
    "copy_file_range": {"test_a_failure_amid_writing"},
    "POSIX's calls on files": {"test_a_failure_leaves_the_destination_and_no_other_file"},
}


def take_away(names):
    if "private maps" in names:  # which torch takes for granted, too
        with suppress(ImportError):
            import torch  # noqa: F401
    for name in names:
        for module, attribute in LACKING[name]:
            if hasattr(module, attribute):
                delattr(module, attribute)
    if "fcntl" in names:
        sys.modules["fcntl"] = None
    if "renameat2" in names:
        ctypes.CDLL.__getattr__ = without_renameat2
    if "/proc" in names:
        sys.addaudithook(without_proc)
        os.stat = stat_without_proc
        os.supports_follow_symlinks.add(os.stat)
    if "pages of 4 KiB" in names:
        mmap.PAGESIZE = mmap.ALLOCATIONGRANULARITY = 65536
        known = getattr(os, "sysconf", None)
        if known:
            sizes = {"SC_PAGE_SIZE": 65536, "SC_PAGESIZE": 65536}
            os.sysconf = lambda name: sizes.get(name) or known(name)


found_by_name = ctypes.CDLL.__getattr__


def without_renameat2(library, name):
    if name == "renameat2":
        raise AttributeError(name)
    return found_by_name(library, name)


def without_proc(event, arguments):
    path = str(arguments[0]) if event in ("open", "os.scandir", "os.listdir") else ""
    if path.startswith(("/proc/", "/sys/")):
        raise FileNotFoundError(2, "No such file or directory", path)


stat = os.stat


def stat_without_proc(path, **options):
    without_proc("open", (path,))
    return stat(path, **options)


def pytest_collection_modifyitems(config, items):
    needed = set().union(*(NEED.get(name, ()) for name in WITHOUT))
    config.hook.pytest_deselected(items=[i for i in items if i.originalname in needed])
    items[:] = [item for item in items if item.originalname not in needed]
    for item in items:
        item.add_marker(pytest.mark.filterwarnings("ignore:.*is replaced by two renames"))


WITHOUT = [name for name in os.environ.get(VARIABLE, "").split(",") if name]
take_away(WITHOUT)
