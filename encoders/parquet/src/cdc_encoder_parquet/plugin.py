"""Registers the Parquet encoder."""

from collections.abc import Iterator

from cdc_core import EncoderRegistration, hookimpl


@hookimpl
def cdc_register_encoders() -> Iterator[EncoderRegistration]:
    yield EncoderRegistration(
        name="parquet",
        encoder="cdc_encoder_parquet.encoder:ParquetEncoder",
        options="cdc_encoder_parquet.options:ParquetOptions",
        summary="Parquet files with a column for each column of the table",
        envelopes=frozenset({"wrapped", "bare"}),
        outputs=frozenset({"files"}),
        decoder="cdc_encoder_parquet.decoder:ParquetDecoder",
        compresses=True,
    )
