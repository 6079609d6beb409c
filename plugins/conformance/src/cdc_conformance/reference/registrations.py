"""The registrations of the two reference sinks."""

from __future__ import annotations

from cdc_core import SinkRegistration

__all__ = ["ARCHIVE", "REFERENCE_SINK"]

REFERENCE_SINK = SinkRegistration(
    name="reference",
    schemes=("reference",),
    sink="cdc_conformance.reference.sink:ReferenceSink",
    resolved_sink="cdc_conformance.reference.sink:ReferenceResolvedSink",
    destination="cdc_conformance.reference.sink:ReferenceDestination",
    reader="cdc_conformance.reference.sink:ReferenceReader",
    options="cdc_conformance.reference.partitions:ReferenceOptions",
    output="messages",
    routes=True,
    summary="Partitions in a directory, for the conformance kit's own tests",
)

ARCHIVE = SinkRegistration(
    name="archive",
    schemes=("archive",),
    sink="cdc_conformance.reference.archive:ArchiveSink",
    resolved_sink="cdc_conformance.reference.archive:ArchiveResolvedSink",
    destination="cdc_conformance.reference.archive:ArchiveDestination",
    history="cdc_conformance.reference.archive:ArchiveHistory",
    options="cdc_conformance.reference.archive:ArchiveOptions",
    output="files",
    refuses_rows=False,
    records=True,
    forced=frozenset({"updated", "key_in_value"}),
    envelopes=frozenset({"wrapped", "bare"}),
    summary="Files, with a list of them for each resolved mark, for the conformance kit's own tests",
)
