"""What a consumer of the file sees, for the conformance suite and audits."""

import os
from collections.abc import Collection, Iterator
from contextlib import closing

from cdc_core import Endpoint, SinkReader, StoredMessage

from cdc_sink_template.database import connect, path_of, translated


class TemplateReader(SinkReader):
    """Reads the messages in the order of their sequence numbers, which is that of their transactions."""

    def read(self) -> Iterator[StoredMessage]:
        if os.path.exists(path_of(self.context)):
            with translated(self.context), closing(connect(self.context, mode="ro")) as connection:
                rows = connection.execute("SELECT topic, key, value FROM messages ORDER BY sequence")
                yield from (StoredMessage(topic=topic, key=key, value=value) for topic, key, value in rows)

    def endpoints(self) -> Collection[Endpoint]:
        topics = self.context.topics(self.context.options.topic_prefix)
        return {(topics.of(table), None) for table in self.context.tables}

    def close(self) -> None:
        """Nothing stays open."""
