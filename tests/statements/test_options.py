"""CockroachDB's options: each is an option of ours, or is refused by name."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cdc_core.config.changefeed_options import ChangefeedOptions
from cdc_core.config.component import Component
from cdc_core.options import option_names
from cdc_core.plugins.host import PluginHost
from cdc_core.statements.options import OPTIONS, CockroachOption, translated

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
COCKROACH = """
    envelope enriched_properties format diff updated mvcc_timestamp key_in_value topic_in_value full_table_name resolved
    min_checkpoint_frequency initial_scan no_initial_scan initial_scan_only cursor end_time schema_change_events
    schema_change_policy split_column_families virtual_columns compression confluent_schema_registry avro_schema_prefix
    kafka_sink_config webhook_sink_config pubsub_sink_config webhook_auth_header webhook_client_timeout extra_headers
    headers_json_column_name encode_json_value_null_as_object on_error protect_data_from_gc_on_pause
    gc_protect_expires_after lagging_ranges_threshold lagging_ranges_polling_interval metrics_label execution_locality
    range_distribution_strategy unordered key_column partition_alg ignore_disable_changefeed_replication
    create_kafka_topics hibernation_polling_frequency sink topics
"""
"""The options of CockroachDB 26.3."""
FIELDS = {"format", "sink"}
"""What is no option of ours, but a key of the changefeed itself."""


def our_options() -> set[str]:
    host = PluginHost.load()
    listed = [row for row in host.listing() if row.kind]
    parts = [Component(registration=host.component(row.kind, row.name)) for row in listed]
    return {name for part in parts for name in option_names(part.load_options())} | set(option_names(ChangefeedOptions))


def test_every_option_of_cockroachdb_is_in_the_table_once() -> None:
    assert [option.name for option in OPTIONS] == COCKROACH.split()


def test_what_an_option_means_is_an_option_of_ours_and_what_is_refused_is_none() -> None:
    ours = our_options()
    for option in OPTIONS:
        if option.ours is None:
            assert option.name not in ours, option.name
            assert option.note, option.name
        else:
            assert option.ours in ours | FIELDS, option.name


@pytest.mark.parametrize("option", [each for each in OPTIONS if each.ours is None], ids=lambda each: each.name)
def test_an_option_without_a_counterpart_is_refused_with_the_reason(option: CockroachOption) -> None:
    with pytest.raises(ValueError, match=f"there is no option '{option.name}' here, because ") as raised:
        translated(option.name.upper(), None, now=NOW)
    assert option.note in str(raised.value)
    assert str(raised.value).endswith("; remove it")


@pytest.mark.parametrize(
    ("name", "value", "ours"),
    [
        ("updated", None, ("updated", True)),
        ("UPDATED", "", ("updated", True)),
        ("resolved", None, ("resolved", True)),
        ("resolved", "10s", ("resolved", "10s")),
        ("initial_scan", None, ("initial_scan", "yes")),
        ("initial_scan", "ONLY", ("initial_scan", "only")),
        ("no_initial_scan", None, ("initial_scan", "no")),
        ("initial_scan_only", None, ("initial_scan", "only")),
        ("envelope", "deprecated_row", ("envelope", "row")),
        ("format", "experimental_avro", ("format", "avro")),
        ("format", "${FORMAT}", ("format", "${FORMAT}")),
        ("range_distribution_strategy", "default", ("placement", "leaseholder")),
        ("range_distribution_strategy", "balanced_simple", ("placement", "balanced_simple")),
        ("cursor", "-1h", ("cursor", f"{int(NOW.timestamp() - 3600)}000000000.0000000000")),
        ("cursor", "2026-01-30 10:00:00", ("cursor", "2026-01-30T10:00:00Z")),
        ("cursor", "2026-01-30", ("cursor", "2026-01-30T00:00Z")),
        ("cursor", "0/1A2B3C", ("cursor", "0/1A2B3C")),
        ("end_time", "1701102296662969433.0000000000", ("end_time", "1701102296662969433.0000000000")),
        ("kafka_sink_config", '{"RequiredAcks": "ALL"}', ("kafka_sink_config", '{"RequiredAcks": "ALL"}')),
        ("dead_letter_max", "5", ("dead_letter_max", "5")),
    ],
)
def test_an_option_means_this(name: str, value: str | None, ours: tuple[str, str | bool]) -> None:
    assert translated(name, value, now=NOW) == ours


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("format", None, "option 'format' needs a value; write format = '…'"),
        ("cursor", "", "option 'cursor' needs a value"),
        ("cursor", "-soon", "must be a duration such as 500ms, 10s or 1h30m"),
        ("end_time", "-1 hour", "must be a duration such as 500ms, 10s or 1h30m"),
        ("no_initial_scan", "yes", "option 'no_initial_scan' has no value; write initial_scan = 'no'"),
        ("sink", "kafka://h:9092", "option 'sink' is only for ALTER CHANGEFEED; here, name the sink with INTO"),
    ],
)
def test_a_value_that_an_option_cannot_have_is_refused(name: str, value: str | None, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        translated(name, value, now=NOW)


@pytest.mark.parametrize("scheme", ["external", "nodelocal", "http", "https", "file-https", "experimental-sql"])
def test_a_uri_that_cannot_be_a_sink_here_is_refused_by_name(scheme: str) -> None:
    with pytest.raises(ValueError, match=f"'{scheme}' cannot be a sink: .*"):
        translated("sink", f"{scheme}://a", now=NOW, altering=True)
    assert translated("sink", "kafka://h?topic_prefix=a", now=NOW, altering=True)[1] == "kafka://h?topic_prefix=a"
