"""Says what this package brings. Runs in every `cdc` command, so it imports no client library."""

from collections.abc import Iterator

from cdc_core import EncoderRegistration, hookimpl


@hookimpl
def cdc_register_encoders() -> Iterator[EncoderRegistration]:
    yield EncoderRegistration(
        name="template",
        target="cdc_encoder_template.encoder:TemplateEncoder",
        options="cdc_encoder_template.options:TemplateOptions",
        decoder="cdc_encoder_template.decoder:TemplateDecoder",
        envelopes=frozenset({"wrapped"}),
        outputs=frozenset({"messages", "files"}),
        summary="Rows as forms of the web: after.id=7&after.item=a%20book",
    )
