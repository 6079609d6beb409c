"""Reads back what a changefeed has kept in files: every row exactly once, up to a resolved mark.

    from cdc_core.readback.reader import ChangeReader

    with ChangeReader("file:///data/out") as reader:
        mark = reader.newest()
        for rows in reader.read(table="public.orders", upto=mark):
            ...                                  # rows.batch is an Arrow record batch
    # later, what has come since
        for rows in reader.read(table="public.orders", after=mark):
            ...

What is read is a consistent cut: all rows with `updated` up to the mark, and no others; those of one key in order.
Files of crashed steps, which a reader of names would see, are left out. Neither the database nor the changefeed is
needed, only the plugins that wrote the files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa

from cdc_core.config.resolve import canonical_names
from cdc_core.decoder import Decoder
from cdc_core.encoder import EncoderContext
from cdc_core.errors import ConfigError, HistoryLostError
from cdc_core.masking import masked_uri
from cdc_core.options import option_names, parse_options
from cdc_core.plugins.classes import load_class
from cdc_core.plugins.host import PluginHost
from cdc_core.rows import RowBatch
from cdc_core.schema import TableName
from cdc_core.stored_history import FileShape, StoredFile, StoredHistory
from cdc_core.timestamp import Timestamp
from cdc_core.uris import split_parameters

__all__ = ["ChangeReader"]

_FIRST_REACH = 64
"""Marks that are looked back at once for a table that has no new rows; then four times as many, and so on."""


class ChangeReader:
    """Reads the history that sinks have kept at *uri*, the URI that a changefeed writes to, parameters included.

    *changefeed* says whose, where several have written to one place. Picklable; connects when first used. Memory: one
    file at a time, decoded, and its name and extent for each file that is still to be read.

    Raises, everywhere: ConfigError for a URI that no installed sink keeps a history for, a place where no changefeed
    has recorded anything, a choice that is still to be made; HistoryLostError for files that are gone, damaged, or in
    no record; RetryableError when the place is out of reach.
    """

    def __init__(self, uri: str, *, changefeed: str = "", host: PluginHost | None = None) -> None:
        self._uri = uri
        self._changefeed = changefeed
        self._given_host = host
        self._decoders: dict[tuple[str, str], Decoder] = {}
        self._listed: Sequence[Timestamp] = ()

    def __getstate__(self) -> dict[str, Any]:
        if self._given_host is not None:
            raise TypeError("a ChangeReader with a plugin host of its own stays in its process")
        return {"uri": self._uri, "changefeed": self._changefeed}

    def __setstate__(self, state: dict[str, Any]) -> None:
        ChangeReader.__init__(self, state["uri"], changefeed=state["changefeed"])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"ChangeReader({masked_uri(self._uri)!r})"

    def changefeeds(self) -> Sequence[str]:
        """Return the changefeeds that have recorded something here, each with its identity: `name.0123456789ab`."""
        return self._history.changefeeds()

    def marks(self) -> Sequence[Timestamp]:
        """Return every resolved mark that is there by now, ascending."""
        self._listed = self._history.marks()
        return self._listed

    def newest(self, upto: Timestamp | None = None) -> Timestamp:
        """Return the newest resolved mark that is there by now and not above *upto*."""
        return self._newest(self.marks(), upto)

    def files(
        self, *, table: str | None = None, upto: Timestamp | None = None, after: Timestamp = Timestamp()
    ) -> Iterator[StoredFile]:
        """Yield the files that hold the rows which `read` yields for the same arguments, in the order of each key."""
        return self._files(self._upto(upto, after=after), table=table, after=after)

    def read(
        self, *, table: str | None = None, upto: Timestamp | None = None, after: Timestamp = Timestamp()
    ) -> Iterator[RowBatch]:
        """Yield every row with *after* < `updated` <= the newest mark that is not above *upto*, once.

        *after* is one of `marks`, or zero for the beginning: what a reader up to that mark has not had comes, so rows
        that were sent again from the dead letters come with the first mark after that, however old they are. At any
        other time some rows would come twice or never, so ConfigError is raised.

        Rows of a key come in order. Without *upto* the newest mark of all counts; who goes on from there later takes it
        from `newest` first. *table* is a table's name, with schema and database where it needs them; all tables without
        it. ConfigError when no row of it was ever there. All rows of a batch are of one version of one table.
        """
        mark = self._upto(upto, after=after)
        return self._read(mark, table=table, after=after)

    def latest_file(self, table: str, *, upto: Timestamp) -> StoredFile | None:
        """Return the last file with rows of *table* that marks up to *upto*, a mark, cover; None when there is none.

        It looks back no further than it must. Raises: HistoryLostError when that is further than there is anything.
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
        """Return the rows of one of `files` with *after* < `updated` <= *upto*, and those that came late.

        A file that only a mark above *after* covers may hold rows sent again from the dead letters, however old.
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
            raise HistoryLostError(f"file {file.path} holds {len(rows)} rows, {file.rows} are recorded")
        if file.lower > after and file.upper <= upto:
            return rows
        return RowBatch(schema=rows.schema, batch=rows.batch.filter(_within(rows.column("updated"), after, upto)))

    def shape(self, file: StoredFile) -> FileShape:
        """Return the version of its table that *file* was written with, and how its rows are encoded."""
        return self._history.shape(file)

    def close(self) -> None:
        """Let go of connections. May be called twice."""
        if "_history" in self.__dict__:
            self._history.close()

    def _newest(self, marks: Sequence[Timestamp], upto: Timestamp | None) -> Timestamp:
        reached = [mark for mark in marks if upto is None or mark <= upto]
        if not reached:
            raise ConfigError(f"nothing at {self._place} is resolved up to {upto}; the first mark is {marks[0]}")
        return reached[-1]

    def _upto(self, upto: Timestamp | None, *, after: Timestamp) -> Timestamp:
        """Return the mark to read up to, when *after* is one that can be read on from. Raises: ConfigError."""
        listed = upto in self._listed and after in (Timestamp(), *self._listed)  # marks stay, others come behind them
        marks = self._listed if listed else self.marks()
        mark = self._newest(marks, upto)
        if after != Timestamp() and after not in marks:
            if after < marks[0]:
                next(self._history.files(upto=mark, after=after), None)  # tells of a mark that is no longer there
            near = [*[each for each in marks if each < after][-1:], *[each for each in marks if each > after][:1]]
            raise ConfigError(
                f"{after} is no resolved mark of the files at {self._place}, so nobody can read on after it; next to"
                f" it {'are' if len(near) > 1 else 'is'} {' and '.join(map(str, near))}"
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
                    raise ConfigError(f"table '{table}' may be {names}: name it in full")
            yield file
        if table is not None and not seen and not self._was_there(table, upto=mark, after=after):
            raise ConfigError(f"no file that {self!r} reads holds rows of table '{table}'")

    def _was_there(self, table: str, *, upto: Timestamp, after: Timestamp) -> bool:
        """Return whether there are rows of *table* up to *after*, or may have been where that is gone."""
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
        place, parameters = split_parameters(self._uri, owner=repr(self))
        sink = self._host.sink_for(place)
        if not sink.history:
            raise ConfigError(
                f"sink '{sink.name}' keeps no history that could be read back: {masked_uri(place)} needs a consumer of"
                " its own"
            )
        owner = f"sink '{sink.name}'"
        options = load_class(sink.options, owner=owner, install_hint=sink.install_hint)
        parameters = canonical_names(parameters, option_names(options), owner=repr(self))
        history = load_class(sink.history, owner=owner, base=StoredHistory, install_hint=sink.install_hint)
        opened: StoredHistory = history(
            place, parse_options(options, parameters, owner=owner), changefeed=self._changefeed
        )
        return opened

    def _decoder(self, file: StoredFile, shape: FileShape) -> Decoder:
        """Return what reads files of this shape."""
        found = self._decoders.get((file.format, file.schema_path))
        if found is None:
            encoder = self._host.encoder(shape.format)
            owner = f"encoder '{encoder.name}'"
            if not encoder.decoder:
                raise ConfigError(f"{owner} brings no decoder, so file {file.path} cannot be read")
            options = load_class(encoder.options, owner=owner, install_hint=encoder.install_hint)
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
