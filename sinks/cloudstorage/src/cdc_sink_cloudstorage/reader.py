"""Reads the files as a consumer would, in the order of their names."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from cdc_core import Endpoint, SinkContext, SinkReader, StoredMessage
from cdc_sink_cloudstorage.compression import decompressed
from cdc_sink_cloudstorage.names import ResolvedFile, parse_name
from cdc_sink_cloudstorage.options import options_of
from cdc_sink_cloudstorage.stored_bodies import StoredBodies


class CloudStorageReader(SinkReader):
    """Gives each file as one message, in the order of paths below the root, which is the order of the changefeed.

    The name of a file tells how it is compressed. Files with names that the sink does not write are skipped. When
    several changefeeds share a root, the files of all of them are given.
    """

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        self._stored = StoredBodies(context.uri, options_of(context))

    def read(self) -> Iterator[StoredMessage]:
        """Yield the files that exist at the time of the call. Raises: as `StoredBodies`."""
        for path in self._stored.paths():
            name = parse_name(path)
            body = None if name is None else self._stored.body(path)
            if name is None or body is None:
                continue
            if isinstance(name, ResolvedFile):
                yield StoredMessage(topic=None, value=body)
            else:
                yield StoredMessage(topic=name.topic, value=decompressed(body, name.extension))

    def endpoints(self) -> Collection[Endpoint]:
        """Return one endpoint: one resolved file is the mark of all topics."""
        return [(None, None)]

    def close(self) -> None:
        """Do nothing: the client stays open in this process."""
