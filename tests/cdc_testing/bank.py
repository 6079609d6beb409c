"""A bank whose books tell what a consumer missed.

Every transaction moves money between two accounts, so the total never changes: a cut through a transaction shows. Every
write raises the row's `version` by one: a lost version leaves a gap. Accounts are opened and closed with their money
moved, and now and then an account gets another number (a change of the key).
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psycopg
from cdc_conformance.validators import CutValidator, OrderValidator, State, Validator, VersionValidator, validate
from cdc_rangefeed_postgres.demo.audit import audit
from cdc_testing.decoders import KEYED, json_decoder
from cdc_testing.files import validate_files
from cdc_testing.kafka_reading import partitions_of, read_topics
from psycopg import errors, sql

from cdc_core import Endpoint, StoredMessage

TABLES = ("public.accounts", "public.closed")
ACCOUNTS = 200
TOTAL = ACCOUNTS * 1000


def open_bank(uri: str, *, filler: int = 0) -> None:
    """Create the tables, with *filler* more accounts that nobody uses, which make the initial scan last."""
    with psycopg.connect(uri) as connection:
        connection.execute(
            "CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint NOT NULL, version int NOT NULL, note text)"
        )
        connection.execute("CREATE TABLE closed (id bigint PRIMARY KEY, balance bigint NOT NULL)")
        connection.execute(
            "INSERT INTO accounts SELECT n, 1000, 1, 'account ' || n FROM generate_series(1, %s) n", [ACCOUNTS]
        )
        connection.execute(
            "INSERT INTO accounts SELECT -n, 0, 1, repeat('x', 100) FROM generate_series(1, %s) n", [filler]
        )


class Bank:
    """Tellers at work on the database at *uri* from entering to leaving; they bear with a server that is restarted.

    Each takes a breath of *pause_s* after a transaction, so that a feed on a busy machine keeps up with them.
    """

    def __init__(self, uri: str, *, seed: int = 0, pause_s: float = 0.02) -> None:
        self._uri = uri
        self._pause_s = pause_s
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self.transactions = 0
        self._threads = [
            threading.Thread(target=self._work, args=(random.Random(seed * 100 + number),)) for number in range(2)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if self._failure is not None and error is None:
            raise self._failure

    def _work(self, chance: random.Random) -> None:
        try:
            while not self._stop.is_set():
                try:
                    with psycopg.connect(self._uri, connect_timeout=5) as connection:
                        while not self._stop.wait(self._pause_s):
                            self._transact(connection, chance)
                except psycopg.OperationalError:
                    self._stop.wait(0.05)
        except BaseException as error:
            self._failure = error

    def _transact(self, connection: psycopg.Connection[Any], chance: random.Random) -> None:
        try:
            chance.choices((_transfer, _renumber, _close), weights=(90, 5, 5))[0](connection, chance)
            connection.commit()
            self.transactions += 1
        except (errors.DeadlockDetected, errors.UniqueViolation):
            connection.rollback()


def assert_faithful(directory: Path, uri: str, *, also: Sequence[Validator] = (), once: bool = True) -> int:
    """See that the files below *directory* hold all that the bank did, in order; return how many rows they have.

    They hold each row *once* unless tables were scanned again. The bank must be closed and the last resolved mark must
    cover all it did. The validators *also* see all of it.
    """
    validators = (OrderValidator(), VersionValidator("accounts", "version"), CutValidator(_books), *also)
    tables = [table.partition(".")[2] for table in TABLES]
    arrived = validate_files(directory, tables, validators)
    for validator in validators:
        assert validator.failures() == [], validator.failures()[:5]
    assert arrived.marks.total() > 0
    found = audit(directory, uri, tables)
    assert found.passed, str(found)
    assert found.not_once == 0 or not once, str(found)
    return arrived.rows.total()


@dataclass(frozen=True, slots=True, kw_only=True)
class Faithful:
    """How much was looked at: `marks` over all `partitions`, and the `cuts` that they allowed."""

    rows: int
    marks: int
    cuts: int
    partitions: int


def assert_faithful_kafka(
    bootstrap_servers: str, uri: str, *, prefix: str = "", moving_keys: bool = False, also: Sequence[Validator] = ()
) -> Faithful:
    """See that the topics (*prefix* before the tables' names) hold all that the bank did, and return how much.

    Each key is in order in its one partition, or with *moving_keys*, after partitions were added, in each of several;
    no row is at or below an earlier mark of its partition; no version is missing; the books balance after every
    transaction up to the least mark of all partitions; and what the marks cover is the database as it is now. The bank
    must be closed and the last mark of each partition must cover all it did. The validators *also* see all of it.
    """
    tables = _tables()
    topics = [prefix + table for table in tables]
    partitions = [(topic.removeprefix(prefix), number) for topic, number in partitions_of(bootstrap_servers, topics)]
    messages = (message.stored for message in read_topics(bootstrap_servers, topics))
    return _assert_faithful(
        messages, uri, partitions, order=OrderValidator(moving_keys=moving_keys), prefix=prefix, also=also
    )


def assert_faithful_messages(messages: Iterable[StoredMessage], uri: str) -> Faithful:
    """See the same of JSON *messages* that have one order, with marks that speak for all topics."""
    return _assert_faithful(messages, uri, [(None, None)], order=OrderValidator())


def _assert_faithful(
    messages: Iterable[StoredMessage],
    uri: str,
    partitions: Sequence[Endpoint],
    *,
    order: OrderValidator,
    prefix: str = "",
    also: Sequence[Validator] = (),
) -> Faithful:
    tables = _tables()
    cut = CutValidator(_books, endpoints=partitions, every_timestamp=True)
    validators = (order, VersionValidator("accounts", "version"), cut, *also)
    schemas = dict.fromkeys(tables, KEYED)
    arrived = validate(messages, json_decoder(), schemas, validators, prefix=prefix)
    failures = [failure for validator in validators for failure in validator.failures()]
    assert not failures, f"{len(failures)} failures, such as: {'; '.join(failures[:5])}"
    unmarked = [place for place in partitions if arrived.marks[place] == 0]
    assert not unmarked, f"partitions without a resolved mark: {unmarked}"
    assert cut.waiting == 0, f"{cut.waiting} rows are above the least of the partitions' last marks"
    with psycopg.connect(uri) as connection:
        for table in tables:
            held = cut.state.get(table, {})
            query = sql.SQL("SELECT id, to_jsonb(t) FROM {} t").format(sql.Identifier(table))
            there = {(key,): row for key, row in connection.execute(query)}
            wrong = [key for key in held.keys() | there.keys() if held.get(key) != there.get(key)]
            assert not wrong, f"{len(wrong)} rows of {table} differ from the database's, such as {wrong[:5]}"
    return Faithful(rows=arrived.rows.total(), marks=arrived.marks.total(), cuts=cut.cuts, partitions=len(partitions))


def _tables() -> list[str]:
    return [table.partition(".")[2] for table in TABLES]


def _books(state: State) -> str | None:
    total = sum(row["balance"] for table in ("accounts", "closed") for row in state.get(table, {}).values())
    return None if total == TOTAL else f"the books say {total}, not {TOTAL}"


def _transfer(connection: psycopg.Connection[Any], chance: random.Random) -> None:
    giver, taker = chance.sample(range(1, ACCOUNTS + 1), 2)
    amount = chance.randint(1, 100)
    pay = "UPDATE accounts SET balance = balance + %s, version = version + 1, note = %s WHERE id = %s"
    for account, change in sorted([(giver, -amount), (taker, amount)]):
        if connection.execute(pay, [change, f"moved {change}", account]).rowcount != 1:
            connection.rollback()
            return


def _renumber(connection: psycopg.Connection[Any], chance: random.Random) -> None:
    """Give an account another number and back, in two transactions; its versions go on under each."""
    account = chance.randint(1, ACCOUNTS)
    rename = "UPDATE accounts SET id = %s, version = version + 1 WHERE id = %s"
    other = account + ACCOUNTS * chance.randint(1, 1_000_000)
    if connection.execute(rename, [other, account]).rowcount == 1:
        connection.commit()
        connection.execute("UPDATE accounts SET id = %s WHERE id = %s", [account, other])


def _close(connection: psycopg.Connection[Any], chance: random.Random) -> None:
    """Move an account's money to the closed ones, and open it again with the same money and its versions kept."""
    account = chance.randint(1, ACCOUNTS)
    gone = connection.execute("DELETE FROM accounts WHERE id = %s RETURNING balance, version", [account]).fetchone()
    if gone is None:
        return
    connection.execute("INSERT INTO closed VALUES (%s, %s)", [account, gone[0]])
    connection.commit()
    connection.execute("DELETE FROM closed WHERE id = %s", [account])
    connection.execute("INSERT INTO accounts VALUES (%s, %s, %s, 'again')", [account, gone[0], gone[1] + 1])
