"""Tokens of PostgreSQL: where a step ends in the log and in the initial scan."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from cdc_core import Timestamp, Token
from cdc_rangefeed_postgres.filtered import Filtered, PastFilter
from cdc_rangefeed_postgres.lsn import lsn_text, parse_lsn
from cdc_rangefeed_postgres.types import TypeInfo

_CREATING = "creating"


def intent(slot: str) -> Token:
    """Return the token that is saved before a slot is created."""
    return {"state": _CREATING, "slot": slot}


def endpoint_of(token: Token | None) -> str:
    """Return where the slot is: the place of an endpoint, "" for the source."""
    return "" if token is None else str(token.get("endpoint", ""))


def is_intent(token: Token) -> bool:
    """Return whether *token* is an intent: the start that saved it did not finish."""
    return token.get("state") == _CREATING


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The snapshot of a round. It sees exactly the transactions with `final_lsn < lsn`; its rows carry `at`."""

    id: str
    at: Timestamp
    lsn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A table or a partition to scan: its first `blocks` blocks, as long as its file is `filenode`."""

    table: str
    oid: int
    filenode: int
    blocks: int
    detached: str | None = None
    """Of a partition that was detached: its name in SQL. Its rows are deleted from the table."""
    where: str | None = None
    """A predicate in SQL that the rows to read satisfy; None for all rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """The rest of an initial scan. The blocks of `parts[0]` before `block` are done."""

    parts: tuple[Part, ...]
    block: int = 0
    done: int = 0
    total: int = 0
    round: int = 0
    snapshot: Snapshot | None = None

    def without(self, parts: int, block: int) -> Scan | None:
        """Return the scan without its first *parts* parts and *block* blocks of the next part; None when it is done."""
        left = sum(part.blocks for part in self.parts[parts:]) - block
        if left == 0:
            return None
        return replace(self, parts=self.parts[parts:], block=block, done=self.total - left)

    def with_parts(self, parts: Sequence[Part], *, instead_of: Container[int]) -> Scan:
        """Return the scan with *parts* at its end, without the parts with the oids *instead_of*, in a new round."""
        block = 0 if self.parts and self.parts[0].oid in instead_of else self.block
        left = (*(part for part in self.parts if part.oid not in instead_of), *parts)
        total = self.done + sum(part.blocks for part in left) - block
        return replace(self, parts=left, block=block, total=total, snapshot=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What decides how the rows that a table holds are read, in short: see `cdc_rangefeed_postgres.boundaries`."""

    columns: str
    """A code for each attribute of pg_attribute."""
    altered: str
    """A hash of the transactions that wrote these attributes."""
    files: tuple[int, ...]
    """The file of each leaf, in the order of their oids."""
    key: tuple[str, ...]
    """The last key that the catalog had. That of rows in the log follows it, see `TableState.key`."""
    key_ids: tuple[int, ...] = ()
    """See `Table.key_ids`. Empty in a token of an earlier version."""
    members: str = ""
    """A code for each member of the types of the columns, see `cdc_rangefeed_postgres.value_types`."""

    joined: str = ""
    """A code for each leaf of a partitioned table: another one when it was detached and attached again."""
    past_names: str = ""
    """The names that columns had since the rows were last read whole: see `cdc_rangefeed_postgres.past_names`."""

    def to_json(self) -> list[Any]:
        value = [self.columns, self.altered, list(self.files), list(self.key), list(self.key_ids)]
        more = [self.members, self.joined, self.past_names]
        while more and not more[-1]:
            more.pop()
        return [*value, *more]

    @classmethod
    def from_json(cls, value: list[Any], key: Sequence[str]) -> Self:
        """Return the layout of a table whose rows had *key* in an earlier version, which did not save it here."""
        columns, altered, files, *more = value
        present, key_ids, members, joined, past_names = (*(more or (key, ())), "", "", "")[:5]
        return cls(
            columns=columns,
            altered=altered,
            files=tuple(files),
            key=tuple(present),
            key_ids=tuple(key_ids),
            members=members,
            joined=joined,
            past_names=past_names,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """What a token says about a watched table: its identity, and key and shape of the newest version in the log."""

    oid: int
    key: tuple[str, ...]
    version: int
    shape: str
    leaves: tuple[int, ...] = ()
    """Of a partitioned table: the partitions that were scanned or are read from the log."""
    layout: Layout | None = None
    """None in a token of an earlier version, which did not look at it."""
    filtered: Filtered | None = None
    """The row filter of the table in the publication; None without one."""
    past_filter: PastFilter | None = None
    """The last one that was removed, as long as changes of before may be left."""
    truncated: tuple[str, ...] = ()
    """The partitions whose TRUNCATE ended the changefeed, until the user has said how to continue."""
    published: tuple[str, ...] = ()
    """What published it when it was last compared, see `Table.publishing`. Empty: not known yet."""
    removed: tuple[int, ...] = ()
    """Partitions that are no longer in `leaves` while the log before `PostgresToken.settled` can have their rows."""
    left_out: int = 0
    """From which LSN on a move has left changes out, so that a consumer may lack large values; 0 after a scan."""

    @property
    def present_key(self) -> tuple[str, ...]:
        """The key in the catalog, as last compared."""
        return self.key if self.layout is None else self.layout.key

    def read_whole(self) -> TableState:
        """Return the state once all rows are read again."""
        layout = None if self.layout is None else replace(self.layout, past_names="")
        return replace(self, layout=layout, left_out=0)

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {"oid": self.oid, "key": list(self.key), "version": self.version, "shape": self.shape}
        if self.leaves:
            value["leaves"] = list(self.leaves)
        if self.layout is not None:
            value["layout"] = self.layout.to_json()
        if self.filtered is not None:
            value["filtered"] = self.filtered.to_json()
        if self.past_filter is not None:
            value["past_filter"] = self.past_filter.to_json()
        if self.truncated:
            value["truncated"] = list(self.truncated)
        if self.published:
            value["published"] = list(self.published)
        if self.removed:
            value["removed"] = list(self.removed)
        if self.left_out:
            value["left_out"] = lsn_text(self.left_out)
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        layout, filtered, past = value.get("layout"), value.get("filtered"), value.get("past_filter")
        return cls(
            oid=value["oid"],
            key=tuple(value["key"]),
            version=value["version"],
            shape=value["shape"],
            leaves=tuple(value.get("leaves", ())),
            layout=None if layout is None else Layout.from_json(layout, value["key"]),
            filtered=None if filtered is None else Filtered.from_json(filtered),
            past_filter=None if past is None else PastFilter.from_json(past),
            truncated=tuple(value.get("truncated", ())),
            published=tuple(value.get("published", ())),
            removed=tuple(value.get("removed", ())),
            left_out=parse_lsn(value.get("left_out", "0/0")),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresToken:
    """A token, decoded: all transactions with `final_lsn < lsn` come before it."""

    lsn: int
    clock: Timestamp | None = None
    """The source's clock when the step ended at the end of the flushed log, otherwise None."""
    tables: Mapping[str, TableState]
    """By `schema.table`."""
    catalog: str
    """Fingerprint of the catalog rows of the watched tables, as last seen."""
    settled: int
    """Before this LSN, tables in the log may have shapes other than the catalog's."""
    types: Mapping[int, TypeInfo] = field(default_factory=dict)
    """The types of columns by oid, as rows after `lsn` can have them: at `settled` the catalog's take their place."""
    scan: Scan | None = None
    endpoint: str = ""
    """Where the slot is: the place of an endpoint, "" for the source."""
    since: int | None = None
    """From which LSN on `tables` are as they are here: none was altered or scanned after it. None: only here."""
    again: int = 0
    """Changes before this LSN are read once more, so nothing is resolved there: see `cdc_rangefeed_postgres.moving`."""
    left: int = 0
    """The LSN that was left, of a token that was moved: where the last run ended. 0 from the next start on."""
    timeline: int = 0
    """That of the server on which the step ended; 0 when it is not known."""

    @property
    def altered_at(self) -> int:
        """See `since`."""
        return self.lsn if self.since is None else self.since

    def following(self, before: PostgresToken) -> PostgresToken:
        """Return this token, which comes after *before*, with the right `since`."""
        altered = self.tables != before.tables or self.scan is not None or before.scan is not None
        since = self.lsn if altered else before.altered_at
        return replace(self, since=None if since == self.lsn else since)

    def with_truncated(self, partitions: Mapping[str, Sequence[str]]) -> PostgresToken:
        """Return the token that remembers truncated *partitions*, by table."""
        found = {name: replace(self.tables[name], truncated=tuple(names)) for name, names in partitions.items()}
        return replace(self, tables={**self.tables, **found})

    def scanning(self, tables: Container[str], scan: Scan | None) -> PostgresToken:
        """Return this token with *scan*, which has all rows of *tables*."""
        states = {name: state.read_whole() if name in tables else state for name, state in self.tables.items()}
        return replace(self, tables=states, scan=scan)

    def to_json(self) -> Token:
        more: Token = {"endpoint": self.endpoint} if self.endpoint else {}
        if self.since is not None:
            more["since"] = lsn_text(self.since)
        if self.types:
            more["types"] = [info.to_json() for info in self.types.values()]
        if self.again:
            more["again"] = lsn_text(self.again)
        if self.left:
            more["left"] = lsn_text(self.left)
        if self.timeline:
            more["timeline"] = self.timeline
        return more | {
            "lsn": lsn_text(self.lsn),
            "clock": None if self.clock is None else str(self.clock),
            "scan": None
            if self.scan is None
            else _scan_to_json(self.scan, {name: index for index, name in enumerate(sorted(self.tables))}),
            "tables": {name: state.to_json() for name, state in self.tables.items()},
            "catalog": self.catalog,
            "settled": lsn_text(self.settled),
        }

    @classmethod
    def from_json(cls, token: Token) -> Self:
        # Whoever keeps a token as JSON may sort it.
        tables = {name: TableState.from_json(state) for name, state in sorted(token["tables"].items())}
        return cls(
            lsn=parse_lsn(token["lsn"]),
            clock=None if token["clock"] is None else Timestamp.parse(token["clock"]),
            tables=tables,
            catalog=token["catalog"],
            settled=parse_lsn(token["settled"]),
            scan=None if token["scan"] is None else _scan_from_json(token["scan"], list(tables)),
            endpoint=endpoint_of(token),
            since=parse_lsn(token["since"]) if "since" in token else None,
            types={info.oid: info for info in map(TypeInfo.from_json, token.get("types", ()))},
            again=parse_lsn(token.get("again", "0/0")),
            left=parse_lsn(token.get("left", "0/0")),
            timeline=token.get("timeline", 0),
        )


def _scan_to_json(scan: Scan, places: Mapping[str, int]) -> dict[str, Any]:
    at = scan.snapshot
    return {
        "round": scan.round,
        "snapshot": None if at is None else {"id": at.id, "at": str(at.at), "lsn": lsn_text(at.lsn)},
        "phase": "log" if at is None else "scan",
        "done": scan.done,
        "total": scan.total,
        "block": scan.block,
        "parts": [_part_to_json(part, places) for part in scan.parts],
    }


def _part_to_json(part: Part, places: Mapping[str, int]) -> list[Any]:
    more = [part.detached, part.where]
    while more and more[-1] is None:
        more.pop()
    return [places[part.table], part.oid, part.filenode, part.blocks, *more]


def _scan_from_json(value: Mapping[str, Any], names: list[str]) -> Scan:
    at = value["snapshot"]
    return Scan(
        round=value["round"],
        snapshot=None if at is None else Snapshot(id=at["id"], at=Timestamp.parse(at["at"]), lsn=parse_lsn(at["lsn"])),
        done=value["done"],
        total=value["total"],
        block=value["block"],
        parts=tuple(
            Part(
                table=names[index],
                oid=oid,
                filenode=filenode,
                blocks=blocks,
                detached=more[0] if more else None,
                where=more[1] if len(more) > 1 else None,
            )
            for index, oid, filenode, blocks, *more in value["parts"]
        ),
    )
