"""Mistakes in construction and `close`, and in the destination."""

from __future__ import annotations

import contextlib
import re

from cdc_conformance.reference.sink import ReferenceDestination
from cdc_conformance.sabotage.breaking import breaks, mistakes
from cdc_conformance.sabotage.broken_sinks.tampering import WatchedSink, cut, probe
from cdc_core import ConfigError, Flushed, RetryableSinkError, RowBatch, SinkContext, SliceInfo, TableName


@mistakes
class Lifecycle(WatchedSink):
    """Begins or ends wrongly."""

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
            raise RetryableSinkError(f"{name} exists already; wait until it is removed") from None
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
    """Checks, prepares or names wrongly."""

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
