"""Mistakes in construction and `close`, in the destination, with options and secrets, and with what is left."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from cdc_conformance.reference.sink import ReferenceDestination, ReferenceOptions, ReferenceSink
from cdc_conformance.sabotage.breaking import breaks, mistakes
from cdc_conformance.sabotage.broken_sinks.tampering import WatchedSink, cut, probe
from cdc_core import ConfigError, Flushed, RetryableSinkError, RowBatch, SinkContext, SliceInfo, TableName, option

logger = logging.getLogger(__name__)


@mistakes
class Lifecycle(WatchedSink):
    @breaks("test_constructors_have_no_side_effects", "__init__")
    def creates_in_constructor(self, context: SinkContext) -> None:
        """Creates its directory in the constructor."""
        super().__init__(context)
        with contextlib.suppress(OSError):
            self.partitions.root.mkdir(parents=True, exist_ok=True)

    @breaks("test_unused_parts_can_be_closed", "close")
    def closes_only_after_begin(self) -> None:
        """Sets in `begin` what `close` needs."""
        assert self.slices
        super().close()

    @breaks("test_closing_twice_is_harmless", "close")
    def closes_only_once(self) -> None:
        """Closes a handle that is closed already."""
        self.require_open()
        super().close()

    @breaks("test_another_sink_of_the_attempt_can_repeat_a_slice", "begin")
    def refuses_known_slices(self, slice_: SliceInfo) -> None:
        """Uses the numbers of a slice as a name that must be new."""
        super().begin(slice_)
        name = self.partitions.root / f".slice-{self.context.epoch}-{slice_.step}-{slice_.index}"
        try:
            name.touch(exist_ok=False)
        except FileExistsError:
            raise RetryableSinkError(f"{name} already exists; wait until it is removed") from None
        except OSError as error:
            raise RetryableSinkError(f"cannot create {name}; try again") from error

    @breaks("test_use_after_close_is_an_error", "require_open")
    def writes_after_close(self) -> None:
        """Never checks whether it is closed."""

    @breaks("test_an_empty_batch_is_accepted", "emit")
    def needs_rows(self, rows: RowBatch) -> None:
        """Looks at the first row of every batch."""
        rows.shown_key(0)
        super().emit(rows)

    @breaks("test_a_slice_without_rows_can_be_flushed", "flush")
    def needs_something_to_flush(self) -> Flushed:
        """Raises an error when there is nothing to flush."""
        if not self.emits:
            raise RetryableSinkError("there is nothing to flush; emit rows first")
        return super().flush()

    @breaks("test_repr_is_harmless", "__repr__")
    def shows_its_buffer(self) -> str:
        """Has a `repr` that works only before `close`."""
        self.require_open()
        return f"ShowsItsBuffer({len(self.buffer)} lines)"


@mistakes
class Destinations(ReferenceDestination):
    @breaks("test_check_accepts_a_usable_destination", "check")
    def requires_directory(self) -> None:
        """Refuses in `check` a directory that `prepare` would create."""
        super().check()
        if not self.partitions.root.is_dir():
            raise ConfigError(f"the directory {self.partitions.root} does not exist; create it")

    @breaks("test_check_changes_nothing", "check")
    def probes_by_writing(self) -> None:
        """Creates a file in `check` and removes it again."""
        super().check()
        nearest = next(path for path in (self.partitions.root, *self.partitions.root.parents) if path.exists())
        file = nearest / f"{self.partitions.root.name}.probe"
        file.touch()
        file.unlink()

    @breaks("test_check_refuses_an_unusable_destination", "check")
    def accepts_any_destination(self) -> None:
        """Checks nothing, because the first row will show."""

    @breaks("test_prepare_can_be_repeated", "prepare")
    def treats_empty_as_missing(self) -> None:
        """Creates each topic that has no rows, although it exists."""
        probe(self.partitions)
        for topic in self.partitions.topics:
            directory = self.partitions.path(topic, 0).parent
            if directory.exists() and not any(True for part in range(3) for _ in self.partitions.read(topic, part)):
                raise RetryableSinkError(f"{directory} exists; remove it")
        super().prepare()

    @breaks("test_prepare_keeps_existing_rows", "prepare")
    def empties_topics(self) -> None:
        """Starts every run with empty topics."""
        super().prepare()
        for topic, partition in self.partitions.endpoints:
            cut(self.partitions, topic, partition)

    @breaks("test_topic_connects_to_nothing", "topic")
    def connects_for_topics(self, table: TableName) -> str:
        """Creates a topic to find out its name."""
        topic = super().topic(table)
        with contextlib.suppress(OSError):
            self.partitions.path(topic, 0).parent.mkdir(parents=True, exist_ok=True)
        return topic

    @breaks("test_full_table_names_give_different_topics", "topic")
    def ignores_full_names(self, table: TableName) -> str:
        """Names a topic after the table alone."""
        return table.table

    @breaks("test_tables_with_unusual_names_have_their_own_topics", "topic")
    def flattens_names(self, table: TableName) -> str:
        """Replaces every character that its destination does not accept by an underscore."""
        return re.sub(r"[^a-z0-9.]", "_", super().topic(table).lower())


@breaks("test_a_misspelt_option_is_refused_with_a_hint")
@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptsTypos(ReferenceOptions):
    """Accepts a wrong spelling of an option, for compatibility."""

    partiitons: int = option(3, doc="Number of partitions per topic.")


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
