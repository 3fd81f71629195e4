"""Memory that one process fills repeatedly, and others read in place."""

import subprocess
import sys

import numpy as np
import pytest

from shapejit.adapters import shared_slabs
from shapejit.adapters.shared_slabs import RECEIVERS, Sent, Slabs, received


def test_a_slab_is_filled_again_once_nobody_uses_it():
    slabs = Slabs()
    slab = slabs.take(100)
    memory = slab.memory(100)
    memory[:] = 7
    assert slabs.take(100) is not slab
    sent = [slab.sent(), slab.sent()]
    part = memory[:10]
    del memory
    assert not slab.free
    del part
    assert not slab.free  # on its way, twice
    first, second = (received(each) for each in sent)
    assert np.array_equal(first[:100], np.full(100, 7, np.uint8))
    first[0] = 9
    assert second[0] == 9
    part = first[5:6]
    del first, second
    assert not slab.free
    del part
    assert slab.free
    assert slabs.take(90) is slabs.take(100)


def test_the_smallest_slab_that_is_large_enough():
    slabs = Slabs()
    held = [slabs.take(size).memory(size) for size in (300, 100, 200)]
    assert len({memory.ctypes.data for memory in held}) == 3
    del held
    assert [slabs.take(size).nbytes for size in (150, 50, 201)] == [200, 100, 300]
    assert slabs.take(301).nbytes == 301


def test_more_receivers_than_there_is_room_for():
    slab = Slabs().take(10)
    memory = slab.memory(10)
    sent = [slab.sent() for _ in range(RECEIVERS + 1)]
    assert [each is None for each in sent] == [False] * RECEIVERS + [True]
    mapped = [received(each) for each in sent[:-1]]
    assert all(np.array_equal(each[:10], memory) for each in mapped)
    del mapped
    assert slab.sent() is not None


def test_a_slab_whose_process_has_ended():
    slab = Slabs().take(10)
    sent = slab.sent()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with pytest.raises(OSError, match="No such file"):
        received(sent._replace(process=ended.pid))
    with pytest.raises(OSError, match="the process that sent this has ended"):
        received(sent._replace(inode=sent.inode + 1))


ENDING = """
import os, sys, time
from shapejit.adapters.shared_slabs import Slabs
slab = Slabs().take(10)
sent = slab.sent()
os.close(sent.descriptor)  # as the end of a process does, a while before it has ended
print(*sent, flush=True)
sys.stdin.read()
time.sleep(0.2)
os._exit(0)
"""


def test_a_slab_whose_process_is_ending(monkeypatch):
    monkeypatch.setattr(shared_slabs, "EXIT_SECONDS", 600.0)
    with subprocess.Popen(
        [sys.executable, "-c", ENDING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as ending:
        sent = Sent(*map(int, ending.stdout.readline().split()))
        ending.stdin.close()
        with pytest.raises(FileNotFoundError):
            received(sent)
        assert ending.poll() is not None
