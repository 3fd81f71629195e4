"""What of a folder has been written: receipts beside it, and whether its bytes are still so."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any

from ..errors import FileFormatError
from ..files.checksums import best, checksum
from ..runtime.workers import threads
from .destinations import Destination
from .items import Item, Mark

__all__ = ["Facts", "Part", "Receipts", "hashed"]

Facts = Mapping[str, str]  # what makes it the same conversion: the hash of each fact by its name
Part = tuple[int, int]  # number i of n, from 1 on

_NAME = re.compile(r"\.shapejit-receipt-([0-9]+)-of-([0-9]+)\.json")
_FIELDS = 4  # of a mark: a tensor, where its bytes begin and end, their checksum
_SHARE = 20  # a receipt is written when its last writing is that many times as long ago as it took


def hashed(facts: Mapping[str, str]) -> dict[str, str]:
    """Facts by the hash of their text."""
    return {name: hashlib.sha256(text.encode()).hexdigest() for name, text in facts.items()}


class Receipts:
    """The items that one process has finished, in a receipt of its own.

    A receipt is a JSON object: `facts` (the hashes of the source, the rules, the files to be
    made, the version of shapejit), `part`, the algorithm of the `checksum`, and for each of the
    `items` by its number its spans: the tensor, where its bytes begin and end in the file, and
    their checksum. It is written as a whole, often enough that little work is lost.
    """

    def __init__(self, where: Destination, facts: Facts, part: Part = (1, 1)) -> None:
        self.algorithm = best()
        self._where, self._facts, self._part = where, facts, part
        self._name = f".shapejit-receipt-{part[0]}-of-{part[1]}.json"
        self._items: dict[int, Sequence[Mark]] = {}
        self._lock = Lock()
        self._took = self._written = 0.0

    def check(self, hint: str) -> None:
        """FileFormatError, which ends in `hint`, where a receipt has other facts."""
        for name in self.names():
            found = self._read(name)
            for fact, own in self._facts.items():
                if found and found["facts"].get(fact) != own:
                    i, n = found["part"]
                    which = "the interrupted conversion" if n == 1 else f"part {i} of {n}"
                    reason = f"{which} had another {fact}: {hint}"
                    raise FileFormatError(self._where.path, None, reason)

    def resumed(self, items: Sequence[Item]) -> set[int]:
        """The numbers of the items that receipts have, and whose bytes are as they say."""
        known, own = self._found(), self.algorithm
        alike = [item for item in items if known.get(item.number, ("",))[0] == own]
        good = set(_whole(self._where, alike, known))
        self._items = {k: known[k][1] for k in good}
        return good

    def add(self, number: int, marks: Sequence[Mark]) -> None:
        """An item has been written."""
        with self._lock:
            self._items[number] = marks
            if time.monotonic() - self._written > _SHARE * self._took:
                # One that cannot be written costs time only, unless it is the last.
                with suppress(OSError):
                    self._write()

    def close(self) -> None:
        """Write the receipt as it is now."""
        with self._lock:
            self._write()

    def names(self) -> list[str]:
        """The receipts that are there."""
        return sorted(filter(_NAME.fullmatch, self._where.names()))

    def missing(self, items: Sequence[Item], shares: Sequence[Sequence[Item]]) -> None:
        """FileFormatError unless the receipts of n parts have all items, and their bytes are so.

        `shares` are the items of each part.
        """
        known, path = self._found(), self._where.path
        lacking = {
            k: [item for item in share if item.number not in known]
            for k, share in enumerate(shares, 1)
        }
        texts = [
            f"{k} ({len(items)} items)" if len(items) > 1 else f"{k}"
            for k, items in lacking.items()
            if items
        ]
        if texts:
            count = len(lacking)
            reason = f"of {count} parts there is no whole receipt of part {', '.join(texts)}"
            first = next(k for k, items in lacking.items() if items)
            hint = f"run --part {first}/{count}" + (" and the others" if len(texts) > 1 else "")
            raise FileFormatError(path, None, f"{reason}: {hint}")
        good = _whole(self._where, items, known)
        wrong = [item for item in items if item.number not in good]
        if wrong:
            name = next((s.name for s in wrong[0].spans if s.name), "")
            part = next(k for k, share in enumerate(shares, 1) if wrong[0] in share)
            reason = f"its bytes in {wrong[0].file} are not those of the receipt"
            raise FileFormatError(path, name, f"{reason}: run --part {part}/{len(shares)} again")

    def _found(self) -> dict[int, tuple[str, Sequence[Mark]]]:
        """The checksums of each item of which a receipt of these facts tells."""
        known: dict[int, tuple[str, Sequence[Mark]]] = {}
        for name in self.names():
            found = self._read(name)
            if found and found["facts"] == self._facts:
                known |= {k: (found["checksum"], marks) for k, marks in found["items"].items()}
        return known

    def _read(self, name: str) -> dict[str, Any]:
        """A receipt; empty for what is none."""
        text = self._where.text(name)
        try:
            found = json.loads(text or "")
            found["part"] = i, n = tuple(found["part"])
            found["items"] = {int(k): [*map(tuple, m)] for k, m in found["items"].items()}
            marks = [mark for given in found["items"].values() for mark in given]
            whole = all(len(mark) == _FIELDS for mark in marks)
            whole &= isinstance(found["facts"], dict) and isinstance(found["checksum"], str)
            return found if whole and isinstance(i + n, int) else {}
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return {}

    def _write(self) -> None:
        start = time.monotonic()
        text = json.dumps(
            {
                "part": self._part,
                "facts": self._facts,
                "checksum": self.algorithm,
                "items": self._items,
            }
        )
        self._where.put(self._name, text)
        self._written = time.monotonic()
        self._took = self._written - start


def _whole(
    where: Destination, items: Sequence[Item], known: Mapping[int, tuple[str, Sequence[Mark]]]
) -> set[int]:
    """The numbers of the items whose bytes are what is known of them."""

    def right(item: Item) -> bool:
        algorithm, marks = known[item.number]
        spans = [(span.name, span.at, span.at + span.nbytes) for span in item.spans]
        return spans == [mark[:3] for mark in marks] and all(
            checksum(algorithm, where.read(item.file, begin, end)) == (end - begin, wanted)
            for _, begin, end, wanted in marks
        )

    from ..files.ahead import Threads  # which takes a while, and few need it

    with Threads(threads()) as pool:
        found = pool.map(right, items)
        return {item.number for item, good in zip(items, found, strict=True) if good}
