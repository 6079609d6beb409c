"""An audit: is at the destination what is at the source?

A source cannot be read as it was at a mark in the past. So its tables are read now, as of a moment M. The destination
is reduced to the newest version of each row at a mark before M, the cut, and to all versions between the cut and a mark
after M. A row of the source must be the same as one of these: a row that did not change meanwhile has only one. A row
that the source does not have must be deleted in one of these, or not yet be there at the cut.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from cdc_core.auditing.comparison import Comparison, Difference, Figures
from cdc_core.auditing.delivered import Delivered, DeliveredFiles, DeliveredMessages
from cdc_core.auditing.layout import Layout
from cdc_core.auditing.spill import Spill
from cdc_core.config.parts import Parts
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.delivery.dead_letters import BadRow
from cdc_core.engine.temporary_run import TemporaryRun, temporary
from cdc_core.envelope_shapes import DeleteForm, RowPlace
from cdc_core.errors import BadRowError, ConfigError
from cdc_core.options import Duration, counted
from cdc_core.schema import TableName, TableSchema
from cdc_core.timestamp import Timestamp
from cdc_core.watching.evaluation import evaluation_of

_MARGIN_NS = 1_000_000_000
"""A mark this much later than the moment of the source covers it: two runs read the clock and the log one after the
other."""
_POLL_S = 0.25


class Audit:
    """Compares what *feed* has delivered with its source. `differences` is called once; `figures` grow meanwhile.

    *directory* is for files of about the size of both sides, compressed. With *at*, the destination is compared as of
    this mark. *wait_s* is how long to wait for a mark after the source was read. Its identity, if *feed* has one,
    chooses the files of one of several changefeeds of the same name. At most *most_shown* differences are yielded.
    """

    def __init__(
        self, feed: ResolvedChangefeed, directory: Path, *, at: Timestamp | None, wait_s: float, most_shown: int
    ) -> None:
        """Raises: ConfigError when the changefeed cannot be audited."""
        require_auditable(feed)
        self._feed = feed
        self._directory = directory
        self._at = at
        self._wait_s = wait_s
        self._most_shown = most_shown
        self.figures = Figures()

    def differences(self) -> Iterator[Difference]:
        """Yield the rows that are not the same; `figures` count all of them.

        Raises: ConfigError when nothing can be said about rows that differ, because the destination has no mark after
        the source was read; HistoryLostError; BadRowError; the errors of source and destination.
        """
        opened: list[Delivered] = []

        def begin(schemas: Sequence[TableSchema]) -> None:
            opened.append(self._open(schemas))
            self._require_mark(opened[0].marks())

        try:
            source = read_source(self._feed, self._directory, check=begin)
            marks, covered = self._covering(opened[0], source)
            figures = self.figures
            figures.cut, figures.upto, figures.tables = self._cut(marks, source), marks[-1], len(source.layouts)
            delivered = self._spilled(opened[0], source)
        finally:
            for each in opened:
                each.close()
        found = self._compared(source, delivered)
        if covered:
            yield from found
            return
        for _ in found:
            pass
        if figures.differences:
            raise ConfigError(
                f"{counted(figures.differences, 'row')} of {figures.rows:,} differ, but the newest resolved mark"
                f" {marks[-1]} at {self._feed.shown_destination} is older than the audited state of the source"
                f" ({source.latest}), so an undelivered change looks like a lost one. Audit '{self._feed.name}' while"
                " it runs, or run it once more first"
            )

    def _open(self, schemas: Sequence[TableSchema]) -> Delivered:
        if self._feed.sink.registration.history:
            return DeliveredFiles(self._feed)
        feed = replace(self._feed, table_names=tuple(schema.name for schema in schemas))
        return DeliveredMessages(feed, schemas)

    def _require_mark(self, marks: Sequence[Timestamp]) -> None:
        """Raises: ConfigError when the mark to compare at does not exist."""
        place = self._feed.shown_destination
        if not marks:
            raise ConfigError(
                f"there is no resolved mark at {place} yet, so there is no point in time to compare. Audit "
                f"'{self._feed.name}' after its initial scan"
            )
        if self._at is not None and self._at not in marks:
            near = [*[mark for mark in marks if mark < self._at][-1:], *[mark for mark in marks if mark > self._at][:1]]
            raise ConfigError(
                f"there is no resolved mark {self._at} at {place}. Use --at {' or --at '.join(map(str, near))}"
            )

    def _covering(self, delivered: Delivered, source: SourceRows) -> tuple[Sequence[Timestamp], bool]:
        """Return the marks up to the first one after *source*, and True; all marks and False if none comes in time.

        The last read begins when the time is over, however long one read takes: a mark that came in time is in it.
        """
        bound = Timestamp(source.latest.wall + _MARGIN_NS, source.latest.logical)
        deadline = time.monotonic() + self._wait_s
        while True:
            begun = time.monotonic()
            marks = delivered.marks()
            later = next((index for index, mark in enumerate(marks) if mark >= bound), None)
            if later is not None:
                return marks[: later + 1], True
            if begun >= deadline:
                return marks, False
            now = time.monotonic()
            time.sleep(max(0.0, min(max(_POLL_S, now - begun), deadline - now)))

    def _cut(self, marks: Sequence[Timestamp], source: SourceRows) -> Timestamp:
        if self._at is not None:
            return self._at
        before = [mark for mark in marks if mark <= source.resolved]
        if not before:
            raise ConfigError(
                f"the oldest resolved mark {marks[0]} at {self._feed.shown_destination} is newer than the audit's read"
                " of the source. Run the audit again"
            )
        return before[-1]

    def _spilled(self, delivered: Delivered, source: SourceRows) -> dict[TableName, Spill]:
        spills = {name: Spill(self._directory / f"destination{number}") for number, name in enumerate(source.layouts)}
        schemas = [layout.schema for layout in source.layouts.values()]
        for rows in delivered.rows(schemas, self.figures.upto):
            spill, layout = spills[rows.schema.name], source.layouts[rows.schema.name]
            if len(rows):
                spill.add(layout.of(rows, sequence=spill.rows))
        for spill in spills.values():
            spill.flush()
        return spills

    def _compared(self, source: SourceRows, delivered: dict[TableName, Spill]) -> Iterator[Difference]:
        nulls_delete = self._feed.envelope().delete is DeleteForm.KEY_AND_NULLS
        for name, layout in source.layouts.items():
            comparison = Comparison(
                layout=layout,
                cut=self.figures.cut,
                figures=self.figures,
                most_shown=self._most_shown,
                nulls_delete=nulls_delete,
            )
            yield from comparison.differences(source.rows[name], delivered[name])


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRows:
    """The rows of each table at one moment, which is not before `resolved` and not after `latest`."""

    layouts: Mapping[TableName, Layout]
    rows: Mapping[TableName, Spill]
    resolved: Timestamp
    latest: Timestamp


def read_source(
    feed: ResolvedChangefeed, directory: Path, *, check: Callable[[Sequence[TableSchema]], object]
) -> SourceRows:
    """Read what the tables of *feed* hold, in the columns that it delivers, into files below *directory*.

    It scans the tables, and follows the log until the scan and the log together are the state of one moment. *check* is
    called with the tables before anything is created at the source.

    Raises: ConfigError, also when a table is altered meanwhile; BadRowError; the source's errors.
    """
    # `before` and `mvcc` are not compared. Marks say how far the rows are complete.
    options = replace(
        feed.options,
        initial_scan="yes",
        cursor=None,
        end_time=None,
        resolved=Duration(0.0),
        diff=False,
        mvcc_timestamp=False,
    )
    feed = temporary(replace(feed, options=options, min_checkpoint_frequency_s=0.0, dead_letter=None))
    layouts: dict[TableName, Layout] = {}
    rows: dict[TableName, Spill] = {}
    resolved = latest = Timestamp()

    def begin(schemas: Sequence[TableSchema]) -> None:
        require_auditable_tables(feed, schemas)
        check(schemas)
        for number, schema in enumerate(schemas):
            layouts[schema.name] = Layout(schema=schema, backfills=feed.options.schema_change_policy != "nobackfill")
            rows[schema.name] = Spill(directory / f"source{number}")

    with evaluation_of(feed) as evaluation:
        run = TemporaryRun(feed, evaluation=evaluation, check=begin, scans_only=True)
        with closing(run.items()) as items:
            for item in items:
                if isinstance(item, Timestamp):
                    resolved = item
                    continue
                if isinstance(item, BadRow):
                    raise BadRowError(f"{item} cannot be compared: {item.shown_reason}")
                name = item.schema.name
                if name not in layouts or not item.schema.has_shape_of(layouts[name].schema):
                    raise ConfigError(f"table {name} was created or altered during the audit. Run the audit again")
                latest = max(latest, item.latest())
                rows[name].add(layouts[name].of(item, sequence=rows[name].rows))
                del item
    for spill in rows.values():
        spill.flush()
    return SourceRows(layouts=layouts, rows=rows, resolved=resolved, latest=max(latest, resolved))


def require_auditable(feed: ResolvedChangefeed) -> None:
    """Return when the destination of *feed* says which rows the tables hold at a mark. Raises: ConfigError."""
    for reason in _reasons(feed):
        raise ConfigError(f"changefeed '{feed.name}' cannot be audited: {reason}")


def require_auditable_tables(feed: ResolvedChangefeed, schemas: Sequence[TableSchema]) -> None:
    """Return when tables with *schemas*, as they are delivered, can be audited. Raises: ConfigError."""
    for schema in schemas:
        if schema.key:
            raise ConfigError(
                f"changefeed '{feed.name}' cannot be audited: the section of table {schema.name} leaves out key"
                " columns. Add them to its 'columns'"
            )
        if feed.envelope().delete is DeleteForm.KEY_AND_NULLS and len(schema.columns) == len(schema.primary_key):
            raise ConfigError(
                f"changefeed '{feed.name}' cannot be audited: all columns of table {schema.name} are in its key, so in"
                " envelope 'bare' a deleted row looks like any other"
            )
    topics = Parts(feed).sink_context().topics()
    if not feed.sink.registration.history and topics.shared and len(schemas) > 1:
        raise ConfigError(
            f"changefeed '{feed.name}' cannot be audited: its tables share a topic, and messages do not name their "
            "table"
        )


def _reasons(feed: ResolvedChangefeed) -> Iterator[str]:
    registration, options, envelope = feed.sink.registration, feed.options, feed.envelope()
    if not (registration.reader or registration.history):
        yield f"sink '{feed.sink.name}' has no reader, so what it delivered cannot be read"
    if not feed.encoder.registration.decoder:
        yield f"format '{feed.encoder.name}' has no decoder, so what it wrote cannot be read"
    if feed.encoder.registration.scans_only:
        yield f"format '{feed.encoder.name}' has neither timestamps nor marks, so there is no point in time to compare"
    if feed.query is not None:
        yield "it has a query, and a row that the query no longer selects may remain at the destination"
    for selection in feed.selections:
        if selection.where is not None:
            yield (
                f"the section of table {selection.table} has a condition, and a row that no longer meets it may remain"
                " at the destination"
            )
    if options.initial_scan == "only":
        yield "with initial_scan = 'only', it delivers no resolved mark"
    if options.initial_scan == "no":
        yield "without an initial scan, the destination lacks rows that have not changed since the start"
    if envelope.row is RowPlace.NOWHERE:
        yield f"messages in envelope '{options.envelope}' have no values to compare"
    if options.resolved is None:
        yield "it delivers no resolved marks; set option 'resolved'"
    if not envelope.updated:
        yield "its messages have no timestamps; set option 'updated'"
    if options.key_column is not None:
        yield "with 'key_column', its messages lack the primary key"
