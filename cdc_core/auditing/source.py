"""The rows that the source holds, read by a run that leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from cdc_core.auditing.layout import Layout
from cdc_core.auditing.spill import Spill
from cdc_core.config.parts import Parts
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.delivery.dead_letters import BadRow
from cdc_core.engine.temporary_run import TemporaryRun, temporary
from cdc_core.envelope_shapes import DeleteForm, RowPlace
from cdc_core.errors import BadRowError, ConfigError
from cdc_core.options import Duration
from cdc_core.schema import TableName, TableSchema
from cdc_core.timestamp import Timestamp
from cdc_core.watching.evaluation import evaluation_of


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
                    raise ConfigError(f"table {name} was created or altered during the audit. Run it again")
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
                f"changefeed '{feed.name}' cannot be audited: its section of table {schema.name} leaves out columns of"
                " the key. Add them to 'columns'"
            )
        if feed.envelope().delete is DeleteForm.KEY_AND_NULLS and len(schema.columns) == len(schema.primary_key):
            raise ConfigError(
                f"changefeed '{feed.name}' cannot be audited: all columns of table {schema.name} are in its key, so in"
                " envelope 'bare' a deleted row looks like any other"
            )
    topics = Parts(feed).sink_context().topics()
    if not feed.sink.registration.history and topics.shared and len(schemas) > 1:
        raise ConfigError(
            f"changefeed '{feed.name}' cannot be audited: its tables share a topic, whose messages do not say which"
            " table they are of"
        )


def _reasons(feed: ResolvedChangefeed) -> Iterator[str]:
    registration, options, envelope = feed.sink.registration, feed.options, feed.envelope()
    if not (registration.reader or registration.history):
        yield f"sink '{feed.sink.name}' has no reader, so what it delivered cannot be read"
    if not feed.encoder.registration.decoder:
        yield f"format '{feed.encoder.name}' has no decoder, so what it wrote cannot be read"
    if feed.encoder.registration.scans_only:
        yield f"format '{feed.encoder.name}' has neither timestamps nor marks, so no moment to compare at"
    if feed.query is not None:
        yield "it has a query, and a row that the query no longer selects may remain at the destination"
    for selection in feed.selections:
        if selection.where is not None:
            yield (
                f"the section of table {selection.table} has a condition, and a row that no longer meets it may remain"
                " at the destination"
            )
    if options.initial_scan == "only":
        yield "with initial_scan = 'only' it delivers no mark to compare at"
    if options.initial_scan == "no":
        yield "without an initial scan the destination lacks the rows that did not change since its start"
    if envelope.row is RowPlace.NOWHERE:
        yield f"in envelope '{options.envelope}' there are no values to compare"
    if options.resolved is None:
        yield "it delivers no marks; set the option 'resolved'"
    if not envelope.updated:
        yield "its messages have no timestamps; set the option 'updated'"
    if options.key_column is not None:
        yield "with 'key_column' its messages do not have the primary key"
