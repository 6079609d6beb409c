"""The cloud-storage sink."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

from cdc_core.errors import ConfigError, TerminalSinkError
from cdc_core.rows import RowBatch
from cdc_core.schema import TableName, TableSchema
from cdc_core.sink import Covered, Flushed, Sink, SinkContext, SliceInfo
from cdc_core.timestamp import Timestamp
from cdc_sink_cloudstorage.compression import EXTENSIONS, STATE_BYTES
from cdc_sink_cloudstorage.destination import open_store
from cdc_sink_cloudstorage.manifest import Manifest, file_entry
from cdc_sink_cloudstorage.names import DataFile, ManifestFile, ResolvedFile
from cdc_sink_cloudstorage.open_file import OpenFile
from cdc_sink_cloudstorage.options import CloudStorageOptions
from cdc_sink_cloudstorage.schemas import SchemaFile
from cdc_sink_cloudstorage.store import Store
from cdc_sink_cloudstorage.stored import StoredBodies
from cdc_sink_cloudstorage.temporaries import Temporaries
from cdc_sink_cloudstorage.uploads import Uploads

__all__ = ["CloudStorageSink"]

_OPEN_BYTES_IN_FILE_SIZES = 4
_MAX_COMPRESSOR_BYTES = 64 * 1024 * 1024
_NAMES_OF_AN_ATTEMPT = 1 << 24
_NO_ID = "0" * 12


class CloudStorageSink(Sink):
    """Writes rows to files under a directory or bucket, named so that their order is the order of the changefeed.

    A topic has one open file at a time. It is finished when it has `file_size` bytes, when rows of another schema
    version come, and at `flush`; so all rows of a file have one schema version. Finished files are uploaded in the
    background while the next ones are filled; `flush` waits for them. The files of a topic become visible in the order
    of their rows, each only when all before it are visible: whatever dies, a reader of names sees the beginning of each
    topic's rows and never a newer version of a key without the older ones. Files of different topics know no order
    before `flush`. Memory: the open files of all topics together hold at most 4 * file_size bytes and 64 MB of
    compressor state, beyond which the largest is finished early; files on their way hold at most `upload_buffer`
    and one file. What is in which file depends on the rows alone, so the same slice gives the same files, byte for
    byte.

    A slice that repeats one of an earlier run writes its files under that run's names. A name that is taken by another
    content, or by one that cannot be looked at, stays as it is: from there on the slice's files get names of this run,
    so that whoever leaves out the names that he has read before still reads every row. So does an attempt of this run
    that comes after another one, and counts its files from 2**24 times its number on.
    """

    refuses_rows: ClassVar[bool] = False
    records: ClassVar[bool] = True

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        if not isinstance(context.options, CloudStorageOptions):
            raise TypeError(f"options must be CloudStorageOptions, not {type(context.options).__name__}")
        self._options: CloudStorageOptions = context.options
        self._compression = "none" if context.encoder.compresses else self._options.compression
        self._topics = context.topics(self._options.topic_prefix)
        self._open: dict[str, OpenFile] = {}
        self._slice: SliceInfo | None = None
        self._counter = 0
        self._epoch = context.epoch
        self._schemas: dict[TableSchema, str] = {}
        self._buffered = 0
        self._flushed = Flushed()
        self._swept = False
        self._closed = False

    @property
    def buffered_bytes(self) -> int:
        """Bytes that wait in memory to be published."""
        return self._buffered

    def check(self) -> None:
        """Return when the destination is reachable and writable. Changes nothing. Raises: ConfigError.

        Also refuses tables that would share a topic, and names that the store cannot take.
        """
        self._check_names()
        self._store.check()

    def topic(self, table: TableName) -> str:
        """Return the topic of *table*, the part of file names that says whose rows are in them."""
        return self._topics.of(table)

    def prepare(self) -> None:
        """Directories come into being with their first file."""

    def begin(self, slice_: SliceInfo) -> None:
        """Throw away what was not flushed and count files from 0. After the first call leftovers of dead runs go."""
        self._require_open()
        self._discard()
        self._slice = slice_
        self._epoch = self.context.epoch if slice_.planned_by is None else slice_.planned_by
        self._counter = 0
        if not self._swept:
            self._uploads.sweep()
            self._swept = True

    def emit(self, rows: RowBatch) -> None:
        """Add *rows* to the open file of their topic. Files that are full are on their way. Waits for a slow store."""
        self._require_open()
        if self._slice is None:
            raise TerminalSinkError("the cloud-storage sink was given rows before begin")
        if len(rows) == 0:
            return
        topic = self.topic(rows.schema.name)
        file = self._open.get(topic)
        if file is not None and not file.takes(rows):
            self._publish(file)
            file = None
        if file is None:
            body = self.context.encoder.open_body(topic)
            file = OpenFile(topic, rows.schema, body=body, compression=self._compression)
        self._buffered += file.write(rows)
        self._open[topic] = file  # only now: a file none of whose rows could be encoded is not to be published
        if file.nbytes >= self._options.file_size:
            self._publish(file)
        while self._holds_too_much:
            self._publish(max(self._open.values(), key=lambda candidate: candidate.held_bytes))

    def flush(self) -> Flushed:
        """Publish every open file, in the order of their first rows, and return what became durable since `begin`."""
        self._require_open()
        for file in list(self._open.values()):
            self._publish(file)
        self._uploads.wait()
        flushed, self._flushed = self._flushed, Flushed()
        return flushed

    def record(self, covered: Covered) -> None:
        """Return when the manifest of the mark is durable: the names of all files that the mark covers first."""
        self._require_open()
        feed_id = self.context.feed_id or _NO_ID
        name = ManifestFile(timestamp=covered.mark, changefeed=self.context.changefeed, feed_id=feed_id)
        manifest = Manifest.of(covered, changefeed=self.context.changefeed, feed_id=feed_id)
        self._store.put(name.path(self._options.partition_format), [manifest.to_bytes()])

    def emit_resolved(self, timestamp: Timestamp) -> None:
        """Return when the resolved file of *timestamp* is durable. The same timestamp gives the same file again."""
        self._require_open()
        payload = self.context.encoder.encode_resolved("", timestamp)  # one file speaks for all topics
        self._store.put(ResolvedFile(timestamp=timestamp).path(self._options.partition_format), [payload])

    def close(self) -> None:
        """Throw away what was not flushed, without waiting for the store. May be called twice."""
        self._discard()
        self._closed = True
        if "_uploads" in self.__dict__:
            self._uploads.close()
        if "_store" in self.__dict__:
            self._store.close()

    @cached_property
    def _store(self) -> Store:
        temporaries = Temporaries(changefeed=self.context.changefeed, epoch=self.context.epoch)
        return open_store(self.context.uri, self._options, temporaries=temporaries)

    @cached_property
    def _uploads(self) -> Uploads:
        return Uploads(self._store, most_bytes=self._options.upload_buffer)

    @cached_property
    def _stored(self) -> StoredBodies:
        return StoredBodies(self.context.uri, self._options)

    @property
    def _extension(self) -> str:
        return self.context.encoder.file_extension + EXTENSIONS[self._compression]

    @property
    def _holds_too_much(self) -> bool:
        state = len(self._open) * STATE_BYTES[self._compression]
        return self._buffered > _OPEN_BYTES_IN_FILE_SIZES * self._options.file_size or state > _MAX_COMPRESSOR_BYTES

    def _publish(self, file: OpenFile) -> None:
        """Close *file* and send it off, to become visible under the slice's next name."""
        assert self._slice is not None
        del self._open[file.topic]
        self._buffered -= file.held_bytes
        schema_path = self._keep_schema(file)
        chunks = file.finish()
        path, there = self._path(file), None
        while self._may_be_taken and (there := self._stored.holds(path, file.sha256)) is False:
            self._leave_names()
            path = self._path(file)
        if not (there and self._store.visible_is_durable):  # or it may be one that must not be replaced
            self._uploads.put(path, chunks, nbytes=file.nbytes, lane=file.topic)
        self._counter += 1
        entry = file_entry(file, path, format_=self.context.format, schema_path=schema_path)
        self._flushed = Flushed(
            messages=self._flushed.messages + file.messages,
            bytes=self._flushed.bytes + file.nbytes,
            files=self._flushed.files + 1,
            delivered=(*self._flushed.delivered, entry),
        )

    @property
    def _may_be_taken(self) -> bool:
        """Whether somebody else may have written under the slice's next name."""
        assert self._slice is not None
        return self._epoch != self.context.epoch or self._counter < self._slice.attempt * _NAMES_OF_AN_ATTEMPT

    def _leave_names(self) -> None:
        """Go on under names that come behind those of the run that is repeated, or else of earlier attempts."""
        assert self._slice is not None
        if self._epoch != self.context.epoch:
            self._epoch = self.context.epoch
        else:
            self._counter = self._slice.attempt * _NAMES_OF_AN_ATTEMPT

    def _keep_schema(self, file: OpenFile) -> str:
        """Return the path of the schema file of *file*, which is durable from now on."""
        path = self._schemas.get(file.schema)
        if path is None:
            context = self.context
            schema = SchemaFile.of(file.schema, topic=file.topic, format_=context.format, encoder=context.encoder)
            self._store.put(schema.path, [schema.body])
            path = self._schemas[file.schema] = schema.path
        return path

    def _path(self, file: OpenFile) -> str:
        """Return the slice's next name for *file*, with its directory."""
        assert self._slice is not None
        name = self._name(file.topic, file.schema.version, slice_=self._slice, counter=self._counter)
        return name.path(self._options.partition_format)

    def _name(self, topic: str, version: int, *, slice_: SliceInfo, counter: int) -> DataFile:
        return DataFile(
            timestamp=slice_.lower,
            epoch=self._epoch,
            step=slice_.step,
            slice_index=slice_.index,
            counter=counter,
            topic=topic,
            schema_version=version,
            extension=self._extension,
        )

    def _check_names(self) -> None:
        first = SliceInfo(step=0, index=0, lower=Timestamp())
        owners: dict[str, TableName] = {}
        for table in sorted(set(self.context.tables)):
            topic = self.topic(table)
            if topic in owners:
                raise ConfigError(
                    f"tables {owners[topic]} and {table} would both be written as topic '{topic}': set the option"
                    " full_table_name, or put them into changefeeds of their own"
                )
            owners[topic] = table
            size = len(self._name(topic, 0xFFFF_FFFF, slice_=first, counter=0).name.encode())
            if size > self._store.name_limit:
                raise ConfigError(
                    f"file names of topic '{topic}' would have {size} bytes, the sink takes {self._store.name_limit}:"
                    " shorten topic_prefix, or do without full_table_name"
                )

    def _discard(self) -> None:
        self._open.clear()
        self._buffered = 0
        self._flushed = Flushed()
        if "_uploads" in self.__dict__:
            self._uploads.abandon()

    def _require_open(self) -> None:
        if self._closed:
            raise TerminalSinkError("the cloud-storage sink is closed")
