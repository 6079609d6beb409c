"""Which changefeeds can be audited."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cdc_core.config.parts import Parts
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.envelope_shapes import DeleteForm, RowPlace
from cdc_core.errors import ConfigError
from cdc_core.schema import TableSchema

__all__ = ["require_auditable", "require_auditable_tables"]


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
