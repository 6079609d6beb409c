"""The part of the cloud-storage sink that runs in tasks: it writes rows to files."""

from __future__ import annotations

from functools import cached_property

from cdc_core import Flushed, RowBatch, Sink, SinkContext, SliceInfo, TableSchema, TerminalSinkError
from cdc_sink_cloudstorage.compression import STATE_BYTES
from cdc_sink_cloudstorage.manifest import file_entry
from cdc_sink_cloudstorage.open_file import OpenFile
from cdc_sink_cloudstorage.options import options_of
from cdc_sink_cloudstorage.schema_file import SchemaFile
from cdc_sink_cloudstorage.slice_names import Layout, SliceNames
from cdc_sink_cloudstorage.store import Store
from cdc_sink_cloudstorage.stored_bodies import StoredBodies
from cdc_sink_cloudstorage.uploads import Uploads
from cdc_sink_cloudstorage.uris import store_of

_OPEN_BYTES_IN_FILE_SIZES = 4
_MAX_COMPRESSOR_BYTES = 64 * 1024 * 1024


class CloudStorageSink(Sink):
    """Writes rows to files below a directory or bucket. The names of the files sort in the order of the changefeed.

    A topic has one open file at a time. The sink finishes it when it has `file_size` bytes, when rows of another schema
    version arrive, and at `flush`; so all rows of a file have one schema version. Finished files are uploaded in the
    background while the next ones are filled, and `flush` waits for them.

    The files of a topic become visible in the order of their rows, each only after all before it. Whatever dies, a
    reader of names sees the first rows of each topic up to some point, and never a newer version of a key without the
    older ones. Files of different topics become visible in any order before `flush`.

    Memory: the open files of all topics together hold at most 4 * file_size bytes and 64 MB of compressor state; above
    that the largest is finished early. Files that are being uploaded hold at most `upload_buffer` and one file.

    Which rows are in which file depends on the rows alone, so the same slice gives the same files, byte for byte, and
    under the same names: see `SliceNames`. If a file of that name has other content or cannot be read, it is left as it
    is, and the slice continues with unused names. A reader that skips names which it has already read therefore still
    reads every row.
    """

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        self._options = options_of(context)
        self._layout = Layout.of(context)
        self._open: dict[str, OpenFile] = {}
        self._names: SliceNames | None = None
        self._schema_paths: dict[tuple[str, TableSchema], str] = {}
        self._buffered = 0
        self._flushed = Flushed()
        self._closed = False

    @property
    def buffered_bytes(self) -> int:
        """Bytes of memory that the open files take."""
        return self._buffered

    def begin(self, slice_: SliceInfo) -> None:
        """Count files from 0. The first call also removes what earlier attempts left unfinished."""
        if self._names is None:
            self._uploads.sweep()
        self._names = SliceNames(slice_, epoch=self.context.epoch, layout=self._layout)

    def admit(self, topic: str) -> str | None:
        """Refuse a topic that is too long for the name of a file. Dead letters are never among the files."""
        name = self._layout.topics.prefix + topic
        size, most = self._layout.longest_name_bytes(name), self._store.max_name_bytes
        if size > most:
            return (
                f"topic '{name}', which its cdc_topic names, needs file names of {size} bytes, but {most} are allowed"
            )
        return None

    def emit(self, rows: RowBatch) -> None:
        """Add *rows* to the open file of their topic. Full files are uploaded; waits while the store is slow."""
        self._require_open()
        if len(rows) == 0:
            return
        topic = self._layout.topics.of_rows(rows)
        file = self._open.get(topic)
        if file is not None and not file.accepts(rows):
            self._publish(file)
            file = None
        if file is None:
            body = self.context.encoder.open_body(topic)
            file = OpenFile(topic, rows.schema, body=body, compression=self.context.compression)
        self._buffered += file.write(rows)
        file.traced += [row for _, row in self.context.traced_rows(rows)]
        self._open[topic] = file  # only now: a file must not be published when none of its rows could be encoded
        if file.nbytes >= self._options.file_size:
            self._publish(file)
        while self._holds_too_much:
            self._publish(max(self._open.values(), key=lambda candidate: candidate.held_bytes))

    def flush(self) -> Flushed:
        """Publish every open file, in the order of their first rows, and return what has become durable."""
        self._require_open()
        for file in list(self._open.values()):
            self._publish(file)
        self._uploads.wait()
        flushed, self._flushed = self._flushed, Flushed()
        return flushed

    def close(self) -> None:
        """Drop what was not flushed, without waiting for the store. May be called twice."""
        self._closed = True
        self._open.clear()
        self._buffered = 0
        if "_uploads" in self.__dict__:
            self._uploads.close()
        if "_store" in self.__dict__:
            self._store.close()

    @cached_property
    def _store(self) -> Store:
        return store_of(self.context)

    @cached_property
    def _uploads(self) -> Uploads:
        return Uploads(self._store, max_bytes=self._options.upload_buffer)

    @cached_property
    def _stored(self) -> StoredBodies:
        return StoredBodies(self.context.uri, self._options)

    @property
    def _holds_too_much(self) -> bool:
        state = len(self._open) * STATE_BYTES[self.context.compression]
        return self._buffered > _OPEN_BYTES_IN_FILE_SIZES * self._options.file_size or state > _MAX_COMPRESSOR_BYTES

    def _require_open(self) -> None:
        if self._closed:
            raise TerminalSinkError("the cloud-storage sink is closed")

    def _publish(self, file: OpenFile) -> None:
        """Finish *file* and start its upload, under the next name of the slice."""
        names = self._names
        assert names is not None, "begin comes before emit"
        del self._open[file.topic]
        self._buffered -= file.held_bytes
        schema_path = self._put_schema(file)
        chunks = file.finish()
        version = file.schema.version
        path, stored = names.next_path(file.topic, version), None
        while names.may_exist and (stored := self._stored.holds(path, file.sha256)) is False:
            names.use_new()
            path = names.next_path(file.topic, version)
        if not (stored and self._store.visible_is_durable):  # a store may forbid replacing a file, even by the same
            self._uploads.put(path, chunks, nbytes=file.nbytes, lane=file.topic)
        names.advance()
        for row in file.traced:
            row.placed(file=path)
        entry = file_entry(file, path, format_=self.context.format, schema_path=schema_path)
        self._flushed = Flushed(
            messages=self._flushed.messages + file.messages,
            bytes=self._flushed.bytes + file.nbytes,
            files=self._flushed.files + 1,
            delivered=(*self._flushed.delivered, entry),
        )

    def _put_schema(self, file: OpenFile) -> str:
        """Return the path of the schema file of *file*, which is durable now."""
        path = self._schema_paths.get((file.topic, file.schema))
        if path is None:
            context = self.context
            schema = SchemaFile.of(file.schema, topic=file.topic, format_=context.format, encoder=context.encoder)
            self._stored.put_once(self._store, schema.path, schema.body)
            path = self._schema_paths[file.topic, file.schema] = schema.path
        return path
