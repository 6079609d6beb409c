"""Reads the files that a changefeed has written: every row exactly once, up to a resolved mark.

    from cdc_core import ChangeReader

    with ChangeReader("file:///data/out") as reader:
        mark = reader.newest()
        for rows in reader.read(table="public.orders", upto=mark):
            ...                                  # rows.batch is an Arrow record batch
    # later, the rows that have come since
        for rows in reader.read(table="public.orders", after=mark):
            ...

The result is a consistent state: all rows with `updated` up to the mark and no others, and those of each key in order.
Files of crashed steps, which a reader of names would see, are skipped. Reading needs the plugins that wrote the files,
but neither the database nor the changefeed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
import pyarrow as pa

from cdc_core.config.resolve import canonical_names
from cdc_core.decoder import Decoder
from cdc_core.encoder_context import EncoderContext
from cdc_core.errors import ConfigError, HistoryLostError
from cdc_core.masking import masked_uri
from cdc_core.options import counted, option_names, parse_options
from cdc_core.plugins.classes import load_class, load_options
from cdc_core.plugins.host import PluginHost
from cdc_core.rows import RowBatch
from cdc_core.schema import TableName
from cdc_core.stored_history import FileShape, StoredFile, StoredHistory
from cdc_core.timestamp import Timestamp
from cdc_core.uris import split_parameters

_FIRST_REACH = 64
"""Marks that the first search for a table without new rows looks back. Each next search looks four times as far."""


class ChangeReader:
    """Reads the history that a sink has recorded at *uri*: the URI of the changefeed's sink, with its parameters.

    *changefeed* chooses one of several changefeeds that have written to the same place. Picklable; connects when first
    used. It holds one decoded file in memory, and a `StoredFile` for each file that is still to be read.

    Raises, everywhere: ConfigError when no installed sink keeps a history for this URI, when no changefeed has recorded
    anything there, or when several have and none is chosen; HistoryLostError when files are missing, damaged or not
    recorded; RetryableError when the place is out of reach.
    """

    def __init__(
        self, uri: str, *, changefeed: str = "", host: PluginHost | None = None, history: StoredHistory | None = None
    ) -> None:
        """With *history*, its files are read instead of those that the sink for *uri* has recorded."""
        self._uri = uri
        self._changefeed = changefeed
        self._given_host = host
        self._given_history = history
        self._decoders: dict[tuple[str, str], Decoder] = {}
        self._listed: Sequence[Timestamp] = ()

    def __getstate__(self) -> dict[str, Any]:
        if self._given_host is not None or self._given_history is not None:
            raise TypeError("a ChangeReader with its own plugin host or history cannot be pickled")
        return {"uri": self._uri, "changefeed": self._changefeed}

    def __setstate__(self, state: dict[str, Any]) -> None:
        ChangeReader.__init__(self, state["uri"], changefeed=state["changefeed"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"ChangeReader({masked_uri(self._uri)!r})"

    def changefeeds(self) -> Sequence[str]:
        """Return the changefeeds that have recorded files here, each with its identity: `name.0123456789ab`."""
        return self._history.changefeeds()

    def marks(self) -> Sequence[Timestamp]:
        """Return all current resolved marks, in ascending order."""
        self._listed = self._history.marks()
        return self._listed

    def newest(self, upto: Timestamp | None = None) -> Timestamp:
        """Return the newest current resolved mark that is not above *upto*."""
        return self._newest(self.marks(), upto)

    def files(
        self, *, table: str | None = None, upto: Timestamp | None = None, after: Timestamp = Timestamp()
    ) -> Iterator[StoredFile]:
        """Yield the files with the rows that `read` yields for the same arguments, in the same order."""
        return self._files(self._upto(upto, after=after), table=table, after=after)

    def read(
        self, *, table: str | None = None, upto: Timestamp | None = None, after: Timestamp = Timestamp()
    ) -> Iterator[RowBatch]:
        """Yield each row once with *after* < `updated` <= the newest mark that is not above *upto*.

        *after* is one of `marks`, or zero for the beginning. The result is what a reader up to that mark has not read,
        so rows that were replayed from the dead letters come with the first mark after their replay, even if they are
        older than *after*. For any other time, some rows would come twice or never, so ConfigError is raised.

        Rows of a key come in order. Without *upto* this reads up to the newest mark; a reader that will continue from
        there gets that mark from `newest` first. *table* is the name of a table, with schema and database if it is not
        unique; without it, all tables are read. Raises: ConfigError if the history has no row of *table*. All rows of a
        batch belong to one version of one table.
        """
        mark = self._upto(upto, after=after)
        return self._read(mark, table=table, after=after)

    def latest_file(self, table: str, *, upto: Timestamp) -> StoredFile | None:
        """Return the last file with rows of *table* that the marks up to *upto* cover; None if there is none.

        *upto* is a mark. Looks back only as far as necessary. Raises: HistoryLostError at a gap before such a file.
        """
        marks = [mark for mark in self.marks() if mark <= upto]
        reach = _FIRST_REACH
        while True:
            after = marks[-reach - 1] if reach < len(marks) else Timestamp()
            found = [file for file in self._history.files(upto=upto, after=after) if _is_of(file, table)]
            if found or after == Timestamp():
                return found[-1] if found else None
            reach *= 4

    def rows(self, file: StoredFile, *, upto: Timestamp, after: Timestamp = Timestamp()) -> RowBatch:
        """Return the rows of one of `files` with *after* < `updated` <= *upto*.

        When the mark of *file* is above *after*, older rows are included too: they were replayed from the dead letters.
        """
        if file.mark > after:
            after = Timestamp()
        shape = self._history.shape(file)
        body = self._history.body(file)
        try:
            rows = self._decoder(file, shape).rows(shape.schema, body)
        except ValueError as error:
            raise HistoryLostError(f"file {file.path} cannot be decoded as {shape.format}: {error}") from error
        if len(rows) != file.rows:
            raise HistoryLostError(f"file {file.path} has {counted(len(rows), 'row')} instead of {file.rows:,}")
        if file.lower > after and file.upper <= upto:
            return rows
        return RowBatch(schema=rows.schema, batch=rows.batch.filter(_within(rows.column("updated"), after, upto)))

    def shape(self, file: StoredFile) -> FileShape:
        """Return the version of the table in *file*, and how its rows are encoded."""
        return self._history.shape(file)

    def close(self) -> None:
        """Close connections. May be called twice."""
        if "_history" in self.__dict__:
            self._history.close()

    def _newest(self, marks: Sequence[Timestamp], upto: Timestamp | None) -> Timestamp:
        reached = [mark for mark in marks if upto is None or mark <= upto]
        if not reached:
            raise ConfigError(f"{self._place} has no resolved mark up to {upto}; the first mark is {marks[0]}")
        return reached[-1]

    def _upto(self, upto: Timestamp | None, *, after: Timestamp) -> Timestamp:
        """Return the mark to read up to. Raises: ConfigError when *after* is neither a mark nor zero."""
        listed = upto in self._listed and after in (Timestamp(), *self._listed)  # marks stay, and newer ones follow
        marks = self._listed if listed else self.marks()
        mark = self._newest(marks, upto)
        if after != Timestamp() and after not in marks:
            if after < marks[0]:
                next(
                    self._history.files(upto=mark, after=after), None
                )  # raises HistoryLostError when marks are missing
            near = [*[each for each in marks if each < after][-1:], *[each for each in marks if each > after][:1]]
            raise ConfigError(
                f"cannot read after {after}: it is not a resolved mark of the files at {self._place}. Choose"
                f" {' or '.join(map(str, near))}"
            )
        return mark

    def _files(self, mark: Timestamp, *, table: str | None, after: Timestamp) -> Iterator[StoredFile]:
        seen: set[TableName] = set()
        for file in self._history.files(upto=mark, after=after):
            if table is not None:
                if not _is_of(file, table):
                    continue
                seen.add(file.table)
                if len(seen) > 1:
                    names = " and ".join(sorted(name.full for name in seen))
                    raise ConfigError(f"table '{table}' is ambiguous: it may be {names}. Write the full name")
            yield file
        if table is not None and not seen and not self._was_there(table, upto=mark, after=after):
            raise ConfigError(f"{self!r} has no file with rows of table '{table}'")

    def _was_there(self, table: str, *, upto: Timestamp, after: Timestamp) -> bool:
        """Return whether there are rows of *table* up to *after*, or may have been in a part that is missing."""
        if after == Timestamp():
            return False
        try:
            return self.latest_file(table, upto=upto) is not None
        except HistoryLostError:
            return True

    def _read(self, mark: Timestamp, *, table: str | None, after: Timestamp) -> Iterator[RowBatch]:
        for file in self._files(mark, table=table, after=after):
            rows = self.rows(file, upto=mark, after=after)
            if len(rows):
                yield rows

    @property
    def _place(self) -> str:
        return masked_uri(self._uri)

    @cached_property
    def _host(self) -> PluginHost:
        return PluginHost.load() if self._given_host is None else self._given_host

    @cached_property
    def _history(self) -> StoredHistory:
        if self._given_history is not None:
            return self._given_history
        place, parameters = split_parameters(self._uri, owner=repr(self))
        sink = self._host.sink_for(place)
        if not sink.history:
            raise ConfigError(
                f"sink '{sink.name}' keeps no history, so ChangeReader cannot read {masked_uri(place)}. Use the"
                " destination's own client instead"
            )
        owner = f"sink '{sink.name}'"
        options = load_options(sink)
        parameters = canonical_names(parameters, option_names(options), owner=repr(self))
        history = load_class(sink.history, owner=owner, base=StoredHistory, install_hint=sink.install_hint)
        opened: StoredHistory = history(
            place, parse_options(options, parameters, owner=owner), changefeed=self._changefeed
        )
        return opened

    def _decoder(self, file: StoredFile, shape: FileShape) -> Decoder:
        found = self._decoders.get((file.format, file.schema_path))
        if found is None:
            encoder = self._host.encoder(shape.format)
            owner = f"encoder '{encoder.name}'"
            if not encoder.decoder:
                raise ConfigError(f"{owner} has no decoder, so file {file.path} cannot be read")
            options = load_options(encoder)
            cls = load_class(encoder.decoder, owner=owner, base=Decoder, install_hint=encoder.install_hint)
            context = EncoderContext(
                changefeed=self._changefeed,
                envelope=shape.envelope,
                options=parse_options(options, shape.options, owner=owner),
                output="files",
            )
            found = self._decoders[file.format, file.schema_path] = cls(context)
        return found


def _is_of(file: StoredFile, table: str) -> bool:
    return table in (file.table.table, file.table.qualified, file.table.full)


def _within(updated: pa.StructArray, after: Timestamp, upto: Timestamp) -> pa.BooleanArray:
    wall, logical = updated.field("wall").to_numpy(), updated.field("logical").to_numpy()
    above = (wall > after.wall) | ((wall == after.wall) & (logical > after.logical))
    below = (wall < upto.wall) | ((wall == upto.wall) & (logical <= upto.logical))
    return pa.array(np.logical_and(above, below))
