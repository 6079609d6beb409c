"""The part that runs in the coordinator: writes resolved marks."""

from cdc_core import ResolvedSink, Timestamp

from cdc_sink_template.database import INSERT, Closable, transaction


class TemplateResolvedSink(Closable, ResolvedSink):
    """Appends each resolved mark as a message without a key."""

    def emit_resolved(self, timestamp: Timestamp) -> None:
        """Append the mark to every topic, including topics without rows, in one transaction."""
        with transaction(self.opened) as database:
            for topic in sorted({self.context.topics().of(table) for table in self.context.tables}):
                database.execute(INSERT, (topic, None, self.context.encoder.encode_resolved(topic, timestamp)))
