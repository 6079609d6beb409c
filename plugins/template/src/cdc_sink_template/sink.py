"""The part that runs in tasks: writes rows as messages."""

from cdc_core import Flushed, MessageBatch, RowBatch, Sink, SinkContext

from cdc_sink_template.database import INSERT, Closable, transaction


class TemplateSink(Closable, Sink):
    """Appends each row as a message to the table `messages`.

    Collects encoded rows and writes them in one transaction. Memory is bounded, because the engine flushes whenever
    the rows take 32 MB.
    """

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        self._batches: list[MessageBatch] = []

    def emit(self, rows: RowBatch) -> None:
        self._batches.append(self.opened.encoder.encode(rows, topic=self.context.topics().of(rows.schema.name)))

    def flush(self) -> Flushed:
        """Return when all messages are committed and synced to disk.

        When a constraint or a trigger refuses a row, SQLite does not say which row. Then RefusedRowsError leaves this
        call with every row forgotten, and the engine emits the rows again in smaller parts.
        """
        batches, self._batches = self._batches, []
        with transaction(self.opened) as database:
            for batch in batches:
                messages = zip([batch.topic] * len(batch), batch.key.to_pylist(), batch.value.to_pylist(), strict=True)
                database.executemany(INSERT, messages)
        return Flushed(messages=sum(map(len, batches)), bytes=sum(batch.nbytes for batch in batches))
