"""What a consumer sees: for the conformance suite and audits."""

from collections.abc import Iterator

from cdc_core import SinkReader, StoredMessage

from cdc_sink_template.database import path_of, transaction


class TemplateReader(SinkReader):
    """Reads the messages by their sequence numbers, which are in the order of the transactions."""

    def read(self) -> Iterator[StoredMessage]:
        if path_of(self.context).exists():
            with transaction(self.context, "ro") as database:
                for topic, key, value in database.execute("SELECT topic, key, value FROM messages ORDER BY sequence"):
                    yield StoredMessage(topic=topic, key=key, value=value)
