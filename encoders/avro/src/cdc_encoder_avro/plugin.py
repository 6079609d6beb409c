"""Registers the Avro encoder."""

from collections.abc import Iterator

from cdc_core import EncoderRegistration, hookimpl


@hookimpl
def cdc_register_encoders() -> Iterator[EncoderRegistration]:
    yield EncoderRegistration(
        name="avro",
        encoder="cdc_encoder_avro.encoder:AvroEncoder",
        options="cdc_encoder_avro.options:AvroOptions",
        summary="Avro messages with a schema registry, or Avro object container files",
        envelopes=frozenset({"wrapped", "bare", "row", "key_only", "enriched"}),
        outputs=frozenset({"messages", "files"}),
        rekeys=True,
        decoder="cdc_encoder_avro.decoder:AvroDecoder",
    )
