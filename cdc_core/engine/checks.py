"""What must hold of a changefeed's parts before it runs, and how its destination is prepared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace

from cdc_core.config.parts import Parts
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.delivery.dead_letters import dead_letter_schema
from cdc_core.destination import Destination
from cdc_core.errors import ConfigError
from cdc_core.masking import masked_uri
from cdc_core.messages import TopicNames
from cdc_core.resolved_sink import ResolvedSink
from cdc_core.schema import TableName, TableSchema
from cdc_core.sink import Sink
from cdc_core.slice_reader import SliceReader
from cdc_core.source_history import SourceHistory
from cdc_core.step_planner import StepPlanner
from cdc_core.store.progress import ProgressStore
from cdc_core.timestamp import Timestamp
from cdc_core.uris import place_of

_NO_TOPIC = "cdc-check"
"""Stands for the topics that a query gives to rows. A registry has no subject of it."""


def check_and_prepare(
    feed: ResolvedChangefeed,
    store: ProgressStore,
    check_executors: Callable[[Sequence[TableSchema]], None],
    planned: Callable[[Sequence[TableSchema]], Sequence[TableSchema]],
) -> None:
    """Return when the changefeed can run. Raises: ConfigError, while nothing has been created at the source.

    *planned* returns what the rows of tables are delivered as. *check_executors* is called when all parts are known to
    work here, before anything is created.
    """
    progress = store.progress.load(feed.name)
    schemas = planned(check_source(with_saved(feed, store)))
    if progress is None:
        check_time_range(feed)
    check_delivery(feed, schemas)
    check_executors(schemas)
    prepare_sink(feed, schemas)


def as_stored(feed: ResolvedChangefeed, store: ProgressStore) -> ResolvedChangefeed:
    """Return *feed* as its next start checks it: *feed* itself unless *store* knows it."""
    known = store.changefeeds.find(feed.name)
    return feed if known is None else with_saved(feed.for_attempt(feed_id=known.feed_id, epoch=known.epoch), store)


def with_saved(feed: ResolvedChangefeed, store: ProgressStore) -> ResolvedChangefeed:
    """Return *feed* as a check of a later run needs it: with the token saved last, unless its history starts over."""
    progress = store.progress.load(feed.name)
    if progress is None or store.rescans.waiting(feed.name, new_slot=True):
        return feed
    return replace(feed, saved=progress.token)


def check_and_prepare_sink(feed: ResolvedChangefeed, schemas: Sequence[TableSchema]) -> None:
    """Return when rows of *schemas* can be delivered. Raises: ConfigError."""
    check_delivery(feed, schemas)
    prepare_sink(feed, schemas)


def check_delivery(feed: ResolvedChangefeed, schemas: Sequence[TableSchema]) -> None:
    """Return when rows of *schemas* can be encoded and delivered. Raises: ConfigError. Creates nothing."""
    check_sink(feed, schemas)
    check_encoder(feed, schemas)
    check_dead_letters(feed, schemas)


def check_source(feed: ResolvedChangefeed) -> list[TableSchema]:
    """Return the tables that the source will be read for. Raises: ConfigError when it cannot be read; ContractError."""
    for part, base in (("planner", StepPlanner), ("reader", SliceReader), ("history", SourceHistory)):
        feed.rangefeed.load(part, base)
    with closing(Parts(feed).open_rangefeed()) as rangefeed:
        rangefeed.check()
        return list(rangefeed.schemas())


def check_time_range(feed: ResolvedChangefeed) -> None:
    """Return when what a changefeed would deliver from now on is between its cursor and end. Raises: ConfigError."""
    options = feed.options
    if options.end is None and options.after is None:
        return
    now = source_clock(feed)
    if options.after is not None and options.after > now:
        raise ConfigError(
            f"changefeed '{feed.name}': cursor {options.after} is later than the source's clock, {now}; set an earlier"
            " cursor, or remove it to begin now"
        )
    if options.end is None or options.end > now:
        return
    if Parts(feed).rangefeed_context().initial_scan:
        raise ConfigError(
            f"changefeed '{feed.name}' would scan its tables now, at {now}, which is not earlier than its end_time,"
            f" {options.end}; set a later end_time, or skip the scan with initial_scan = 'no' and a cursor"
        )
    if options.cursor is None:
        raise ConfigError(
            f"changefeed '{feed.name}' has no cursor, and its end_time, {options.end}, is not later than the source's"
            f" clock, {now}; set a later end_time, or a cursor to begin earlier"
        )


def source_clock(feed: ResolvedChangefeed) -> Timestamp:
    """Return the clock of the source: everything that is committed by now has `updated` at or below it."""
    with closing(Parts(feed).open_planner()) as planner:
        return planner.now()


def end_of_once(feed: ResolvedChangefeed, store: ProgressStore) -> Timestamp:
    """Return what is resolved when everything that is committed by now was delivered.

    That is the source's clock. Where the clock went back since the last mark, later commits are put above that mark.
    """
    clock, progress = source_clock(feed), store.progress.load(feed.name)
    if progress is None or clock >= progress.latest:
        return clock
    return Timestamp(progress.latest.wall + 1)


def check_encoder(feed: ResolvedChangefeed, schemas: Sequence[TableSchema]) -> None:
    """Return when rows of *schemas* can be encoded. Raises: ConfigError when they cannot.

    The topics that a query gives to rows are unknown. Then what a schema registry holds is no reason to refuse.
    """
    with closing(Parts(_for_tables(feed, schemas)).open_destination()) as destination:
        Parts(feed).open_encoder().check(encoded_tables(feed, destination, schemas))


def encoded_tables(
    feed: ResolvedChangefeed, destination: Destination, schemas: Sequence[TableSchema]
) -> list[tuple[TableSchema, str]]:
    """Return *schemas* as the encoder gets them, each with its topic at *destination*."""
    return [
        (
            destination.payload(schema),
            destination.topic(replace(schema.name, table=_NO_TOPIC) if feed.routes else schema.name),
        )
        for schema in schemas
    ]


def check_sink(feed: ResolvedChangefeed, schemas: Sequence[TableSchema]) -> None:
    """Return when the destination can take rows of *schemas*.

    Raises: ConfigError when it cannot, or mixes tables; ContractError.
    """
    for part, base in (("sink", Sink), ("resolved_sink", ResolvedSink)):
        feed.sink.load(part, base)
    with closing(Parts(_for_tables(feed, schemas)).open_destination()) as destination:
        destination.check()
        if type(destination).topic is Destination.topic:
            _require_own_topics(destination, schemas, destination.context.topics())


def check_dead_letters(feed: ResolvedChangefeed, schemas: Sequence[TableSchema]) -> None:
    """Return when refused rows of *schemas* can become dead letters, or need not. Raises: ConfigError."""
    if feed.dead_letter is None:
        return
    _refuse_one_place(feed, feed.dead_letter, schemas)
    letters = [dead_letter_schema(feed.name)]
    try:
        check_sink(feed.dead_letter, letters)
        check_encoder(feed.dead_letter, letters)
    except ConfigError as error:
        text = f"changefeed '{feed.name}', option 'dead_letter': {error}"
        raise ConfigError(text, repairable=error.repairable) from error


def prepare_sink(feed: ResolvedChangefeed, schemas: Sequence[TableSchema]) -> None:
    """Create at the destination what rows of *schemas* need and the options allow; likewise for the dead letters.

    Raises: ConfigError, RetryableError.
    """
    with closing(Parts(_for_tables(feed, schemas)).open_destination()) as destination:
        destination.prepare()
    if feed.dead_letter is not None:
        prepare_sink(feed.dead_letter, [dead_letter_schema(feed.name)])


def _refuse_one_place(feed: ResolvedChangefeed, letters: ResolvedChangefeed, schemas: Sequence[TableSchema]) -> None:
    """Raise a ConfigError when a consumer of the data would find dead letters among it."""
    if letters.sink.name != feed.sink.name or feed.sink_place() != letters.sink_place():
        return
    data_place, letters_place = place_of(feed.destination), place_of(letters.destination)
    if feed.output == "files":
        if f"{data_place}/".startswith(f"{letters_place}/") or f"{letters_place}/".startswith(f"{data_place}/"):
            raise ConfigError(
                f"changefeed '{feed.name}' would write its dead letters to {masked_uri(letters.destination)}, among the"
                f" files of its sink, {masked_uri(feed.destination)}; use another directory, not inside the sink's"
            )
        return
    with (
        closing(Parts(_for_tables(feed, schemas)).open_destination()) as data,
        closing(Parts(letters).open_destination()) as dead_letters,
    ):
        topic = dead_letters.topic(dead_letter_schema(feed.name).name)
        if data_place == letters_place and topic in {data.topic(schema.name) for schema in schemas}:
            raise ConfigError(
                f"changefeed '{feed.name}' would send its dead letters to topic '{topic}', which already receives its "
                "rows; name another topic, or let the changefeed choose the name"
            )


def _require_own_topics(destination: Destination, schemas: Sequence[TableSchema], names: TopicNames) -> None:
    """Raise a ConfigError when two tables share a topic that *names* do not mean for all: a mistake in most cases."""
    if names.shared:
        return
    tables: dict[str, TableName] = {}
    for schema in schemas:
        topic = destination.topic(schema.name)
        if topic in tables:
            raise ConfigError(
                f"tables {tables[topic]} and {schema.name} would share the topic '{topic}';"
                f" {names.remedy}, or put the tables into separate changefeeds"
            )
        tables[topic] = schema.name


def _for_tables(feed: ResolvedChangefeed, schemas: Sequence[TableSchema]) -> ResolvedChangefeed:
    return feed.for_attempt(feed_id=feed.feed_id, epoch=feed.epoch, table_names=[schema.name for schema in schemas])
