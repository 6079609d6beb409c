"""Registers the CSV encoder."""

from collections.abc import Iterator

from cdc_core import EncoderRegistration, hookimpl


@hookimpl
def cdc_register_encoders() -> Iterator[EncoderRegistration]:
    yield EncoderRegistration(
        name="csv",
        encoder="cdc_encoder_csv.encoder:CsvEncoder",
        options="cdc_encoder_csv.options:CsvOptions",
        summary="Comma-separated values of the rows of an initial scan",
        envelopes=frozenset({"wrapped", "bare", "row"}),
        outputs=frozenset({"messages", "files"}),
        rekeys=True,
        decoder="cdc_encoder_csv.decoder:CsvDecoder",
        scans_only=True,
    )
