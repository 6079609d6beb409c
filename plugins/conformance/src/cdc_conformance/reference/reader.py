"""What a consumer of the reference sink sees."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from cdc_conformance.reference.partitions import Partitions
from cdc_core import Endpoint, SinkContext, SinkReader, StoredMessage

__all__ = ["ReferenceReader"]


class ReferenceReader(SinkReader):
    """Reads the partitions, one after the other."""

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        self._partitions = Partitions.of(context)

    def read(self) -> Iterator[StoredMessage]:
        for topic, partition in self._partitions.endpoints:
            for line in self._partitions.read(topic, partition):
                yield StoredMessage(topic=topic, partition=partition, key=line.key, value=line.value)

    def endpoints(self) -> Collection[Endpoint]:
        return self._partitions.endpoints
