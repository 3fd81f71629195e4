"""A folder at a URL as the destination: files appear one by one, the index last."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ..errors import FileFormatError
from ..files.places import places, put
from ..files.sharded import SINGLE, SUFFIX
from .folders import Folder

_PLAN = ".shapejit-plan-"  # what the names of plans begin with


class RemoteFolder:
    """A folder at a URL (see `runs.destination`).

    Files cannot be renamed there: each appears when it has been sent completely. The index is sent
    last, so readers find no incomplete checkpoint; a checkpoint of a single file has no index, and
    is found when that file has been sent. An existing checkpoint is not replaced, and nothing is
    written if the folder cannot be listed. Until the end the plan is stored next to the files,
    under a name with its hash. There are no locks: two conversions must not write to it at a time.
    """

    def __init__(self, plan: Folder) -> None:
        self._plan, self.path, self._place = plan, plan.path, places(plan.path)
        self.folder = self.path
        self._name, self._published = f"{_PLAN}{plan.hash}.json", False

    @property
    def begun(self) -> bool:
        """Whether something was sent for this plan."""
        self._place.fresh(self.path)
        return self._name in self._place.listed(self.path)

    @contextmanager
    def taken(self, alone: bool, keep: bool, needed: int) -> Iterator[None]:
        """Begin to write, or continue. Raises FileFormatError if there is a checkpoint."""
        self._place.fresh(self.path)
        before = {*self._place.listed(self.path)}
        plans = {name for name in before if name.startswith(_PLAN)}
        whole = (SINGLE in before and not plans) or any(name.endswith(SUFFIX) for name in before)
        if whole and not (keep and self._name in before):  # only its last steps are missing
            reason = "it holds a checkpoint, which cannot be replaced in one step by URL"
            raise FileFormatError(self.path, None, f"{reason}: remove it, or name another folder")
        if keep:
            for name in plans - {self._name}:
                url = self._place.join(self.path, name)
                file = self._place.open(url)
                text = file.bytes(0, file.size).decode(errors="replace")
                raise self._plan.begun_otherwise(text, alone, url)
        else:
            gone = plans | ({shard.name for shard in self._plan.shards} & before)
            self._remove(gone)
            before -= gone
        if self._name not in before:
            put(self.path, self._name, self._plan.plan)
        try:
            yield
        finally:
            if not self._published and not keep:
                self._place.fresh(self.path)
                for name in {self._name, *self._plan.names} - before:
                    with suppress(OSError):
                        self._remove({name})

    def tidy(self) -> None:
        """Nothing: other files may belong to anyone."""

    def publish(self) -> None:
        """All files are in place: remove those that the folder no longer has."""
        self._remove({*(self._plan.gone - self._plan.names), self._name})
        self._published = True

    def _remove(self, names: set[str]) -> None:
        for name in names:
            self._place.remove(self._place.join(self.path, name))
