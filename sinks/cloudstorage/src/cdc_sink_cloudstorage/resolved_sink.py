"""The part of the cloud-storage sink that runs in the coordinator: it writes manifests and resolved files."""

from __future__ import annotations

from functools import cached_property

from cdc_core import Covered, ResolvedSink, SinkContext, TerminalSinkError, Timestamp
from cdc_sink_cloudstorage.manifest import Manifest
from cdc_sink_cloudstorage.names import ManifestFile, ResolvedFile
from cdc_sink_cloudstorage.options import options_of
from cdc_sink_cloudstorage.store import Store
from cdc_sink_cloudstorage.stored_bodies import StoredBodies
from cdc_sink_cloudstorage.uris import store_of

_NO_ID = "0" * 12


class CloudStorageResolvedSink(ResolvedSink):
    """Writes one resolved file for each mark, and before it the manifest of what the mark covers."""

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        self._partition_format = options_of(context).partition_format
        self._stored = StoredBodies(context.uri, options_of(context))
        self._closed = False

    def record(self, covered: Covered) -> None:
        """Return when the manifest of the mark is durable. It lists all files that this mark is the first to cover."""
        changefeed, feed_id = self.context.changefeed, self.context.feed_id or _NO_ID
        name = ManifestFile(timestamp=covered.mark, changefeed=changefeed, feed_id=feed_id)
        manifest = Manifest.of(covered, changefeed=changefeed, feed_id=feed_id)
        self._put(name.path(self._partition_format), manifest.to_bytes())

    def emit_resolved(self, timestamp: Timestamp) -> None:
        """Return when the resolved file of *timestamp* is durable. The same timestamp gives the same file again."""
        payload = self.context.encoder.encode_resolved("", timestamp)  # one file is the mark of all topics
        self._put(ResolvedFile(timestamp=timestamp).path(self._partition_format), payload)

    def close(self) -> None:
        """Close connections. May be called twice."""
        self._closed = True
        if "_store" in self.__dict__:
            self._store.close()

    def _put(self, path: str, body: bytes) -> None:
        if self._closed:
            raise TerminalSinkError("the cloud-storage sink is closed")
        self._stored.put_once(self._store, path, body)

    @cached_property
    def _store(self) -> Store:
        return store_of(self.context)
