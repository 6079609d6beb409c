"""Mistakes with options, secrets and what is left behind."""

from __future__ import annotations

import logging
import os
import socket
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from cdc_conformance.reference.sink import ReferenceOptions, ReferenceSink
from cdc_core import ConfigError, SliceInfo
from cdc_core.options import option

__all__ = [
    "DividesOptions",
    "HoldsALock",
    "KnowsTypos",
    "LeavesFiles",
    "LeavesSockets",
    "LeavesTemporaries",
    "LeavesThreads",
    "LogsOptions",
    "NamesSecrets",
    "PrintsProgress",
    "SaysNothing",
    "ShowsOptions",
]

logger = logging.getLogger(__name__)


class KnowsTypos(ReferenceSink):
    """Accepts, for compatibility, every spelling that somebody once used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowsTyposOptions(ReferenceOptions):
    partiitons: int = option(3, doc="Partitions of each topic.")


class SaysNothing(ReferenceSink):
    """Has an option whose name should say enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaysNothingOptions(ReferenceOptions):
    mode: str = option("fast", doc="")


class DividesOptions(ReferenceSink):
    """Computes with an option before it has looked at it."""


class DividesOptionsOptions(ReferenceOptions):
    __slots__ = ()

    def __post_init__(self) -> None:
        divmod(self.buffer_size, self.partitions)
        super().__post_init__()


class HoldsALock(ReferenceSink):
    """Keeps among its options what cannot leave the process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldsALockOptions(ReferenceOptions):
    guard: str | None = option(threading.Lock(), doc="Guards the options.")


class ShowsOptions(ReferenceSink):
    """Has a helpful `repr`."""

    def __repr__(self) -> str:
        return f"ShowsOptions(password={self.options.password!r})"


class NamesSecrets(ReferenceSink):
    """Tells in an error with which password it did not work."""

    def check(self) -> None:
        try:
            super().check()
        except ConfigError as error:
            raise ConfigError(f"{error} (password {self.options.password})") from error


class LogsOptions(ReferenceSink):
    """Logs what it was set up with."""

    def begin(self, slice_: SliceInfo) -> None:
        logger.debug("begins %s with password %s", slice_, self.options.password)
        super().begin(slice_)


class LeavesThreads(ReferenceSink):
    """Has a thread that nobody ends."""

    def begin(self, slice_: SliceInfo) -> None:
        super().begin(slice_)
        threading.Thread(target=threading.Event().wait, args=(20,), daemon=True).start()


class LeavesSockets(ReferenceSink):
    """Has a connection that nobody closes."""

    def begin(self, slice_: SliceInfo) -> None:
        super().begin(slice_)
        socket.socket().detach()


class LeavesFiles(ReferenceSink):
    """Has a file that nobody closes."""

    def begin(self, slice_: SliceInfo) -> None:
        super().begin(slice_)
        os.open(os.devnull, os.O_RDONLY)


class LeavesTemporaries(ReferenceSink):
    """Spools to a file that nobody removes."""

    def begin(self, slice_: SliceInfo) -> None:
        super().begin(slice_)
        for path in Path(tempfile.gettempdir()).glob(f"spool-{os.getpid()}-*"):
            path.unlink()  # leave one, not thousands
        descriptor, _ = tempfile.mkstemp(prefix=f"spool-{os.getpid()}-")
        os.close(descriptor)


class PrintsProgress(ReferenceSink):
    """Tells the terminal how it is doing."""

    def begin(self, slice_: SliceInfo) -> None:
        super().begin(slice_)
        os.write(1, f"slice {slice_.index} of step {slice_.step}\n".encode())
