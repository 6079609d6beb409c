"""Registers the webhook sink."""

from collections.abc import Iterator

from cdc_core import SinkRegistration, hookimpl


@hookimpl
def cdc_register_sinks() -> Iterator[SinkRegistration]:
    yield SinkRegistration(
        name="webhook",
        sink="cdc_sink_webhook.sink:WebhookSink",
        resolved_sink="cdc_sink_webhook.resolved_sink:WebhookResolvedSink",
        destination="cdc_sink_webhook.destination:WebhookDestination",
        options="cdc_sink_webhook.options:WebhookOptions",
        schemes=("webhook-https", "webhook-http"),
        output="messages",
        routes=True,
        summary="An HTTPS endpoint: parallel requests that keep the order of each row's changes",
        forced=frozenset({"key_in_value", "topic_in_value"}),
        envelopes=frozenset({"wrapped", "bare", "enriched", "cloudevents"}),
        secret_path=True,
    )
