"""Mistakes with options and secrets, and with what is left after `close`."""

from __future__ import annotations

import logging
import os
import socket
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from cdc_conformance.reference.destination import ReferenceDestination
from cdc_conformance.reference.options import ReferenceOptions
from cdc_conformance.reference.sink import ReferenceSink
from cdc_core import ConfigError, SliceInfo, option

__all__ = [
    "AcceptsTypos",
    "DividesByAnOption",
    "DocumentsNothing",
    "HoldsALock",
    "LeavesFiles",
    "LeavesSockets",
    "LeavesTemporaryFiles",
    "LeavesThreads",
    "LogsSecrets",
    "PrintsProgress",
    "PutsSecretsIntoErrors",
    "ShowsSecrets",
]

logger = logging.getLogger(__name__)


class AcceptsTypos(ReferenceSink):
    """Accepts a wrong spelling of an option, for compatibility."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptsTyposOptions(ReferenceOptions):
    partiitons: int = option(3, doc="Partitions of each topic.")


class DocumentsNothing(ReferenceSink):
    """Has an option without a text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentsNothingOptions(ReferenceOptions):
    mode: str = option("fast", doc="")


class DividesByAnOption(ReferenceSink):
    """Computes with an option before it has checked the value."""


class DividesByAnOptionOptions(ReferenceOptions):
    __slots__ = ()

    def __post_init__(self) -> None:
        divmod(self.buffer_size, self.partitions)
        super().__post_init__()


class HoldsALock(ReferenceSink):
    """Keeps a lock in its options, so that they cannot leave the process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldsALockOptions(ReferenceOptions):
    guard: str | None = option(threading.Lock(), doc="Guards the options.")


class ShowsSecrets(ReferenceSink):
    """Shows its password in `repr`."""

    def __repr__(self) -> str:
        return f"ShowsSecrets(password={self.options.password!r})"


class PutsSecretsIntoErrors(ReferenceDestination):
    """Names the password in an error."""

    def check(self) -> None:
        try:
            super().check()
        except ConfigError as error:
            raise ConfigError(f"{error} (password {self.context.options.password})") from error


class LogsSecrets(ReferenceSink):
    """Logs its options."""

    def begin(self, slice_: SliceInfo) -> None:
        logger.debug("began %s with password %s", slice_, self.options.password)
        super().begin(slice_)


class LeavesThreads(ReferenceSink):
    """Starts a thread and never ends it."""

    def begin(self, slice_: SliceInfo) -> None:
        super().begin(slice_)
        threading.Thread(target=threading.Event().wait, args=(20,), daemon=True).start()


class LeavesSockets(ReferenceSink):
    """Opens a socket and never closes it."""

    def begin(self, slice_: SliceInfo) -> None:
        super().begin(slice_)
        socket.socket().detach()


class LeavesFiles(ReferenceSink):
    """Opens a file and never closes it."""

    def begin(self, slice_: SliceInfo) -> None:
        super().begin(slice_)
        os.open(os.devnull, os.O_RDONLY)


class LeavesTemporaryFiles(ReferenceSink):
    """Creates a temporary file and never removes it."""

    def begin(self, slice_: SliceInfo) -> None:
        super().begin(slice_)
        for path in Path(tempfile.gettempdir()).glob(f"spool-{os.getpid()}-*"):
            path.unlink()  # leave one, not thousands
        descriptor, _ = tempfile.mkstemp(prefix=f"spool-{os.getpid()}-")
        os.close(descriptor)


class PrintsProgress(ReferenceSink):
    """Prints its progress."""

    def begin(self, slice_: SliceInfo) -> None:
        super().begin(slice_)
        os.write(1, f"slice {slice_.index} of step {slice_.step}\n".encode())
