"""Names of files that are being written, so that those of dead runs can be told apart and removed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Temporaries"]

_NAME = re.compile(r"([0-9a-f]{16})-([0-9a-f]{16})-[0-9a-f]+\.tmp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Temporaries:
    """The temporary files of one run of a changefeed.

    Several changefeeds may share a root, so a name says whose it is. A file of a lower epoch of the same changefeed is
    dead: a run begins only after the one before has ended. Should one of its writers still live, on a host cut off,
    its rename fails, and nothing of it becomes visible.
    """

    changefeed: str
    epoch: int

    def new(self, unique: str) -> str:
        """Return a name that holds *unique*, hex digits which no other writer uses."""
        return f"{self.owner}-{self.epoch:016x}-{unique}.tmp"

    def of_dead_runs(self, names: Iterable[str]) -> list[str]:
        """Return those of *names* that earlier runs of this changefeed left behind."""
        found = ((name, _NAME.fullmatch(name)) for name in names)
        return [name for name, parts in found if parts and parts[1] == self.owner and int(parts[2], 16) < self.epoch]

    @property
    def owner(self) -> str:
        """What names of this changefeed begin with, before a hyphen."""
        return hashlib.blake2b(self.changefeed.encode(), digest_size=8).hexdigest()
