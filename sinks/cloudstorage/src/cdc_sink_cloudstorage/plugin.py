"""Registers the cloud-storage sink."""

from collections.abc import Iterator

from cdc_core import SinkRegistration, hookimpl


@hookimpl
def cdc_register_sinks() -> Iterator[SinkRegistration]:
    yield SinkRegistration(
        name="cloudstorage",
        sink="cdc_sink_cloudstorage.sink:CloudStorageSink",
        resolved_sink="cdc_sink_cloudstorage.resolved_sink:CloudStorageResolvedSink",
        destination="cdc_sink_cloudstorage.destination:CloudStorageDestination",
        options="cdc_sink_cloudstorage.options:CloudStorageOptions",
        schemes=("file", "s3", "gs", "azure", "azure-blob", "azure-storage", "memory"),
        output="files",
        routes=True,
        refuses_rows=False,
        records=True,
        min_checkpoint_frequency_s=10.0,
        forced=frozenset({"key_in_value"}),
        envelopes=frozenset({"wrapped", "bare", "enriched"}),
        compression_option="compression",
        summary="Files in a directory or bucket, with names that sort in the order of the changefeed",
        reader="cdc_sink_cloudstorage.reader:CloudStorageReader",
        history="cdc_sink_cloudstorage.history:CloudStorageHistory",
    )
