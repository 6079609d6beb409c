"""Registers the webhook sink."""

from collections.abc import Iterator

from cdc_core import SinkRegistration, hookimpl


@hookimpl
def cdc_register_sinks() -> Iterator[SinkRegistration]:
    yield SinkRegistration(
        name="webhook",
        target="cdc_sink_webhook.sink:WebhookSink",
        options="cdc_sink_webhook.options:WebhookOptions",
        schemes=("webhook-https", "webhook-http"),
        output="messages",
        summary="An HTTPS endpoint, by parallel requests that keep the order of every row",
        forced=frozenset({"key_in_value", "topic_in_value"}),
        envelopes=frozenset({"wrapped", "bare", "enriched"}),
        secret_path=True,
    )
