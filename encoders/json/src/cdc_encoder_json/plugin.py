"""Registers the JSON encoder."""

from collections.abc import Iterator

from cdc_core import EncoderRegistration, hookimpl


@hookimpl
def cdc_register_encoders() -> Iterator[EncoderRegistration]:
    yield EncoderRegistration(
        name="json",
        encoder="cdc_encoder_json.encoder:JsonEncoder",
        options="cdc_encoder_json.options:JsonOptions",
        summary="JSON messages, or files of newline-delimited JSON",
        envelopes=frozenset({"wrapped", "bare", "row", "key_only", "enriched", "cloudevents"}),
        outputs=frozenset({"messages", "files"}),
        rekeys=True,
        decoder="cdc_encoder_json.decoder:JsonDecoder",
    )
