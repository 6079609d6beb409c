"""What tables hold at any place of the log, recorded by the database itself.

Triggers and statements put each change into the log as a logical message of the transaction that makes it. A slot of
its own reads these messages in the order of the commits, apart from everything that a changefeed reads.
"""

from __future__ import annotations

import json
import struct
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from cdc_testing.postgres import Sql

_OBJECTS = r"""
CREATE SCHEMA recorder;
CREATE FUNCTION recorder.note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_logical_emit_message(true, TG_ARGV[0], json_build_object(
        'old', CASE WHEN TG_OP <> 'INSERT' THEN to_json(OLD) END,
        'new', CASE WHEN TG_OP <> 'DELETE' THEN to_json(NEW) END)::text);
    RETURN NULL;
END $$;
CREATE FUNCTION recorder.all_rows(tag text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE found json; relation regclass;
BEGIN
    SELECT tgrelid INTO STRICT relation FROM pg_trigger
    WHERE tgname = 'zz_note' AND tgparentid = 0 AND tgargs = convert_to(tag, 'UTF8') || '\000'::bytea;
    EXECUTE format('SELECT json_agg(x) FROM %s x', relation) INTO found;
    PERFORM pg_logical_emit_message(true, tag, json_build_object(
        'rows', found,
        'columns', (SELECT json_agg(a.attname ORDER BY a.attnum) FROM pg_attribute a
                    WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated <> 'v'),
        'key', (SELECT json_agg(a.attname ORDER BY k.n)
                FROM pg_class c JOIN pg_index i ON i.indrelid = c.oid AND i.indisvalid
                CROSS JOIN unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, n)
                JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum
                WHERE c.oid = relation
                  AND CASE WHEN c.relreplident = 'i' AND c.relkind = 'r' THEN i.indisreplident
                      ELSE i.indisprimary END))::text);
END $$;
CREATE FUNCTION recorder.added_rows(tag text, relation regclass) RETURNS void LANGUAGE plpgsql AS $$
DECLARE found json;
BEGIN
    EXECUTE format('SELECT json_agg(x) FROM %s x', relation) INTO found;
    PERFORM pg_logical_emit_message(true, tag, json_build_object('added', found)::text);
END $$;
CREATE PUBLICATION recorder_nothing;
"""
_READ = """
SELECT data FROM pg_logical_slot_get_binary_changes(%s, NULL, NULL,
    'proto_version', '1', 'publication_names', 'recorder_nothing', 'messages', 'true')
"""

Row = dict[str, Any]
Key = tuple[Any, ...]


def canonical(value: Any) -> Any:
    """Return *value* in a form that is the same for a value in JSON and for one that a changefeed read."""
    if value is None:
        return None
    if isinstance(value, str) and value.startswith("{"):
        value = json.loads(value, parse_float=str)
    if isinstance(value, dict):
        return {name: canonical(part) for name, part in value.items()}
    return str(value)


@dataclass(slots=True)
class Table:
    """A table as of one place of the log."""

    columns: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    rows: dict[Key, Row] = field(default_factory=dict)
    leaving: tuple[int, int, str] | None = None
    """The ids of a partition that is being detached concurrently, and their column: its rows may be there or not."""

    def apply(self, event: dict[str, Any]) -> None:
        if "columns" in event:
            self.columns, self.key = tuple(event["columns"]), tuple(event["key"] or self.key)
            self.rows = {self.key_of(row): row for row in event["rows"] or ()}
        elif "added" in event:
            self.rows |= {self.key_of(row): row for row in event["added"] or ()}
        elif "leaving" in event:
            self.leaving = tuple(event["leaving"])
        elif "left" in event:
            if event["left"]:
                self.rows = {key: row for key, row in self.rows.items() if not self.is_leaving(row)}
            self.leaving = None
        else:
            if event["old"] is not None:
                self.rows.pop(self.key_of(event["old"]), None)
            if event["new"] is not None:
                self.rows[self.key_of(event["new"])] = event["new"]

    def is_leaving(self, row: Row) -> bool:
        return self.leaving is not None and self.leaving[0] <= int(row[self.leaving[2]]) < self.leaving[1]

    def key_of(self, row: Row) -> Key:
        return tuple(canonical(row[name]) for name in self.key)


class Recorder:
    """Creates its objects in the database of *sql*, and reads what was recorded."""

    def __init__(self, sql: Sql, *, slot: str) -> None:
        self._sql = sql
        self._slot = slot
        sql.execute(_OBJECTS.encode())
        sql.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [slot])
        self.tables: dict[str, Table] = defaultdict(Table)
        self.labels: dict[str, str] = {}
        """Of enums, by their first form, which ends before the first underscore."""
        self._waiting: deque[tuple[int, list[tuple[str, dict[str, Any]]]]] = deque()

    def watch(self, table: str) -> None:
        """Record the rows of *table*, which is also its tag, and all later changes of rows."""
        self._sql.execute(
            f"CREATE TRIGGER zz_note AFTER INSERT OR UPDATE OR DELETE ON {table} "
            f"FOR EACH ROW EXECUTE FUNCTION recorder.note('{table}')".encode()
        )
        self._sql.execute("SELECT recorder.all_rows(%s)", [table])

    def move_to(self, lsn: int) -> None:
        """Return when `tables` is as of *lsn*: with the transactions whose commit record begins before it."""
        self._waiting += self._read()
        while self._waiting and self._waiting[0][0] < lsn:
            for tag, event in self._waiting.popleft()[1]:
                if tag == "label":
                    self.labels[event["first"]] = event["label"]
                else:
                    self.tables[tag].apply(event)

    def _read(self) -> Iterator[tuple[int, list[tuple[str, dict[str, Any]]]]]:
        lsn, events = 0, []
        for (data,) in self._sql.execute(_READ, [self._slot]):
            if data[:1] == b"B":
                (lsn,), events = struct.unpack(">q", data[1:9]), []
            elif data[:1] == b"M":
                prefix, _, content = data[10:].partition(b"\0")
                events.append((prefix.decode(), json.loads(content[4:], parse_float=str)))
            elif data[:1] == b"C":
                yield lsn, events
