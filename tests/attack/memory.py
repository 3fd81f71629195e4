"""Memory in which every byte besides the requested ones is watched or protected."""

from typing import NamedTuple

import numpy as np
from guarded import guarded
from views import dirt

MARGIN = 80  # bytes beside the place, more than a cache line


class Memory(NamedTuple):
    """`place` is for use, a part of `whole`; `before` is what stood in `whole` at first."""

    place: np.ndarray
    whole: np.ndarray
    before: np.ndarray

    def check_beside(self):
        """Nothing but the place has changed."""
        at = self.place.ctypes.data - self.whole.ctypes.data
        end = at + self.place.size
        for part in (slice(0, at), slice(end, None)):
            changed = np.flatnonzero(self.whole[part] != self.before[part])
            assert not changed.size, f"bytes {changed + (part.start or 0) - at} beside the memory"

    def check_unchanged(self):
        """Nothing has changed."""
        changed = np.flatnonzero(self.whole != self.before)
        assert not changed.size, f"bytes {changed} of memory that should stay as it is"

    @property
    def place_before(self):
        """What stood in the place at first."""
        at = self.place.ctypes.data - self.whole.ctypes.data
        return self.before[at : at + self.place.size]


def memory_of(random, content):
    """These bytes (uint8) in memory of any kind."""
    whole, at = random.choice([watched, ends_at_guard, begins_at_guard])(random, content.size)
    whole[...] = dirt(whole.size, random.getrandbits(32))
    place = whole[at : at + content.size]
    place[...] = content
    return Memory(place, whole, whole.copy())


def watched(random, nbytes):
    """In the midst of more memory, at any byte of a line."""
    return np.empty(nbytes + 2 * MARGIN + 64, np.uint8), MARGIN + random.randrange(64)


def ends_at_guard(random, nbytes):
    """The byte behind the last one must not be touched."""
    whole = guarded(nbytes)
    return whole, whole.size - nbytes


def begins_at_guard(random, nbytes):
    """The byte before the first one must not be touched."""
    return guarded(nbytes), 0
