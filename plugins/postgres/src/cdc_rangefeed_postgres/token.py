"""Positions: where a step ends in PostgreSQL's history, and the JSON tokens that they are saved as."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from cdc_core import Timestamp, Token

__all__ = ["CREATING", "Part", "Position", "Scan", "Snapshot", "TableState", "is_intent", "lsn_text", "parse_lsn"]

CREATING = "creating"


def parse_lsn(text: str) -> int:
    """Return the position that PostgreSQL writes as `16/B374D848`."""
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) | int(low, 16)


def lsn_text(lsn: int) -> str:
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def is_intent(token: Token) -> bool:
    """Return whether *token* only says that the slot was about to be created."""
    return token.get("state") == CREATING


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The snapshot of a round: it sees exactly the transactions with `final_lsn < lsn`, and its rows carry `at`."""

    id: str
    at: Timestamp
    lsn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A table, or a partition of one, whose first `blocks` blocks are to be scanned while `filenode` is its file."""

    table: str
    oid: int
    filenode: int
    blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """The initial scan: what is left of it. `parts[0]` is done up to `block`."""

    parts: tuple[Part, ...]
    block: int = 0
    done: int = 0
    total: int = 0
    round: int = 0
    snapshot: Snapshot | None = None

    def taken(self, parts: int, block: int) -> Scan | None:
        """Return the scan without its first *parts* parts, and *block* blocks of the next; None when none is left."""
        left = sum(part.blocks for part in self.parts[parts:]) - block
        if left == 0:
            return None
        return replace(self, parts=self.parts[parts:], block=block, done=self.total - left)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """What is remembered of a watched table: its identity, its key, and the version of its shape reached so far."""

    oid: int
    key: tuple[str, ...]
    version: int
    shape: str
    leaves: tuple[int, ...] = ()
    """The partitions whose rows are in the log or were scanned, of a partitioned table."""

    def to_json(self) -> dict[str, Any]:
        value = {"oid": self.oid, "key": list(self.key), "version": self.version, "shape": self.shape}
        return {**value, "leaves": list(self.leaves)} if self.leaves else value

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        return cls(**{**value, "key": tuple(value["key"]), "leaves": tuple(value.get("leaves", ()))})


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A place in the history: all transactions with `final_lsn < lsn` lie behind it.

    `clock` is the source's clock when the step ended at the end of the flushed log, else None. `catalog` is the
    fingerprint of the watched tables' catalog rows last seen. Before `settled` the log may hold shapes of tables other
    than the catalog's.
    """

    lsn: int
    clock: Timestamp | None = None
    tables: Mapping[str, TableState]
    catalog: str
    settled: int
    scan: Scan | None = field(default=None)

    def to_token(self) -> Token:
        return {
            "lsn": lsn_text(self.lsn),
            "clock": None if self.clock is None else str(self.clock),
            "scan": None if self.scan is None else _scan_to_json(self.scan, list(self.tables)),
            "tables": {name: state.to_json() for name, state in self.tables.items()},
            "catalog": self.catalog,
            "settled": lsn_text(self.settled),
        }

    @classmethod
    def from_token(cls, token: Token) -> Self:
        tables = {name: TableState.from_json(state) for name, state in token["tables"].items()}
        return cls(
            lsn=parse_lsn(token["lsn"]),
            clock=None if token["clock"] is None else Timestamp.parse(token["clock"]),
            scan=None if token["scan"] is None else _scan_from_json(token["scan"], list(tables)),
            tables=tables,
            catalog=token["catalog"],
            settled=parse_lsn(token["settled"]),
        )


def _scan_to_json(scan: Scan, names: list[str]) -> dict[str, Any]:
    at = scan.snapshot
    return {
        "round": scan.round,
        "snapshot": None if at is None else {"id": at.id, "at": str(at.at), "lsn": lsn_text(at.lsn)},
        "phase": "log" if at is None else "scan",
        "done": scan.done,
        "total": scan.total,
        "block": scan.block,
        "parts": [[names.index(part.table), part.oid, part.filenode, part.blocks] for part in scan.parts],
    }


def _scan_from_json(value: dict[str, Any], names: list[str]) -> Scan:
    at = value["snapshot"]
    return Scan(
        round=value["round"],
        snapshot=None if at is None else Snapshot(id=at["id"], at=Timestamp.parse(at["at"]), lsn=parse_lsn(at["lsn"])),
        done=value["done"],
        total=value["total"],
        block=value["block"],
        parts=tuple(
            Part(table=names[index], oid=oid, filenode=filenode, blocks=blocks)
            for index, oid, filenode, blocks in value["parts"]
        ),
    )
