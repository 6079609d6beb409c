"""Registers the encoder. Every `cdc` command imports this module, so it imports only the core."""

from collections.abc import Iterator

from cdc_core import EncoderRegistration, hookimpl


@hookimpl
def cdc_register_encoders() -> Iterator[EncoderRegistration]:
    yield EncoderRegistration(
        name="template",
        encoder="cdc_encoder_template.encoder:TemplateEncoder",
        options="cdc_encoder_template.options:TemplateOptions",
        decoder="cdc_encoder_template.decoder:TemplateDecoder",
        envelopes=frozenset({"wrapped"}),
        outputs=frozenset({"messages", "files"}),
        summary="Writes messages and files in the format template",
    )
