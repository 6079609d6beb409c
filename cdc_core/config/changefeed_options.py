"""The options that every changefeed has, and which of them cannot be combined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from cdc_core.cloudevents import CloudEvents
from cdc_core.errors import OptionError
from cdc_core.messages import topic_placeholders
from cdc_core.options import MB, ByteSize, Duration, Moment, Position, Tiers, format_bytes, format_duration, option
from cdc_core.timestamp import Timestamp

_MAX_ROW_BYTES = 1024 * MB
"""Twice as much, which hexadecimal digits take, is more than some columns of Arrow hold."""
_MIN_PROTECTION_S = 60.0
_MAX_LABEL_BYTES = 128
_MIN_MASK_KEY = 16
MAX_DELIVERY_TASKS = 200
"""With more partitions, Spark would sort what it exchanges."""
_OF_THE_EXCHANGE = frozenset(
    {
        "spark.shuffle.manager",
        "spark.shuffle.push.enabled",
        "spark.shuffle.sort.bypassMergeThreshold",
        "spark.speculation",
        "spark.stage.ignoreDecommissionFetchFailure",
        "spark.stage.maxConsecutiveAttempts",
    }
)
"""Settings with which Spark may not keep the order of exchanged rows, or may write a part twice as if it were new."""
NOT_OF_SCANS = ("resolved", "diff", "mvcc_timestamp", "updated", "end_time")
"""Options that initial_scan='only' cannot be combined with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangefeedOptions:
    """The options that every changefeed has, whatever its plugins."""

    envelope: Literal["wrapped", "bare", "key_only", "row", "enriched", "cloudevents"] = option(
        "wrapped",
        doc="Shape of the messages. With a query, the default is `bare` if the encoder and the sink support it. An"
        " encoder may support only some of the envelopes.",
    )
    enriched_properties: tuple[Literal["source", "schema"], ...] = option(
        (),
        doc="What to add to messages in the `enriched` envelope: `source` adds the origin of the row; `schema` adds a"
        " Kafka Connect schema for each key and value.",
    )
    cloudevents_mode: Literal["structured", "binary"] = option(
        "structured",
        doc="Where the `cloudevents` envelope puts the attributes of an event: with 'structured', in one JSON object"
        " with the data; with 'binary', in headers.",
    )
    cloudevents_source: str | None = option(
        None,
        doc="URI with which the `source` attribute of each event begins. The parts of the table name follow it."
        " Default: `/cdc/` followed by the name of the changefeed.",
    )
    cloudevents_type_prefix: str = option(
        "cdc.",
        doc="Prefix of the `type` attribute of each event, followed by `insert`, `update`, `delete`, `scan` or"
        " `resolved`.",
    )
    updated: bool = option(False, doc="Add to each row the timestamp of the commit that wrote it.")
    diff: bool = option(False, doc="Add the row as it was before the change.")
    mvcc_timestamp: bool = option(
        False, doc="Add the timestamp of the commit that wrote the row, even for rows of the initial scan."
    )
    key_in_value: bool = option(False, doc="Add the key to the message value. Some sinks always add it.")
    topic_in_value: bool = option(False, doc="Add the topic to the message value. Some sinks always add it.")
    full_table_name: bool = option(False, doc="Name topics `database.schema.table` instead of `table`.")
    topic: str | None = option(
        None,
        doc="Pattern for topic names, in which {database}, {schema} and {table} stand for the parts of the table name."
        " Without any of these placeholders, all tables share one topic.",
    )
    max_topics: int = option(
        1000,
        doc="Maximum number of different topics that a query's cdc_topic may return. If there are more, the changefeed"
        " ends with an error.",
    )
    unordered: bool = option(
        False,
        doc="Allow changes to a row to arrive out of order. Required by key_column. Cannot be combined with"
        " `resolved`.",
    )
    key_column: str | None = option(
        None,
        doc="Column to use instead of the primary key as the message key, and therefore for partitioning. Requires"
        " `unordered`. key_in_value still adds the primary key.",
    )
    resolved: Duration | None = option(
        None,
        doc="Emit a resolved timestamp whenever progress is saved or, if a duration is given, no more often than"
        " that. Resolved timestamps are never closer together than min_checkpoint_frequency, which is 10s by default"
        " for sinks that write files.",
        flag=True,
    )
    min_checkpoint_frequency: Duration | None = option(
        None,
        doc="Minimum time between two steps, and therefore between two checkpoints. The default depends on the sink.",
    )
    initial_scan: Literal["yes", "no", "only"] = option(
        "yes",
        doc="Whether to start by emitting the existing rows of the tables. With 'only', the changefeed ends after these"
        " rows.",
    )
    cursor: Position | None = option(
        None,
        doc="Start after this point in the source's history instead of now. Write a time, as for end_time, or a"
        " position in the source's own format, such as an LSN. With a cursor, there is no initial scan unless"
        " initial_scan is set.",
    )
    end_time: Moment | None = option(
        None,
        doc="Emit everything up to this time, and then end successfully. No resolved timestamp is later than this time."
        " Write the time as 2026-01-31T12:00:00Z, as nanoseconds since 1970, or in the format of resolved timestamps."
        " Seconds since 1970 are refused.",
    )
    schema_change_events: Literal["default", "column_changes"] = option(
        "default",
        doc="Which schema changes schema_change_policy applies to: by default, those that give existing rows different"
        " columns or values; with 'column_changes', also those that rename a column or add an empty one.",
    )
    schema_change_policy: Literal["backfill", "nobackfill", "stop"] = option(
        "backfill",
        doc="What to do after a schema change that schema_change_events selects: emit all rows of the table again, emit"
        " only later changes, or end the changefeed. Until this is done, resolved timestamps stay before the schema"
        " change.",
    )
    max_step_rows: int = option(4_000_000, doc="Approximate maximum number of rows in a step.")
    max_step_bytes: ByteSize = option(ByteSize(128 * MB), doc="Approximate maximum size of the source data in a step.")
    delivery_tasks: int = option(
        1,
        doc="Number of tasks that deliver each step, for destinations slower than the source. With more than 1, rows"
        " are divided among the tasks by the hash of their keys: rows with the same key stay in order, but rows with"
        " different keys do not. One task still reads the log before the others begin. Useful values are 4 to 16,"
        " because each batch of rows is cut into one part per task; the maximum is 200. Cannot be combined with"
        " `key_column` or with a query that sets cdc_topic.",
    )
    max_row_bytes: ByteSize = option(
        ByteSize(256 * MB),
        doc="Maximum size of one row in memory, including its before image. on_error decides what happens to a larger"
        " row. The dead letter for such a row has the key and the reason, but not the large values.",
    )
    on_error: Literal["fail", "pause", "dead_letter"] = option(
        "fail",
        doc="What to do about an error that no retry can fix: end the run, which makes a job `failed`, or pause the"
        " changefeed. Either way, the changefeed keeps its position, and `cdc resume` continues a job from there. With"
        " 'dead_letter', a row that is too large, or that the encoder or the sink refuses, becomes a dead letter, and"
        " all other rows are delivered; any other error that no retry can fix ends the run.",
    )
    dead_letter: str | None = option(
        None, doc="URI of a sink of any kind, for the dead letters. Requires on_error='dead_letter'.", uri=True
    )
    dead_letter_max: int = option(
        1000, doc="Maximum number of dead letters in one hour. If there are more, the changefeed ends with an error."
    )
    dead_letter_order: Literal["continue", "block_key"] = option(
        "continue",
        doc="What to do with later rows whose key has a dead letter: deliver them, or make them dead letters too until"
        " `cdc replay-dead-letters` has sent all dead letters for the key.",
    )
    retry_backoff: Duration = option(
        Duration(1.0), doc="Time to wait before the first retry of a failed step. The time doubles with each failure."
    )
    max_retry_backoff: Duration = option(Duration(30.0), doc="Maximum time to wait before a failed step is retried.")
    max_attempts: int = option(
        20,
        doc="How many times the same step may fail for the same reason. After that, on_error applies, as for an error"
        " that no retry can fix. Outages do not count: the changefeed waits for a source or sink that is unreachable"
        " or busy.",
    )
    give_up_after: Duration = option(
        Duration(600.0), doc="Keep retrying a failed step for at least this long after its first failure."
    )
    mask_key: str | None = option(
        None,
        doc="Key for the 'hash' column mask: at least 16 characters. Equal values have equal hashes in all changefeeds"
        " with the same key.",
        secret=True,
    )
    executor_wait: Duration = option(
        Duration(60.0),
        doc="How long to wait for an executor on a cluster. After this time, a run that is starting ends; a run that"
        " has lost all its executors logs a warning and keeps waiting.",
    )
    log_slow: Duration | None = option(
        None,
        doc="Log each task that has been waiting in one call for longer than this, and each slice that took longer"
        " than this. By default, neither is logged.",
    )
    metrics_label: str | None = option(
        None,
        doc="Value of the `label` label in the changefeed's metrics, for grouping changefeeds. At most 128 bytes.",
    )
    execution_locality: Tiers | None = option(
        None,
        doc="Tiers of a locality, such as region=eu-west-1,cloud=aws. Only nodes whose locality has all of these tiers"
        " may coordinate and run the changefeed.",
    )
    placement: Literal["leaseholder", "random", "balanced_simple"] | None = option(
        None,
        doc="Which replica of each range to read, if the source keeps replicas: the leaseholder, which is the default;"
        " a random replica; or a random replica, but with the ranges spread evenly over the nodes.",
    )
    gc_protect_expires_after: Duration = option(
        Duration(4 * 86_400.0),
        doc="How old a job's high-water mark may become before nodes cancel the job, so that its source can release the"
        " history. A value that you set always applies. The default applies only while a job is paused, failed or"
        " waiting for a node, and is counted from the moment when that state began. The minimum is 1m; 0s means no"
        " limit. A changefeed that `cdc run` runs is not a job and is never canceled.",
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
                "'key_column' needs unordered = true: when the column changes, a row's messages have different keys,"
                " and their order is not guaranteed"
            )
        if self.unordered and self.resolved is not None:
            raise ValueError(
                "'unordered' cannot be combined with 'resolved': without an order, a resolved timestamp means nothing"
                " to a consumer; remove one of them"
            )
        if self.end is not None and self.after is not None and self.end <= self.after:
            raise ValueError(f"'end_time' ({self.end_time}) must be later than 'cursor' ({self.cursor})")
        if (self.on_error == "dead_letter") != (self.dead_letter is not None):
            raise ValueError(
                "on_error='dead_letter' and the option 'dead_letter' (the URI of a sink) must be set together"
            )
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
                raise ValueError(
                    "'topic' and 'full_table_name' cannot be combined; write topic = '{database}.{schema}.{table}'"
                )
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
        if not 1 <= self.delivery_tasks <= MAX_DELIVERY_TASKS:
            raise ValueError(f"'delivery_tasks' must be from 1 to {MAX_DELIVERY_TASKS}")
        if self.log_slow is not None and self.log_slow <= 0:
            raise ValueError("'log_slow' must be longer than 0s; to turn it off, remove the option")
        if self.mask_key is not None and len(self.mask_key) < _MIN_MASK_KEY:
            raise ValueError(f"'mask_key' must have at least {_MIN_MASK_KEY} characters, or values could be guessed")
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


def require_exchange(owner: str, options: ChangefeedOptions, spark: Mapping[str, str]) -> None:
    """Raises: OptionError when Spark, with the settings *spark*, may not exchange rows as *options* need it."""
    changed = sorted(_OF_THE_EXCHANGE & spark.keys())
    if options.delivery_tasks > 1 and changed:
        raise OptionError(
            f"{owner}: option 'delivery_tasks' cannot be used with a Spark setting that may change the order of rows; "
            f"remove the setting '{changed[0]}'"
        )
