"""Registers the cloud-storage sink."""

from collections.abc import Iterator

from cdc_core import SinkRegistration, hookimpl


@hookimpl
def cdc_register_sinks() -> Iterator[SinkRegistration]:
    yield SinkRegistration(
        name="cloudstorage",
        target="cdc_sink_cloudstorage.sink:CloudStorageSink",
        options="cdc_sink_cloudstorage.options:CloudStorageOptions",
        schemes=("file", "s3", "gs", "azure", "azure-blob", "azure-storage", "memory"),
        output="files",
        min_checkpoint_frequency_s=10.0,
        forced=frozenset({"key_in_value"}),
        envelopes=frozenset({"wrapped", "bare"}),
        summary="Files in a directory or bucket, in an order that resolved marks can be trusted in",
        reader="cdc_sink_cloudstorage.reader:CloudStorageReader",
        history="cdc_sink_cloudstorage.history:CloudStorageHistory",
    )
