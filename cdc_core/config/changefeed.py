"""What a user writes: a changefeed and its options, before any plugin is involved."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from cdc_core.cloudevents import CloudEvents
from cdc_core.errors import ConfigError
from cdc_core.masking import has_unencoded_password, is_secret_name, masked_uri
from cdc_core.messages import topic_placeholders
from cdc_core.options import MB, ByteSize, Duration, Moment, Position, Tiers, format_bytes, format_duration, option
from cdc_core.queries.parser import parse_query
from cdc_core.queries.table_queries import TableQueries
from cdc_core.shards.shard import MAX_SHARDS
from cdc_core.timestamp import Timestamp
from cdc_core.uris import place_of, same_database

__all__ = ["NOT_OF_SCANS", "Changefeed", "ChangefeedOptions", "require_name"]

_MAX_ROW_BYTES = 1024 * MB
"""Twice as much, which hexadecimal digits take, is more than some columns of Arrow hold."""
_MIN_PROTECTION_S = 60.0
_MAX_LABEL_BYTES = 128
_MIN_MASK_KEY = 16
NOT_OF_SCANS = ("resolved", "diff", "mvcc_timestamp", "updated", "end_time")
"""Options that initial_scan='only' cannot be combined with."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")


def require_name(name: str) -> None:
    """Return if *name* can be the name of a changefeed. Raises: ConfigError."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"'{name}' is not a valid name of a changefeed; use 1 to 40 of the characters A-Z a-z 0-9 _ -"
        )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Changefeed:
    """One named pipeline as its user wrote it. Picklable; `repr` shows no secret.

    `source` is a URI, or several of databases that have the same tables. With a `query`, `tables` is the one that it
    names; it may call `functions`, texts by their names. `table` says by table what is selected of it without a query
    (see `cdc_core.queries.selection`); other tables are delivered whole. A changefeed without a `sink` can only be
    watched. `options` holds the options of the changefeed
    itself, the encoder, the sink and the source together; who owns which is known once the plugins are
    (`cdc_core.config.resolve`). `spark` holds the Spark master and configuration. `written` is set when the changefeed
    was read: the same values by name, with references such as `${PASSWORD}` in place of what they refer to.
    """

    name: str
    source: str | tuple[str, ...]
    tables: tuple[str, ...] = ()
    sink: str = ""
    format: str = "json"
    query: str | None = None
    functions: Mapping[str, str] = field(default_factory=dict)
    table: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    spark: Mapping[str, str] = field(default_factory=dict)
    written: Mapping[str, Any] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        require_name(self.name)
        if isinstance(self.tables, str):
            raise ConfigError(f"changefeed '{self.name}': tables must be a list of table names")
        object.__setattr__(self, "tables", self._watched())
        if not self.tables or not all(isinstance(table, str) and table for table in self.tables):
            raise ConfigError(
                f"changefeed '{self.name}' watches no table; list them, such as tables = ['public.orders'],"
                " or set a query"
            )
        twice = [table for table, times in Counter(self.tables).items() if times > 1]
        if twice:
            raise ConfigError(f"changefeed '{self.name}' lists table '{min(twice)}' twice")
        self._check_sections()
        if not isinstance(self.source, str):
            sources = tuple(self.source)
            object.__setattr__(self, "source", sources[0] if len(sources) == 1 else sources)
        self._check_sources()
        dead_letter = self.options.get("dead_letter")
        for key, uri, example in (
            *(("source", uri, "postgresql://user@host:5432/database") for uri in self.sources),
            ("sink", self.sink, "file:///data/out"),
            ("dead_letter", dead_letter, "file:///data/dead"),
        ):
            if not isinstance(uri, str) or (key == "sink" and not uri):
                continue
            if "://" not in uri:
                raise ConfigError(
                    f"changefeed '{self.name}': {key} is '{masked_uri(uri)}', which is not a URI such as {example}"
                )
            if has_unencoded_password(uri):
                raise ConfigError(
                    f"changefeed '{self.name}': the password in {key} must be percent-encoded: / is %2F, ? is %3F, "
                    "# is %23, @ is %40, % is %25"
                )

    def _watched(self) -> tuple[str, ...]:
        """Return the tables: that of the query if there is one, as nothing else is read then."""
        tables = tuple(self.tables)
        if self.query is None:
            if self.functions:
                raise ConfigError(f"changefeed '{self.name}' has functions and no query that could call them; set one")
            return tables
        if not isinstance(self.query, str):
            raise ConfigError(f"changefeed '{self.name}': query must be a string")
        if not all(isinstance(text, str) for text in self.functions.values()):
            raise ConfigError(f"changefeed '{self.name}': functions must be strings")
        try:
            table = parse_query(self.query, tuple(self.functions.items())).table
        except ConfigError as error:
            raise type(error)(f"changefeed '{self.name}': {error}") from None
        if tables not in ((), (table,)):
            raise ConfigError(
                f"changefeed '{self.name}' lists the tables {', '.join(tables)}, and its query reads {table}; remove"
                " 'tables'"
            )
        return (table,)

    def _check_sections(self) -> None:
        if not isinstance(self.table, Mapping):
            raise ConfigError(f"changefeed '{self.name}': table must hold a section for each table that it names")
        if self.table and self.query is not None:
            raise ConfigError(
                f"changefeed '{self.name}' has a query and a section of table {next(iter(self.table))}; put columns and"
                " condition into the query, or list the table under 'tables'"
            )
        try:
            TableQueries.of(self.query, self.table)
        except ConfigError as error:
            raise type(error)(f"changefeed '{self.name}', {error}") from None

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.source,) if isinstance(self.source, str) else self.source

    def _check_sources(self) -> None:
        if not self.sources or not all(isinstance(uri, str) for uri in self.sources):
            raise ConfigError(f"changefeed '{self.name}': source must be a URI, or a list of URIs")
        if len(self.sources) > MAX_SHARDS:
            raise ConfigError(
                f"changefeed '{self.name}' has {len(self.sources):,} sources, and the most is {MAX_SHARDS:,}; divide"
                " them among several changefeeds"
            )
        for index, uri in enumerate(self.sources):
            for other in self.sources[:index]:
                if same_database(uri, other):
                    raise ConfigError(
                        f"changefeed '{self.name}' lists source {place_of(uri)} twice; remove one of them"
                    )

    def __repr__(self) -> str:
        options = {name: "***" if is_secret_name(name) else value for name, value in self.options.items()}
        return (
            f"Changefeed(name={self.name!r}, source={', '.join(map(masked_uri, self.sources))!r},"
            f" tables={self.tables!r}, "
            f"sink={masked_uri(self.sink)!r}, format={self.format!r}, options={options!r})"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangefeedOptions:
    """The options that every changefeed has, whatever its plugins."""

    envelope: Literal["wrapped", "bare", "key_only", "row", "enriched", "cloudevents"] = option(
        "wrapped", doc="Shape of the messages. An encoder may support only some of them."
    )
    enriched_properties: tuple[Literal["source", "schema"], ...] = option(
        (),
        doc="What to add to messages in envelope `enriched`: `source`, where the row comes from; `schema`, a Kafka"
        " Connect schema of each key and value.",
    )
    cloudevents_mode: Literal["structured", "binary"] = option(
        "structured",
        doc="Where the attributes of envelope `cloudevents` are: beside the data in one JSON object, or in headers.",
    )
    cloudevents_source: str | None = option(
        None,
        doc="Beginning of the attribute `source`, a URI: the parts of the table's name follow it. Default:"
        " `/cdc/` and the name of the changefeed.",
    )
    cloudevents_type_prefix: str = option(
        "cdc.",
        doc="Beginning of the attribute `type`: `insert`, `update`, `delete`, `scan` or `resolved` follows it.",
    )
    updated: bool = option(False, doc="Add to each row the timestamp of the commit that wrote it.")
    diff: bool = option(False, doc="Add the row as it was before the change.")
    mvcc_timestamp: bool = option(
        False, doc="Add the timestamp of the commit that wrote the row, even to rows of the initial scan."
    )
    key_in_value: bool = option(False, doc="Add the key to the message's value. Some sinks always do.")
    topic_in_value: bool = option(False, doc="Add the topic to the message's value. Some sinks always do.")
    full_table_name: bool = option(False, doc="Name topics database.schema.table instead of table.")
    topic: str | None = option(
        None,
        doc="Pattern of topic names, in which {database}, {schema} and {table} stand for the parts of the table's name."
        " Without any of them, all tables share one topic.",
    )
    max_topics: int = option(
        1000, doc="Maximum number of topics that a query's cdc_topic may give. One more ends the changefeed."
    )
    unordered: bool = option(
        False,
        doc="Do without the order of the changes of a row, which key_column cannot keep. Excludes `resolved`.",
    )
    key_column: str | None = option(
        None,
        doc="A column that is the key of messages in place of the primary key, and so decides their partition. Needs"
        " `unordered`. It does not change what key_in_value adds.",
    )
    resolved: Duration | None = option(
        None,
        doc="Emit resolved timestamps: whenever progress is saved, or at most once in the given duration. They are"
        " never closer together than min_checkpoint_frequency, which is 10s by default for files.",
        flag=True,
    )
    min_checkpoint_frequency: Duration | None = option(
        None, doc="Minimum time between two steps, and so between two checkpoints. The default depends on the sink."
    )
    initial_scan: Literal["yes", "no", "only"] = option(
        "yes",
        doc="Whether to emit the rows that the tables hold at the start. With 'only', the changefeed ends after them.",
    )
    cursor: Position | None = option(
        None,
        doc="Begin after this point of the source's history instead of now, without an initial scan unless"
        " initial_scan is set as well: a time, as for end_time, or a position that the source understands, such as an"
        " LSN.",
    )
    end_time: Moment | None = option(
        None,
        doc="Emit everything up to this time, and then end with success. Resolved timestamps do not pass it. Write it"
        " as 2026-01-31T12:00:00Z, as nanoseconds since 1970, or like a resolved timestamp. Seconds are refused.",
    )
    schema_change_events: Literal["default", "column_changes"] = option(
        "default",
        doc="Which changes of a table the policy is for: by default those that give existing rows other columns or"
        " values, with 'column_changes' also columns that are added empty or renamed.",
    )
    schema_change_policy: Literal["backfill", "nobackfill", "stop"] = option(
        "backfill",
        doc="What to do about such a change: emit all rows of the table again, emit only later changes, or end the"
        " changefeed. No resolved timestamp passes the change before that.",
    )
    max_step_rows: int = option(4_000_000, doc="About how many rows one step may hold.")
    max_step_bytes: ByteSize = option(ByteSize(128 * MB), doc="About how many bytes of the source one step may hold.")
    max_row_bytes: ByteSize = option(
        ByteSize(256 * MB),
        doc="Maximum size of one row in memory, with its before image. on_error decides about a larger one: its dead"
        " letter has the key and the reason, without the large values.",
    )
    on_error: Literal["fail", "pause", "dead_letter"] = option(
        "fail",
        doc="What to do about an error that no retry can cure: end the run, so that a job is `failed`, or pause the"
        " changefeed. Either way its position is kept, and `cdc resume` continues a job from there. With"
        " 'dead_letter', a row that is too large, or that the encoder or the sink refuses, becomes a dead letter and"
        " all others are"
        " delivered; any other such error ends the run.",
    )
    dead_letter: str | None = option(
        None, doc="URI of a sink of any kind for the dead letters. Needs on_error='dead_letter'.", uri=True
    )
    dead_letter_max: int = option(
        1000, doc="Maximum number of dead letters within an hour. One more ends the changefeed."
    )
    dead_letter_order: Literal["continue", "block_key"] = option(
        "continue",
        doc="What to do with later rows of a key that has a dead letter: deliver them, or make them dead letters too,"
        " until `cdc replay-dead-letters` has sent all of them.",
    )
    retry_backoff: Duration = option(
        Duration(1.0), doc="Wait before a failed step is tried again. It doubles with each failure."
    )
    max_retry_backoff: Duration = option(Duration(30.0), doc="Longest wait before a failed step is tried again.")
    max_attempts: int = option(
        20,
        doc="How often the same step may fail for the same reason. Then on_error decides, as about an error that no"
        " retry can cure. Outages do not count: a source or sink that is out of reach or busy is waited for.",
    )
    give_up_after: Duration = option(
        Duration(600.0), doc="How long after the first of these failures the changefeed tries again in any case."
    )
    mask_key: str | None = option(
        None,
        doc="Key of the mask 'hash' of columns, at least 16 characters. Equal values have equal hashes in all"
        " changefeeds with the same key.",
        secret=True,
    )
    executor_wait: Duration = option(
        Duration(60.0),
        doc="On a cluster: longest time without an executor. A run that gets none at its start ends then. Later it"
        " says so and waits.",
    )

    log_slow: Duration | None = option(
        None,
        doc="Log a line about each task that has waited in one call for longer than this, and about each slice that"
        " took longer. By default there are none.",
    )
    metrics_label: str | None = option(
        None,
        doc="Value of the label `label` in the changefeed's metrics, to group changefeeds: at most 128 bytes.",
    )
    execution_locality: Tiers | None = option(
        None,
        doc="Only nodes whose locality has all of these tiers may coordinate and execute the changefeed, such as"
        " region=eu-west-1,cloud=aws.",
    )
    placement: Literal["leaseholder", "random", "balanced_simple"] | None = option(
        None,
        doc="Of a source that keeps replicas: which of its nodes a range is read near. That of the leaseholder, which"
        " is the default; that of a random replica; or that of a random replica, with the ranges then spread evenly"
        " over these nodes.",
    )
    gc_protect_expires_after: Duration = option(
        Duration(4 * 86_400.0),
        doc="How old the high-water mark of a job may become before nodes cancel the job, so that its source need not"
        " keep the history any longer. A value that you set applies to every job. The default applies only while a job"
        " is paused, has failed or waits for a node, and counts from then on. At least 1m; 0s means no limit. A"
        " changefeed of `cdc run` is not a job and is never cancelled.",
    )

    def __post_init__(self) -> None:
        if self.initial_scan == "only":
            for name in NOT_OF_SCANS:
                wanted = getattr(self, name)
                if wanted is not None and wanted is not False:
                    raise ValueError(
                        f"initial_scan='only' cannot be combined with '{name}': a scan has only one timestamp;"
                        f" remove '{name}'"
                    )
        if self.key_column is not None and not self.unordered:
            raise ValueError(
                "'key_column' needs unordered = true: when the column of a row changes, its messages have different"
                " keys, and nothing keeps their order"
            )
        if self.unordered and self.resolved is not None:
            raise ValueError(
                "'unordered' cannot be combined with 'resolved': a mark means nothing to a consumer without an order;"
                " remove one of them"
            )
        if self.end is not None and self.after is not None and self.end <= self.after:
            raise ValueError(f"'end_time' ({self.end_time}) must be later than 'cursor' ({self.cursor})")
        if (self.on_error == "dead_letter") != (self.dead_letter is not None):
            raise ValueError("on_error='dead_letter' and the option 'dead_letter' (the URI of a sink) need each other")
        if self.max_row_bytes > _MAX_ROW_BYTES:
            raise ValueError(f"'max_row_bytes' must be at most {format_bytes(_MAX_ROW_BYTES)}")
        CloudEvents(
            source="/" if self.cloudevents_source is None else self.cloudevents_source,
            type_prefix=self.cloudevents_type_prefix,
        )  # checks both
        if self.topic is not None:
            topic_placeholders(self.topic)
            if not self.topic:
                raise ValueError("'topic' is empty; write a pattern such as {schema}.{table}, or remove it")
            if self.full_table_name:
                raise ValueError("'topic' and 'full_table_name' exclude each other; write {database}.{schema}.{table}")
        for name in (
            "max_step_rows",
            "max_step_bytes",
            "max_row_bytes",
            "dead_letter_max",
            "max_attempts",
            "max_topics",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"'{name}' must be at least 1")
        if self.log_slow is not None and self.log_slow <= 0:
            raise ValueError("'log_slow' must be longer than 0s; remove it for no lines")
        if self.mask_key is not None and len(self.mask_key) < _MIN_MASK_KEY:
            raise ValueError(f"'mask_key' must have at least {_MIN_MASK_KEY} characters: values could be guessed")
        if 0 < self.gc_protect_expires_after < _MIN_PROTECTION_S:
            raise ValueError("'gc_protect_expires_after' must be at least 1m, or 0s for no limit")
        if self.metrics_label is not None and not 0 < len(self.metrics_label.encode()) <= _MAX_LABEL_BYTES:
            raise ValueError(f"'metrics_label' must have 1 to {_MAX_LABEL_BYTES} bytes")
        if self.max_retry_backoff < self.retry_backoff:
            raise ValueError(
                f"'max_retry_backoff' ({format_duration(self.max_retry_backoff)}) must not be less than "
                f"'retry_backoff' ({format_duration(self.retry_backoff)})"
            )

    @property
    def end(self) -> Timestamp | None:
        """The option `end_time`."""
        return None if self.end_time is None else Timestamp.parse(self.end_time)

    @property
    def after(self) -> Timestamp | None:
        """The option `cursor`, if it is a timestamp."""
        try:
            return None if self.cursor is None else Timestamp.parse(self.cursor)
        except ValueError:
            return None
