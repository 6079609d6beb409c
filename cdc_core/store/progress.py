"""The progress store: how far each changefeed has come, durably, and which attempt may save it."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from cdc_core.config.identity import require_same_source, same_destination
from cdc_core.errors import ConfigError, FencedError, RetryableError, TerminalError
from cdc_core.masking import mask, masked_uri, secret_forms, uri_secrets
from cdc_core.rangefeed import Token
from cdc_core.store.tables import (
    CHANGEFEEDS,
    DEAD_LETTERS,
    UNRECORDED,
    open_engine,
    prepare,
    sqlite_file,
    store_url,
    update,
)
from cdc_core.store.unrecorded import keep_delivered, turn_away
from cdc_core.store.values import (
    ChangefeedRecord,
    DeadLetter,
    Delivered,
    Pause,
    PendingRecord,
    Progress,
    changefeed_record,
    dead_letter,
    dead_letter_values,
    dump,
    frontier_of,
    moment_of,
    moment_text,
    now_text,
    timestamp_of,
)
from cdc_core.timestamp import Timestamp

__all__ = [
    "ChangefeedRecord",
    "DeadLetter",
    "Delivered",
    "Pause",
    "PendingRecord",
    "Progress",
    "ProgressStore",
    "sqlite_file",
    "store_url",
]

_SENT_KEPT = timedelta(days=1)
"""How long a dead letter is counted at least, even after it was replayed. The budget needs an hour."""


class ProgressStore:
    """Progress of changefeeds in a SQL database. Picklable; safe with several processes and after a fork.

    Every method is one transaction, durable on return. Nothing is opened before the first call, which creates missing
    tables.

    Raises, everywhere: RetryableError when the database cannot be reached or is busy for too long; ConfigError when it
    was written by a newer version; TerminalError when its file was removed or replaced since this process opened it.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._path = sqlite_file(url)
        self._engine: sa.Engine | None = None
        self._pid = 0
        self._file: tuple[int, int] | None = None

    def __repr__(self) -> str:
        return f"ProgressStore({self._shown!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {"url": self.url}

    def __setstate__(self, state: dict[str, Any]) -> None:
        ProgressStore.__init__(self, state["url"])

    def open(self) -> None:
        """Return when the store works. Raises: ConfigError when it cannot be created, reached or used."""
        try:
            with self._transaction():
                pass
        except RetryableError as error:
            raise ConfigError(str(error)) from error

    def register(self, name: str, definition: Mapping[str, Any]) -> ChangefeedRecord:
        """Add the changefeed, or find it again, and return it. *definition* is `ResolvedChangefeed.definition`.

        With another sink than before, the first record there says that earlier rows are missing from it. Raises:
        ConfigError when the name belongs to a changefeed that began with another source or other tables.
        """
        try:
            return self._registered(name, definition)
        except RetryableError as error:
            if not isinstance(error.__cause__, sa.exc.IntegrityError):
                raise
        return self._registered(name, definition)  # another process was faster

    def begin_attempt(self, name: str, *, after: int | None = None) -> int:
        """Return the epoch of a new attempt, the greatest so far. Attempts with a smaller epoch are fenced.

        *after* is the newest epoch that the caller knows. Raises: FencedError when there is a newer one, so that of two
        runs the older one ends instead of taking over again.
        """
        raise_epoch = update(name).values(epoch=CHANGEFEEDS.c.epoch + 1).returning(CHANGEFEEDS.c.epoch)
        with self._transaction() as connection:
            raised = connection.execute(raise_epoch).one_or_none()
            if raised is not None and after is not None and raised.epoch > after + 1:
                raise _overtaken(name, after)
        if raised is None:
            raise ConfigError(f"changefeed '{name}' is not registered in the progress store {self._shown}")
        return int(raised.epoch)

    def require_newest(self, name: str, epoch: int) -> None:
        """Return if *epoch* is the newest of the changefeed. Raises: FencedError."""
        with self._transaction(reading=True) as connection:
            newest = connection.execute(
                sa.select(CHANGEFEEDS.c.epoch).where(CHANGEFEEDS.c.name == name)
            ).scalar_one_or_none()
        if newest != epoch:
            raise _overtaken(name, epoch)

    def load(self, name: str) -> Progress | None:
        """Return what was saved last, or None when nothing was."""
        with self._transaction(reading=True) as connection:
            row = connection.execute(sa.select(CHANGEFEEDS).where(CHANGEFEEDS.c.name == name)).one_or_none()
        if row is None or row.token is None:
            return None
        return Progress(
            token=json.loads(row.token),
            frontier=frontier_of(row.frontier),
            latest=timestamp_of(row.latest),
            counters={} if row.counters is None else json.loads(row.counters),
            saved_at=moment_of(row.saved_at),
            emitted=timestamp_of(row.emitted),
        )

    def save(
        self,
        name: str,
        epoch: int,
        progress: Progress,
        *,
        delivered: Sequence[Delivered] | None = (),
        dead_letters: Sequence[DeadLetter] = (),
    ) -> None:
        """Save *progress*, together with what its last step delivered and its dead letters.

        *delivered* is None for a step whose rows no record will mention. Raises: FencedError, and changes nothing,
        unless *epoch* is the newest.
        """
        now = now_text()
        values = {
            "token": dump(progress.token),
            "frontier": dump(progress.frontier.to_json()),
            "latest": str(progress.latest),
            "counters": dump(progress.counters),
            "saved_at": now,
        }
        with self._fenced(name, epoch, **values) as connection:
            keep_delivered(connection, name, delivered)
            if dead_letters:
                connection.execute(
                    sa.insert(DEAD_LETTERS), [dead_letter_values(name, letter, now) for letter in dead_letters]
                )

    def save_counters(self, name: str, epoch: int, counters: Mapping[str, float]) -> None:
        """Save *counters* alone. Raises: FencedError."""
        self._write(name, epoch, counters=dump(counters))

    def save_emitted(self, name: str, epoch: int, mark: Timestamp) -> None:
        """Save *mark* as the last one that was emitted to this sink. Raises: FencedError."""
        self._write(name, epoch, emitted=str(mark))

    def assign_mark(self, name: str, epoch: int, mark: Timestamp) -> list[PendingRecord]:
        """Assign *mark* to every delivered entry that has no mark yet; return what is still to be recorded, by mark.

        The last one returned is *mark*, even when nothing was delivered; none is returned when *mark* is recorded
        already. An entry keeps its first mark, in later attempts too, until `finish_records`. Raises: FencedError.
        """
        mine = UNRECORDED.c.name == name
        with self._fenced(name, epoch) as connection:
            last = sa.select(CHANGEFEEDS.c.recorded, CHANGEFEEDS.c.unrecorded).where(CHANGEFEEDS.c.name == name)
            row = connection.execute(last).one()
            previous = None if row.recorded is None else Timestamp.parse(row.recorded)
            if previous is not None and mark <= previous:
                return []
            connection.execute(sa.update(UNRECORDED).where(mine, UNRECORDED.c.mark.is_(None)).values(mark=str(mark)))
            rows = connection.execute(sa.select(UNRECORDED).where(mine).order_by(UNRECORDED.c.id)).all()
        found: dict[Timestamp, list[Delivered]] = {mark: []}
        for entry in rows:
            found.setdefault(Timestamp.parse(entry.mark), []).append(json.loads(entry.entry))
        gaps = [Timestamp.parse(text) for text in (row.unrecorded or "").split()]
        waiting = []
        for each, delivered in sorted(found.items()):
            known = None if previous is None or any(previous <= gap < each for gap in gaps) else previous
            waiting.append(PendingRecord(mark=each, previous=known, delivered=tuple(delivered)))
            previous = each
        return waiting

    def finish_records(self, name: str, epoch: int, mark: Timestamp) -> None:
        """Delete the entries that have a mark: consumers can learn of all up to *mark*. Raises: FencedError."""
        with self._fenced(name, epoch, recorded=str(mark), unrecorded=None) as connection:
            connection.execute(sa.delete(UNRECORDED).where(UNRECORDED.c.name == name, UNRECORDED.c.mark.is_not(None)))

    def save_plan(self, name: str, epoch: int, plan: Mapping[str, Any]) -> None:
        """Save *plan*, JSON of the engine's, in place of the previous one. Raises: FencedError."""
        self._write(name, epoch, plan=dump(plan))

    def load_plan(self, name: str) -> Mapping[str, Any] | None:
        """Return the plan that was saved last, None when none was."""
        text = self._value(name, CHANGEFEEDS.c.plan)
        return None if text is None else dict(json.loads(text))

    def pause(self, name: str, epoch: int, reason: str) -> None:
        """Save that the changefeed is paused, and why. Raises: FencedError."""
        self._write(name, epoch, paused=dump({"reason": reason, "since": now_text()}))

    def resume(self, name: str) -> bool:
        """Resume the changefeed; return whether it was paused."""
        with self._transaction() as connection:
            paused = CHANGEFEEDS.c.paused.is_not(None)
            return bool(connection.execute(update(name).where(paused).values(paused=None)).rowcount)

    def dead_letters(self, name: str) -> list[DeadLetter]:
        """Return the dead letters that were not replayed, in the order in which they were refused."""
        with self._transaction(reading=True) as connection:
            waiting = sa.select(DEAD_LETTERS).where(DEAD_LETTERS.c.name == name, DEAD_LETTERS.c.replayed_at.is_(None))
            return [dead_letter(row) for row in connection.execute(waiting.order_by(DEAD_LETTERS.c.id))]

    def blocked_keys(self, name: str) -> list[tuple[str, str]]:
        """Return table and key, each pair once, of the dead letters that were not replayed."""
        keys = sa.select(DEAD_LETTERS.c.table_name, DEAD_LETTERS.c.key).distinct()
        waiting = keys.where(DEAD_LETTERS.c.name == name, DEAD_LETTERS.c.replayed_at.is_(None))
        with self._transaction(reading=True) as connection:
            return [(row.table_name, row.key) for row in connection.execute(waiting)]

    def count_dead_letters(self, name: str, *, since: datetime) -> int:
        """Return how many rows were refused at *since* or later, including those that were replayed."""
        counted = sa.select(sa.func.count()).where(
            DEAD_LETTERS.c.name == name, DEAD_LETTERS.c.put_aside_at >= moment_text(since)
        )
        with self._transaction(reading=True) as connection:
            return int(connection.execute(counted).scalar_one())

    def mark_replayed(
        self, name: str, epoch: int, numbers: Sequence[int], *, delivered: Sequence[Delivered] | None = ()
    ) -> None:
        """Save that the dead letters with these numbers were replayed, and what that delivered, as `save` does.

        Replayed letters that are older than a day are deleted. Raises: FencedError.
        """
        mine = DEAD_LETTERS.c.name == name, DEAD_LETTERS.c.id == sa.bindparam("number")
        with self._fenced(name, epoch) as connection:
            keep_delivered(connection, name, delivered)
            if numbers:
                sent = sa.update(DEAD_LETTERS).where(*mine).values(replayed_at=now_text())
                connection.execute(sent, [{"number": number} for number in numbers])
            old = DEAD_LETTERS.c.put_aside_at < moment_text(datetime.now(UTC) - _SENT_KEPT)
            newest = sa.select(sa.func.max(DEAD_LETTERS.c.id)).scalar_subquery()  # SQLite would use its number again
            done = DEAD_LETTERS.c.name == name, DEAD_LETTERS.c.replayed_at.is_not(None), DEAD_LETTERS.c.id < newest
            connection.execute(sa.delete(DEAD_LETTERS).where(*done, old))

    def save_intent(self, name: str, epoch: int, token: Token) -> None:
        """Save *token* alone. Raises: FencedError, as `save` does."""
        self._write(name, epoch, token=dump(token))

    def find(self, name: str) -> ChangefeedRecord | None:
        """Return the changefeed, None when it is unknown."""
        with self._transaction(reading=True) as connection:
            row = connection.execute(sa.select(CHANGEFEEDS).where(CHANGEFEEDS.c.name == name)).one_or_none()
        return None if row is None else changefeed_record(row)

    def list(self) -> list[ChangefeedRecord]:
        """Return every changefeed, by name."""
        with self._transaction(reading=True) as connection:
            rows = connection.execute(sa.select(CHANGEFEEDS).order_by(CHANGEFEEDS.c.name)).all()
        return [changefeed_record(row) for row in rows]

    def forget(self, name: str) -> None:
        """Delete the changefeed; do nothing when it is unknown."""
        with self._transaction() as connection:
            for table in (CHANGEFEEDS, UNRECORDED, DEAD_LETTERS):
                connection.execute(sa.delete(table).where(table.c.name == name))

    def close(self) -> None:
        """Close connections. The store can be used again."""
        if self._engine is not None:
            self._engine.dispose(close=self._pid == os.getpid())
        self._engine = None

    def _registered(self, name: str, definition: Mapping[str, Any]) -> ChangefeedRecord:
        with self._transaction() as connection:
            known = connection.execute(sa.select(CHANGEFEEDS).where(CHANGEFEEDS.c.name == name)).one_or_none()
            if known is None:
                connection.execute(
                    sa.insert(CHANGEFEEDS).values(
                        name=name,
                        feed_id=secrets.token_hex(6),
                        epoch=0,
                        definition=dump(definition),
                        created_at=now_text(),
                        recorded=str(Timestamp()),
                    )
                )
            else:
                before = json.loads(known.definition)
                if known.token is not None:
                    require_same_source(name, before, definition)
                if not same_destination(before, definition):
                    turn_away(connection, name, counters=known.counters)
                connection.execute(update(name).values(definition=dump(definition)))
            row = connection.execute(sa.select(CHANGEFEEDS).where(CHANGEFEEDS.c.name == name)).one()
        return changefeed_record(row)

    def _value(self, name: str, column: sa.Column[Any]) -> str | None:
        with self._transaction(reading=True) as connection:
            found = connection.execute(sa.select(column).where(CHANGEFEEDS.c.name == name)).scalar_one_or_none()
        return None if found is None else str(found)

    def _write(self, name: str, epoch: int, **values: Any) -> None:
        with self._fenced(name, epoch, **values):
            pass

    @contextmanager
    def _fenced(self, name: str, epoch: int, **values: Any) -> Iterator[sa.Connection]:
        """Write *values* in a transaction that the block continues, unless a newer attempt has taken over."""
        with self._transaction() as connection:
            mine = update(name).where(CHANGEFEEDS.c.epoch == epoch)
            if not connection.execute(mine.values(epoch=epoch, **values)).rowcount:
                raise _overtaken(name, epoch)
            yield connection

    @contextmanager
    def _transaction(self, *, reading: bool = False) -> Iterator[sa.Connection]:
        try:
            engine = self._opened().execution_options(cdc_reading=reading)
            with engine.begin() as connection:
                yield connection
        except sa.exc.SQLAlchemyError as error:
            reason = mask(str(getattr(error, "orig", None) or error), secret_forms(uri_secrets(self.url)))
            reason = " ".join(reason.split())
            raise RetryableError(f"progress store {self._shown} cannot be used: {reason}") from error

    def _opened(self) -> sa.Engine:
        if self._engine is None or self._pid != os.getpid():
            self.close()  # after a fork the connections belong to the parent
            engine = open_engine(self.url)
            try:
                prepare(engine, shown=self._shown)
            except BaseException:
                engine.dispose()
                raise
            self._engine, self._pid, self._file = engine, os.getpid(), self._file_now()
        elif self._file_now() != self._file:
            raise TerminalError(
                f"progress store {self._shown} was removed or replaced while it was in use; restore it, or the"
                " changefeed begins anew from its initial scan"
            )
        return self._engine

    def _file_now(self) -> tuple[int, int] | None:
        """Return the identity of the file that is the store now; None when there is none."""
        if self._path is None:
            return None
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino

    @property
    def _shown(self) -> str:
        url = sa.make_url(self.url)
        return str(url.database) if url.get_backend_name() == "sqlite" else masked_uri(self.url)


def _overtaken(name: str, epoch: int) -> FencedError:
    return FencedError(
        f"changefeed '{name}': a newer attempt took over, or it was removed; this attempt (epoch {epoch}) stops,"
        " emits and saves nothing more"
    )
