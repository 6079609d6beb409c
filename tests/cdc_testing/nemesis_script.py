"""From a seed to a script: the changefeed's options and all events, weighted as in CockroachDB's nemesis."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cdc_testing.nemesis_events import (
    FIRST_N,
    AddColumn,
    AwaitFault,
    ChangeKey,
    ChangeType,
    Commit,
    CreateTable,
    Disturb,
    DropColumn,
    DropTable,
    Event,
    Fault,
    FillColumn,
    Look,
    Open,
    Pause,
    Read,
    RenameColumn,
    Rescan,
    Resume,
    RollBack,
    Transact,
    Write,
)
from cdc_testing.nemesis_faults import POINTS

KEYS = 4
"""Few on purpose: many versions of each."""
COLUMNS = 4
PRIMARY_KEYS = (("id",), ("id", "n"), ("n", "id"))
LARGE = 100_000
"""Characters of a large value."""
SETUP_TRANSACTIONS = 6
MAX_PAUSES = 3
MAX_FAULTS = 4
MAX_KEY_CHANGES = 3
PATTERN = "guest_*"
GUESTS = ("guest_1", "guest_2", "guest_3")
"""Tables that the pattern matches. Each is created at most once."""
POINTS_OF_ROWS = ("planned", "read-late", "emit", "flush", "flushed", "save", "saved", "resolve", "release")


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """Everything that a seed decides. *chosen* options are the changefeed's, in a user's words."""

    seed: int
    source: str
    sink: str
    tables: tuple[str, ...]
    """Those that there are from the beginning."""
    guests: tuple[str, ...] = ()
    """Those that may come and go: the changefeed has the pattern PATTERN."""
    format: str
    options: Mapping[str, Any]
    events: Sequence[Event] = field(repr=False)


def script_of(seed: int, *, source: str, sink: str, events: int = 60) -> Script:
    """Return the script of *seed*; the same arguments give the same one. *events* is about how long it is."""
    chance = random.Random(f"{seed} {source} {sink}")
    tables = ("foo",) if chance.random() < 0.5 else ("foo", "bar")
    format_ = "avro" if sink in ("file", "kafka") and chance.random() < 0.4 else "json"
    options = _options(chance, source, sink, format_)
    guests = GUESTS if (source, sink) == ("postgres", "file") and chance.random() < 0.5 else ()
    return Script(
        seed=seed,
        source=source,
        sink=sink,
        tables=tables,
        guests=guests,
        format=format_,
        options=options,
        events=_Writer(chance, source, tables, guests).script(events),
    )


def _options(chance: random.Random, source: str, sink: str, format_: str) -> dict[str, Any]:
    options: dict[str, Any] = {
        "updated": True,
        "retry_backoff": "50ms",
        "max_retry_backoff": "200ms",
        "resolved": chance.choice(["0s", "0s", "100ms", "500ms"]),
        "min_checkpoint_frequency": chance.choice(["0s", "0s", "0s", "100ms", "300ms"]),
    }
    for name in ("diff", "mvcc_timestamp", "full_table_name"):
        options[name] = chance.random() < 0.5
    if source == "simulated":
        options["batch_rows"] = chance.choice([1, 2, 1000])
        options["scan_chunk_rows"] = chance.choice([1, 2, 100])
    if sink == "file":
        options["partition_format"] = chance.choice(["daily", "hourly", "flat"])
        options["file_size"] = chance.choice(["1", "200B", "1KB", "16MB"])
        if format_ == "json":
            options["compression"] = chance.choice(["none", "gzip", "zstd"])
    if sink == "kafka":
        options["key_in_value"] = chance.random() < 0.5
        options["topic_in_value"] = chance.random() < 0.5
        options["topic_partitions"] = chance.randint(1, 4)
        options["partition_alg"] = chance.choice(["murmur2", "fnv-1a"])
        options["kafka_sink_config"] = _kafka_sink_config(chance)
    return options


def _kafka_sink_config(chance: random.Random) -> dict[str, Any]:
    config: dict[str, Any] = {"Compression": chance.choice(["NONE", "GZIP", "SNAPPY", "LZ4", "ZSTD"])}
    if chance.random() < 0.7:
        config["Flush"] = {
            "Messages": chance.randint(1, 10),
            "Bytes": chance.randint(1, 1000),
            "Frequency": chance.choice(["1ms", "20ms", "100ms"]),
        }
    return config


def _step_options(chance: random.Random, *, simulated: bool) -> dict[str, Any]:
    """Return options that may differ from one run of a changefeed to the next.

    PostgreSQL's log is cut by its bytes, of which rows are few: limits as small as others could take make no headway.
    """
    if simulated:
        rows, size = chance.choice([2, 5, 100, 4_000_000]), chance.choice(["1KB", "10KB", "128MB"])
    else:
        rows, size = chance.choice([100, 1000, 4_000_000]), chance.choice(["100KB", "1MB", "128MB"])
    return {"max_step_rows": rows, "max_step_bytes": size}


class _Writer:
    """Knows at each point of the script what is possible there."""

    def __init__(self, chance: random.Random, source: str, tables: Sequence[str], guests: Sequence[str]) -> None:
        self._chance = chance
        self._simulated = source == "simulated"
        self._tables = list(tables)
        self._first_tables = tables
        self._guests = list(guests)
        """Those that were not created yet."""
        self._unread: set[str] = set()
        """The tables of which rows may not have arrived."""
        self._n = FIRST_N - 1
        self._events: list[Event] = []
        self._columns: dict[str, dict[str, type]] = {table: {} for table in tables}
        self._added = 0
        self._locked: set[tuple[str, int]] = set()
        self._open = False
        self._down: list[int] = []
        self._running = False
        self._large = False
        """Whether rows are larger than the buffers between processes: else what a killed one wrote is never seen."""
        self._pauses = 0
        self._faults = 0
        self._keys = dict.fromkeys(tables, PRIMARY_KEYS[0])
        self._key_changes = 0
        self._rescanning = False
        """Whether a rescan was asked for that may not be complete."""

    def script(self, events: int) -> list[Event]:
        for number in range(SETUP_TRANSACTIONS):
            kept = number == 0 or self._chance.random() < 2 / 3
            self._transact() if kept else self._rolled_back()
        if self._simulated:
            self._setup_ranges()
        if self._chance.random() < 0.5:
            self._open_transaction()
        self._resume()
        if self._open:  # the scan may have to wait for it
            self._end_transaction()
        while len(self._events) < events:
            self._next()
        if self._open:
            self._end_transaction()
        if self._down:
            self._disturb_with("restart", node=self._down.pop())
        if not self._running:
            self._resume()
        return [*self._events, Read(), Pause()]

    def _setup_ranges(self) -> None:
        """Two ranges at least, which are resolved at different times."""
        for table in self._tables:
            self._disturb_with("split", table=table, at=self._chance.randint(1, KEYS - 1))
            for at in (0, KEYS - 1):
                self._disturb_with("set_lag", table=table, at=at, ms=self._chance.choice([50, 300, 1500]))

    def _next(self) -> None:
        quiet = not self._open
        possible = [
            (self._look, 15, self._running),
            (self._read, 20, self._running and quiet),
            (self._transact, 25, True),
            (self._open_transaction, 8, quiet),
            (self._end_transaction, 15, self._open),
            (self._pause, 6, self._running and quiet and self._pauses < MAX_PAUSES),
            (self._resume, 50, not self._running),
            (self._fault, 8, self._running and quiet and self._faults < MAX_FAULTS),
            (self._add_column, 3, quiet and sum(map(len, self._columns.values())) < COLUMNS),
            (self._fill_column, 3, quiet and sum(map(len, self._columns.values())) < COLUMNS),
            (self._drop_column, 3, quiet and any(self._columns.values())),
            (self._rename_column, 3, quiet and any(self._columns.values())),
            (self._change_type, 6, quiet and bool(self._numbers())),
            (self._create_table, 4, quiet and bool(self._guests)),
            (self._drop_table, 8, quiet and bool(self._leaving())),
            (self._change_key, 4, quiet and self._key_changes < MAX_KEY_CHANGES),
            (self._rescan, 5, not self._rescanning),
            (self._fault_in_rescan, 3, self._running and quiet and self._faults < MAX_FAULTS),
            (self._disturb, 15, self._simulated),
        ]
        legal = [(action, weight) for action, weight, may in possible if may]
        action = self._chance.choices([one for one, _ in legal], weights=[weight for _, weight in legal])[0]
        action()

    def _look(self) -> None:
        self._events.append(Look())

    def _read(self) -> None:
        self._events.append(Read())
        self._rescanning = False
        self._unread.clear()

    def _transact(self) -> None:
        self._events.append(Transact(self._writes()))

    def _rolled_back(self) -> None:
        self._events += [Open(self._writes()), RollBack()]

    def _open_transaction(self) -> None:
        writes = self._writes()
        self._events.append(Open(writes))
        self._open = True
        self._locked = {(write.table, write.id) for write in writes}

    def _end_transaction(self) -> None:
        self._events.append(Commit() if self._chance.random() < 0.7 else RollBack())
        self._open = False
        self._locked = set()

    def _resume(self) -> None:
        self._events.append(Resume(_step_options(self._chance, simulated=self._simulated)))
        self._running = True

    def _pause(self) -> None:
        self._events.append(Pause(abandoned=self._chance.random() < 0.3))
        self._running = False
        self._pauses += 1

    def _fault(self) -> None:
        """A fault among transactions that make the engine come to it."""
        self._events.append(Fault(self._chance.choice(sorted(POINTS)), killed=self._chance.random() < 0.6))
        self._large = self._chance.random() < 0.5
        for _ in range(self._chance.randint(1, 3)):
            self._transact()
        self._large = False
        self._events.append(AwaitFault())
        if self._simulated:  # what history the fault needs must still be there
            self._disturb_with("collect_garbage")
        self._faults += 1

    def _add_column(self) -> None:
        table, column = self._chance.choice(self._tables), self._new_name()
        self._columns[table][column] = str
        self._events.append(AddColumn(table, column))

    def _fill_column(self) -> None:
        table, column = self._chance.choice(self._tables), self._new_name()
        value = self._chance.choice([f"default of {column}", self._added])
        self._columns[table][column] = type(value)
        self._events.append(FillColumn(table, column, value))

    def _new_name(self) -> str:
        """Return the name of a column. No column of a script has had it."""
        self._added += 1
        return f"test{self._added}"

    def _drop_column(self) -> None:
        table = self._table_with_columns()
        self._events.append(DropColumn(table, self._columns[table].popitem()[0]))

    def _rename_column(self) -> None:
        table, to = self._table_with_columns(), self._new_name()
        column, self._columns[table][to] = self._columns[table].popitem()
        self._events.append(RenameColumn(table, column, to))

    def _change_type(self) -> None:
        table, column = self._chance.choice(self._numbers())
        self._columns[table][column] = str
        self._events.append(ChangeType(table, column))

    def _create_table(self) -> None:
        table = self._guests.pop(0)
        self._tables.append(table)
        self._columns[table], self._keys[table] = {}, PRIMARY_KEYS[0]
        self._unread.add(table)
        self._events.append(CreateTable(table))

    def _drop_table(self) -> None:
        table = self._chance.choice(self._leaving())
        self._tables.remove(table)
        del self._columns[table]
        self._events.append(DropTable(table))

    def _leaving(self) -> list[str]:
        return [one for one in self._tables if one not in self._first_tables and one not in self._unread]

    def _change_key(self) -> None:
        table = self._chance.choice(self._tables)
        self._keys[table] = self._chance.choice([key for key in PRIMARY_KEYS if key != self._keys[table]])
        self._events.append(ChangeKey(table, self._keys[table]))
        self._key_changes += 1

    def _rescan(self) -> None:
        below = self._chance.choice([None, self._chance.randint(1, KEYS - 1)])
        self._events.append(Rescan(self._chance.choice(self._first_tables), below))
        self._rescanning = True

    def _fault_in_rescan(self) -> None:
        """A fault in the first step that has rows, which is the rescan's."""
        self._read()
        self._rescan()
        self._events.append(Fault(self._chance.choice(POINTS_OF_ROWS), killed=self._chance.random() < 0.6))
        self._events.append(AwaitFault())
        self._rescanning = False
        self._faults += 1

    def _numbers(self) -> list[tuple[str, str]]:
        return [(table, name) for table in self._tables for name, kind in self._columns[table].items() if kind is int]

    def _table_with_columns(self) -> str:
        return self._chance.choice([table for table in self._tables if self._columns[table]])

    def _disturb(self) -> None:
        """Something that may be refused when its time has come, as when a range begins there already."""
        table, at = self._chance.choice(self._tables), self._chance.randint(1, KEYS - 1)
        node = self._chance.randint(1, 3)
        self._chance.choices(
            [
                lambda: self._disturb_with("tick", times=self._chance.randint(1, 5)),
                lambda: self._disturb_with("split", table=table, at=at),
                lambda: self._disturb_with("merge", table=table, at=at),
                lambda: self._disturb_with("transfer_lease", table=table, at=at, to=node),
                lambda: self._disturb_with("set_lag", table=table, at=at, ms=self._chance.choice([20, 200, 1000])),
                lambda: self._disturb_with("set_skew", node=node, ms=self._chance.randint(0, 250)),
                lambda: self._disturb_with("collect_garbage"),
                lambda: self._disturb_with(self._chance.choice(["push", "abort"])),
                lambda: self._crash_or_restart(node),
            ],
            weights=[8, 2, 1, 1, 2, 1, 2, 4 if self._open else 0, 1],
        )[0]()

    def _crash_or_restart(self, node: int) -> None:
        if self._down:
            self._disturb_with("restart", node=self._down.pop())
        else:
            self._down.append(node)
            self._disturb_with("crash", node=node)

    def _disturb_with(self, statement: str, **arguments: Any) -> None:
        self._events.append(Disturb(statement, arguments))

    def _writes(self) -> tuple[Write, ...]:
        places = [(table, key) for table in self._tables for key in range(KEYS)]
        free = [place for place in places if place not in self._locked]
        chosen = self._chance.sample(free, min(len(free), self._chance.choice([1, 1, 2, 3, 5])))
        return tuple(self._write(table, key) for table, key in chosen)

    def _write(self, table: str, key: int) -> Write:
        self._unread.add(table)
        if self._chance.random() < 0.15:
            return Write(table, key, None)
        self._n += 1
        note = self._chance.choice([None, "", f"note {self._n}", "é" * 40])
        if self._large or self._chance.random() < 0.02:
            note = "x" * LARGE
        values: dict[str, Any] = {"n": self._n, "note": note}
        for column, kind in self._columns[table].items():
            if self._chance.random() < 0.5:
                values[column] = self._n if kind is int else f"x{self._n}"
        return Write(table, key, values)
