"""Mistakes with options and secrets, and with what is left after `close`."""

from __future__ import annotations

import logging
import os
import socket
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from cdc_conformance.reference.partitions import ReferenceOptions
from cdc_conformance.reference.sink import ReferenceDestination, ReferenceSink
from cdc_conformance.sabotage.breaking import breaks, mistakes
from cdc_core import ConfigError, SliceInfo, option

logger = logging.getLogger(__name__)


@breaks("test_a_misspelt_option_is_refused_with_a_hint")
@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptsTypos(ReferenceOptions):
    """Accepts a wrong spelling of an option, for compatibility."""

    partiitons: int = option(3, doc="Partitions of each topic.")


@breaks("test_every_option_is_documented")
@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentsNothing(ReferenceOptions):
    """Has an option without a text."""

    mode: str = option("fast", doc="")


@breaks("test_any_value_of_an_option_is_accepted_or_refused")
class DividesByAnOption(ReferenceOptions):
    """Computes with an option before it has checked the value."""

    __slots__ = ()

    def __post_init__(self) -> None:
        divmod(self.buffer_size, self.partitions)
        super().__post_init__()


@breaks("test_options_survive_pickle")
@dataclass(frozen=True, slots=True, kw_only=True)
class HoldsALock(ReferenceOptions):
    """Keeps a lock in its options, so that they cannot leave the process."""

    guard: str | None = option(threading.Lock(), doc="Guards the options.")


@breaks("test_secrets_do_not_show_in_errors")
class PutsSecretsIntoErrors(ReferenceDestination):
    """Names the password in an error."""

    def check(self) -> None:
        try:
            super().check()
        except ConfigError as error:
            raise ConfigError(f"{error} (password {self.context.options.password})") from error


@mistakes
class Surroundings(ReferenceSink):
    """Shows secrets, or leaves something behind."""

    @breaks("test_secrets_do_not_show_in_repr", "__repr__")
    def shows_secrets(self) -> str:
        """Shows its password in `repr`."""
        return f"ShowsSecrets(password={self.options.password!r})"

    @breaks("test_secrets_are_not_logged", "begin")
    def logs_secrets(self, slice_: SliceInfo) -> None:
        """Logs its options."""
        logger.debug("began %s with password %s", slice_, self.options.password)
        super().begin(slice_)

    @breaks("test_no_thread_is_left", "begin")
    def leaves_threads(self, slice_: SliceInfo) -> None:
        """Starts a thread and never ends it."""
        super().begin(slice_)
        threading.Thread(target=threading.Event().wait, args=(20,), daemon=True).start()

    @breaks("test_no_socket_is_left", "begin")
    def leaves_sockets(self, slice_: SliceInfo) -> None:
        """Opens a socket and never closes it."""
        super().begin(slice_)
        socket.socket().detach()

    @breaks("test_no_file_is_left_open", "begin")
    def leaves_files(self, slice_: SliceInfo) -> None:
        """Opens a file and never closes it."""
        super().begin(slice_)
        os.open(os.devnull, os.O_RDONLY)

    @breaks("test_no_temporary_file_is_left", "begin")
    def leaves_temporary_files(self, slice_: SliceInfo) -> None:
        """Creates a temporary file and never removes it."""
        super().begin(slice_)
        for path in Path(tempfile.gettempdir()).glob(f"spool-{os.getpid()}-*"):
            path.unlink()  # leave one, not thousands
        descriptor, _ = tempfile.mkstemp(prefix=f"spool-{os.getpid()}-")
        os.close(descriptor)

    @breaks("test_nothing_is_printed", "begin")
    def prints_progress(self, slice_: SliceInfo) -> None:
        """Prints its progress."""
        super().begin(slice_)
        os.write(1, f"slice {slice_.index} of step {slice_.step}\n".encode())
