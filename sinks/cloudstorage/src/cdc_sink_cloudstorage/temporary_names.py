"""Names of files that are being written, by which the leftovers of earlier attempts are found and removed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

_NAME = re.compile(r"([0-9a-f]{16})-([0-9a-f]{16})-[0-9a-f]+\.tmp")


@dataclass(frozen=True, slots=True, kw_only=True)
class TemporaryNames:
    """The names of the temporary files of one attempt of a changefeed.

    Several changefeeds may share a root, so a name says which changefeed it belongs to. A file with a lower epoch of
    the same changefeed is a leftover, because an attempt begins only after the one before has ended. If a writer of
    that attempt is still alive, for example on a host that was cut off, its rename fails and its file stays invisible.
    """

    changefeed: str
    epoch: int

    def new(self, unique: str) -> str:
        """Return a name that contains *unique*, hex digits that no other writer uses."""
        return f"{self.owner}-{self.epoch:016x}-{unique}.tmp"

    def leftovers(self, names: Iterable[str]) -> list[str]:
        """Return those of *names* that belong to earlier attempts of this changefeed."""
        found = ((name, _NAME.fullmatch(name)) for name in names)
        return [name for name, parts in found if parts and parts[1] == self.owner and int(parts[2], 16) < self.epoch]

    @property
    def owner(self) -> str:
        """The first part of all names of this changefeed, before the first hyphen."""
        return hashlib.blake2b(self.changefeed.encode(), digest_size=8).hexdigest()
