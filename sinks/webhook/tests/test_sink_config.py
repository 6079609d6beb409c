from __future__ import annotations

from typing import Any

import pytest
from cdc_sink_webhook.options import WebhookOptions
from cdc_sink_webhook.sink_config import SinkConfig

from cdc_core import OptionError, parse_options


def parsed(values: dict[str, Any]) -> SinkConfig:
    options = parse_options(WebhookOptions, values, owner="sink 'webhook'")
    return SinkConfig.of(options.webhook_sink_config)


def test_the_defaults_are_those_of_cockroachdb() -> None:
    config = parsed({})
    assert config.flush().single
    assert (config.retry().limit, config.retry().Backoff) == (3, 0.5)


def test_every_entry_is_parsed() -> None:
    text = '{"Flush": {"Messages": 100, "Bytes": 1000000, "Frequency": "10ms"}, "Retry": {"Max": 4, "Backoff": "10s"}}'
    config = parsed({"webhook_sink_config": text})
    assert (config.flush().Messages, config.flush().Bytes, config.flush().Frequency) == (100, 1_000_000, 0.01)
    assert (config.retry().limit, config.retry().Backoff) == (4, 10.0)


def test_entries_may_be_dotted_names() -> None:
    config = parsed({"webhook_sink_config.Flush.Frequency": "1s", "webhook_sink_config.Retry.Max": "inf"})
    assert (config.flush().Frequency, config.retry().limit) == (1.0, None)


def test_the_value_may_be_a_toml_table() -> None:
    config = parsed({"webhook_sink_config": {"Flush": {"Messages": 5, "Frequency": "1s"}, "Retry": {"Max": 7}}})
    assert (config.flush().Messages, config.retry().limit) == (5, 7)


@pytest.mark.parametrize(
    ("entries", "sentence"),
    [
        ({"Flush": {"Messages": 10}}, "'Flush.Frequency' is not set, so messages may never be sent"),
        ({"Flush": {"Bytes": 10}}, "'Flush.Frequency' is not set, so messages may never be sent"),
        ({"Flush": {"Messages": -1, "Frequency": "1s"}}, "'Flush.Messages' must not be negative"),
        ({"Flush": {"Bytes": -1, "Frequency": "1s"}}, "'Flush.Bytes' must not be negative"),
        ({"Flush": {"Frequency": "-1s"}}, "must be a duration"),
        ({"Flush": {"Mesages": 1}}, "did you mean 'Messages'"),
        ({"Retry": {"Max": 0}}, "'Retry.Max' is 0, but must be a whole number of at least 1, or 'inf'"),
        ({"Retry": {"Max": -1}}, "'Retry.Max' is -1, but must be"),
        ({"Retry": {"Max": "many"}}, "'Retry.Max' is 'many', but must be"),
        ({"Retry": {"Max": 1.5}}, "'Max' is 1.5"),
        ({"Retry": {"Max": True}}, "'Max' is True"),
        ({"Retry": {"Backoff": "-1s"}}, "must be a duration"),
        ({"Retries": {}}, "did you mean 'Retry'"),
        ({"Flush": 5}, "must be a table"),
    ],
)
def test_invalid_entries_are_refused(entries: dict[str, Any], sentence: str) -> None:
    with pytest.raises(OptionError) as raised:
        parsed({"webhook_sink_config": entries})
    assert sentence in str(raised.value)
    assert "webhook_sink_config" in str(raised.value)
