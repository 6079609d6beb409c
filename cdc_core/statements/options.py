"""CockroachDB's options and sinks, and what each is here: the option of ours that it means, or why there is none."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from cdc_core.options import read_duration
from cdc_core.timestamp import Timestamp

Kind = Literal["flag", "flag or duration", "duration", "choice", "text", "timestamp", "JSON", "list", "URI"]
_WITHOUT_VALUE: tuple[Kind, ...] = ("flag", "flag or duration")


@dataclass(frozen=True, slots=True, kw_only=True)
class CockroachOption:
    """One option of CockroachDB. `ours` is the option that takes its place, with `values` by other names.

    Without `ours` it is refused, for the reason that `note` gives. `bare` is what it means without a value, where that
    is a value of ours. An option that only `ALTER CHANGEFEED … SET` may have is `altering`.
    """

    name: str
    kind: Kind
    ours: str | None = None
    values: Mapping[str, str] = field(default_factory=dict)
    bare: str | None = None
    note: str = ""
    altering: bool = False


def _same(name: str, kind: Kind, **more: object) -> CockroachOption:
    return CockroachOption(name=name, kind=kind, ours=name, **more)  # type: ignore[arg-type]


def _refused(name: str, kind: Kind, note: str) -> CockroachOption:
    return CockroachOption(name=name, kind=kind, note=note)


OPTIONS: tuple[CockroachOption, ...] = (
    _same("envelope", "choice", values={"deprecated_row": "row"}),
    _same("enriched_properties", "list"),
    _same("format", "choice", values={"experimental_avro": "avro"}, note="The encoder: any that is installed."),
    _same("diff", "flag", note="Cannot be used with a query: select columns of `cdc_prev` instead."),
    _same("updated", "flag"),
    _same("mvcc_timestamp", "flag"),
    _same("key_in_value", "flag"),
    _same("topic_in_value", "flag"),
    _same("full_table_name", "flag"),
    _same("resolved", "flag or duration"),
    _same("min_checkpoint_frequency", "duration", note="The default depends on the sink."),
    _same("initial_scan", "choice", bare="yes"),
    CockroachOption(name="no_initial_scan", kind="flag", ours="initial_scan", bare="no"),
    CockroachOption(name="initial_scan_only", kind="flag", ours="initial_scan", bare="only"),
    _same("cursor", "timestamp", note="Also a position of the source, such as an LSN."),
    _same("end_time", "timestamp"),
    _same("schema_change_events", "choice"),
    _same("schema_change_policy", "choice"),
    _refused("split_column_families", "flag", "the sources' tables have no column families"),
    _same("virtual_columns", "choice"),
    _same("compression", "choice"),
    _same("confluent_schema_registry", "URI"),
    _same("avro_schema_prefix", "text"),
    _same("kafka_sink_config", "JSON"),
    _same("webhook_sink_config", "JSON"),
    _refused("pubsub_sink_config", "JSON", "there is no sink for Pub/Sub"),
    _same("webhook_auth_header", "text"),
    _same("webhook_client_timeout", "duration"),
    _same("extra_headers", "JSON"),
    _same("headers_json_column_name", "text"),
    _same("encode_json_value_null_as_object", "flag"),
    _same("on_error", "choice", note="Also `dead_letter`."),
    _refused(
        "protect_data_from_gc_on_pause",
        "flag",
        "the source of a paused job always retains its history; limit it with gc_protect_expires_after",
    ),
    _same("gc_protect_expires_after", "duration", note="At least 1m; 0s: never."),
    _refused("lagging_ranges_threshold", "duration", "ranges are not watched individually"),
    _refused("lagging_ranges_polling_interval", "duration", "ranges are not watched individually"),
    _same("metrics_label", "text", note="At most 128 bytes."),
    _same("execution_locality", "text"),
    CockroachOption(
        name="range_distribution_strategy",
        kind="choice",
        ours="placement",
        values={"default": "leaseholder"},
        note="Only for sources that have replicas.",
    ),
    _same("unordered", "flag"),
    _same("key_column", "text"),
    _same("partition_alg", "choice", note="The default is `murmur2`, as in Kafka's own clients."),
    _refused(
        "ignore_disable_changefeed_replication",
        "flag",
        "a session cannot exclude its rows from a changefeed",
    ),
    _same("create_kafka_topics", "choice", note="The default is `explicit`."),
    _refused("hibernation_polling_frequency", "duration", "a changefeed watches tables, not a database"),
    _same("sink", "URI", altering=True, note="Only with `ALTER CHANGEFEED … SET`."),
    _refused("topics", "text", "it records CockroachDB's own topics"),
)
"""Every option that CockroachDB has for changefeeds."""
_BY_NAME = {option.name: option for option in OPTIONS}
_AGO = re.compile(r"-\s*(.*)")
_WITHOUT_ZONE = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d+)?)?)?")


def translated(name: str, value: str | None, *, now: datetime, altering: bool = False) -> tuple[str, str | bool]:
    """Return the option of ours that an option in a statement means, and its value: True where it has none.

    An option that CockroachDB does not have is ours already. Times before *now*, such as `-1h`, become timestamps.
    Raises: ValueError with the reason why the option cannot be had, or not with this value.
    """
    ours, option = our_name(name), _BY_NAME.get(name.lower())
    if option is None:
        return ours, True if value is None else value
    if option.altering and not altering:
        raise ValueError(f"option '{option.name}' is only for ALTER CHANGEFEED; here, name the sink with INTO")
    if value is None or value == "":
        if option.bare is not None:
            return ours, option.bare
        if option.kind in _WITHOUT_VALUE:
            return ours, True
        raise ValueError(f"option '{option.name}' needs a value; write {option.name} = '…'")
    if option.kind == "flag" and option.bare is not None:
        raise ValueError(f"option '{option.name}' has no value; write initial_scan = '{option.bare}'")
    if option.kind == "choice" and "${" not in value:
        value = option.values.get(value.lower(), value.lower())
    if option.kind == "timestamp":
        value = moment(value, now)
    return ours, translated_sink(value) if option.name == "sink" else value


def our_name(name: str) -> str:
    """Return the option of ours that takes the place of one in a statement. Raises: ValueError, with the reason."""
    option = _BY_NAME.get(name.lower())
    if option is None:
        return name
    if option.ours is None:
        raise ValueError(f"there is no option '{option.name}' here, because {option.note}; remove it")
    return option.ours


def moment(text: str, now: datetime) -> str:
    """Return a time as CockroachDB reads it in the form that ours are written in. Raises: ValueError."""
    ago = _AGO.fullmatch(text.strip())
    if ago is not None:
        try:
            return str(Timestamp.read((now - timedelta(seconds=read_duration(ago[1]))).isoformat()))
        except ValueError as error:
            raise ValueError(f"'{text}' {error}") from None
    if _WITHOUT_ZONE.fullmatch(text.strip()):
        date, _, time = text.strip().replace(" ", "T").partition("T")
        return f"{date}T{time or '00:00'}Z"
    return text


_FILES = "files cannot be sent over HTTP; to send requests to an endpoint, write webhook-https://"
_REFUSED = {
    "experimental-sql": "no sink writes to database tables",
    "external": "external connections are not supported; write the URI itself, with ${VARIABLE} instead of secrets",
    "file-http": _FILES,
    "file-https": _FILES,
    "http": _FILES,
    "https": _FILES,
    "nodelocal": "nodes have no local storage for files; write file:///PATH with a directory that all nodes share",
}


def translated_sink(uri: str) -> str:
    """Return the URI of ours that CockroachDB's means: the same one, as parameters have the same names.

    Whether a sink for it is installed is found out later. Raises: ValueError with what to write instead.
    """
    scheme = uri.partition("://")[0].lower()
    reason = _REFUSED.get(scheme) if "://" in uri else None
    if reason is not None:
        raise ValueError(f"a URI with the scheme '{scheme}' cannot be a sink: {reason}")
    return uri
