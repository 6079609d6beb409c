"""How the files of one changefeed are named."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_core import SinkContext, TableName, TopicNames
from cdc_sink_cloudstorage.compression import EXTENSIONS
from cdc_sink_cloudstorage.names import PartitionFormat
from cdc_sink_cloudstorage.options import options_of

__all__ = ["Layout"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The rules for names that all parts of the sink share."""

    topics: TopicNames
    partition_format: PartitionFormat
    extension: str
    """The end of the names of data files, with its dot."""

    @classmethod
    def of(cls, context: SinkContext) -> Layout:
        """Return the layout of the files that a sink with *context* writes."""
        options = options_of(context)
        return cls(
            topics=context.topics(options.topic_prefix),
            partition_format=options.partition_format,
            extension=context.encoder.file_extension + EXTENSIONS[context.compression],
        )

    def topic(self, table: TableName) -> str:
        """Return the topic of *table*: the part of a file name that says which table its rows belong to."""
        return self.topics.of(table)
