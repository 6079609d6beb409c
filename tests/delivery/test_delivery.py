"""Delivery to a sink that refuses rows: what arrives, what becomes a dead letter, and in which order."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable, Sequence
from itertools import chain, combinations

import pytest
from cdc_conformance.rows import Change, rows
from cdc_testing.scripted import TABLE

from cdc_core.delivery import delivery as delivery_module
from cdc_core.delivery.dead_letters import BLOCKED, BadRow, BlockedKeys
from cdc_core.delivery.delivery import BadRows, Delivery
from cdc_core.errors import ContractError, EncodeError, RefusedRowsError, RetryableSinkError
from cdc_core.rows import Op, RowBatch
from cdc_core.sink import Flushed, RefusedRow, Sink, SliceInfo
from cdc_core.timestamp import Timestamp

KEYS = 3
INFO = SliceInfo(step=0, index=0, lower=Timestamp(1))


def batch(numbers: Sequence[int]) -> RowBatch:
    """Rows n of key n % KEYS, updated at n."""
    return rows(TABLE, [Change({"id": n % KEYS, "n": n}, op=Op.UPDATE, updated=Timestamp(n)) for n in numbers])


def numbers_of(rows: RowBatch) -> list[int]:
    found: list[int] = rows.column("after").field("n").to_pylist()
    return found


class PickySink(Sink):
    """Delivers what it is given, but for the rows *bad*, in the way *how* of those that a sink has."""

    def __init__(self, how: str, bad: Iterable[int]) -> None:
        self.how = how
        self.bad = set(bad)
        self.buffer: list[tuple[int, int]] = []
        """Rows that wait, each with how many were emitted before it since the last flush."""
        self.count = 0
        self.delivered: list[int] = []
        self.emits = self.flushes = 0

    def begin(self, slice_: SliceInfo) -> None:
        self.buffer, self.count = [], 0

    def emit(self, rows: RowBatch) -> None:
        self.emits += 1
        found = list(enumerate(numbers_of(rows), start=self.count))
        bad = [(index, n) for index, n in found if n in self.bad]
        if bad and self.how.startswith("encode"):
            named = bad[-1][0] - self.count if self.how == "encode and name" else None
            raise EncodeError(f"cannot encode {bad[0][1]}", row=named)
        if bad and self.how == "refuse in emit":
            self.buffer, self.count = [], 0
            raise RefusedRowsError(f"refused, {len(bad)} among them")
        self.count += len(found)
        self.buffer += found

    def flush(self) -> Flushed:
        self.flushes += 1
        bad = [(index, n) for index, n in self.buffer if n in self.bad]
        if bad and self.how.startswith("refuse in flush"):
            guesses = {"refuse in flush, guess": bad[-1][0], "refuse in flush, guess wrongly": self.buffer[0][0]}
            self.buffer, self.count = [], 0
            raise RefusedRowsError(f"refused, {len(bad)} among them", row=guesses.get(self.how))
        self.delivered += [n for _, n in self.buffer if n not in self.bad]
        messages = len(self.buffer) - len(bad)
        self.buffer, self.count = [], 0
        refused = tuple(RefusedRow(index=index, reason=f"no {n}") for index, n in reversed(bad))
        return Flushed(messages=messages, files=1, delivered=({"messages": messages},), refused=refused)


HOW = ["encode", "encode and name", "name", "refuse in emit", "refuse in flush"]
HOW += ["refuse in flush, guess", "refuse in flush, guess wrongly"]


class Letters(BadRows):
    """Keeps bad rows; with *block_key*, the keys of bad rows are blocked."""

    def __init__(self, *, block_key: bool = False, limit: int = 10**9) -> None:
        self.rows: list[BadRow] = []
        self.block_key = block_key
        self.limit = limit
        self.keys = BlockedKeys()

    def add(self, bad: BadRow) -> None:
        self.rows.append(bad)
        if len(self.rows) > self.limit:
            raise OverflowError(len(self.rows))
        if self.block_key and bad.stage != BLOCKED:
            self.keys.add(bad.table, bad.key)

    def blocked(self, rows: RowBatch) -> Sequence[int]:
        return self.keys.find(rows)

    @property
    def numbers(self) -> list[int]:
        return [numbers_of(bad.row)[0] for bad in self.rows]


def deliver(
    sink: PickySink, letters: Letters, batches: Iterable[Sequence[int]], *, refuses_rows: bool = True
) -> Flushed:
    delivery = Delivery(sink, letters, owner="sink 'picky'", refuses_rows=refuses_rows)
    delivery.begin(INFO)
    for numbers in batches:
        delivery.emit(batch(numbers))
    return delivery.flush()


def subsets(numbers: Sequence[int]) -> Iterable[tuple[int, ...]]:
    return chain.from_iterable(combinations(numbers, size) for size in range(len(numbers) + 1))


def newest_first_seen_late(delivered: Sequence[int]) -> list[int]:
    """Return the numbers that first came after a greater one of their key."""
    seen: set[int] = set()
    newest: dict[int, int] = {}
    late = []
    for n in delivered:
        if n not in seen and n < newest.get(n % KEYS, 0):
            late.append(n)
        seen.add(n)
        newest[n % KEYS] = max(n, newest.get(n % KEYS, 0))
    return late


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("sizes", [(7,), (1, 2, 4), (3, 1, 3)], ids=str)
def test_every_row_is_delivered_in_order_or_refused_whichever_rows_are_bad(how: str, sizes: tuple[int, ...]) -> None:
    numbers = list(range(1, 8))
    split = [numbers[sum(sizes[:index]) : sum(sizes[: index + 1])] for index in range(len(sizes))]
    for bad in subsets(numbers):
        sink, letters = PickySink(how, bad), Letters()
        flushed = deliver(sink, letters, split)
        assert sorted(letters.numbers) == sorted(bad), "each bad row is refused once, and no other"
        assert list(dict.fromkeys(sink.delivered)) == [n for n in numbers if n not in bad]
        assert newest_first_seen_late(sink.delivered) == []
        assert sum(entry["messages"] for entry in flushed.delivered) == flushed.messages
        assert flushed.messages == len(sink.delivered)


@pytest.mark.parametrize("how", HOW)
def test_nothing_is_given_twice_unless_the_sink_forgot_it(how: str) -> None:
    sink = PickySink(how, {40})
    deliver(sink, Letters(), [range(1, 31), range(31, 61), range(61, 91)])
    repeated = len(sink.delivered) - 89
    assert repeated == 0 or how.startswith("refuse")
    assert repeated <= 89


@pytest.mark.parametrize("how", HOW)
def test_a_bad_row_carries_stage_and_reason(how: str) -> None:
    letters = Letters()
    deliver(PickySink(how, {5}), letters, [range(1, 10)])
    [bad] = letters.rows
    assert bad.stage == ("encode" if how.startswith("encode") else "sink")
    assert bad.reason == {"e": "cannot encode 5", "n": "no 5", "r": "refused, 1 among them"}[how[0]]
    assert (bad.table, bad.key, bad.updated) == ("db.public.counter", "[2]", Timestamp(5))
    assert str(bad) == "the row of table public.counter with key {'id': 2}, updated 5.0000000000"


@pytest.mark.parametrize("how", HOW)
def test_bad_rows_between_mid_slice_flushes_are_found(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery_module, "FLUSH_BYTES", 2 * batch(range(10)).nbytes)
    bad = {1, 10, 11, 25, 40}
    sink, letters = PickySink(how, bad), Letters()
    deliver(sink, letters, [range(start, start + 10) for start in range(1, 50, 10)])
    assert sorted(letters.numbers) == sorted(bad)
    assert list(dict.fromkeys(sink.delivered)) == [n for n in range(1, 51) if n not in bad]
    assert sink.flushes >= 2


def test_a_sink_that_may_refuse_rows_is_flushed_whenever_its_rows_take_much_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delivery_module, "FLUSH_BYTES", 2 * batch(range(10)).nbytes)
    sink = PickySink("encode", ())
    flushed = deliver(sink, Letters(), [range(10)] * 5)
    assert sink.flushes == 3
    assert (flushed.messages, flushed.files, len(flushed.delivered)) == (50, 3, 3)


def test_a_sink_that_refuses_no_rows_gets_a_whole_slice_without_a_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery_module, "FLUSH_BYTES", 1)
    sink = PickySink("encode", ())
    deliver(sink, Letters(), [range(10)] * 5, refuses_rows=False)
    assert sink.flushes == 1


def test_a_single_bad_row_of_many_costs_few_calls() -> None:
    for how in ("encode", "refuse in flush", "encode and name"):
        sink, letters = PickySink(how, {77_777}), Letters()
        deliver(sink, letters, [range(start, start + 10_000) for start in range(1, 100_000, 10_000)])
        assert letters.numbers == [77_777]
        assert sink.emits + sink.flushes < (20 if how == "encode and name" else 150)


def test_an_encoder_that_names_the_wrong_row_is_not_followed_for_long() -> None:
    class Misleading(PickySink):
        def emit(self, rows: RowBatch) -> None:
            try:
                super().emit(rows)
            except EncodeError as error:
                raise EncodeError(str(error), row=0) from None

    sink, letters = Misleading("encode", {9_000}), Letters()
    deliver(sink, letters, [range(1, 10_001)])
    assert letters.numbers == [9_000]
    assert sink.emits < 60
    assert sink.delivered == [n for n in range(1, 10_001) if n != 9_000]


@pytest.mark.parametrize("how", HOW)
def test_when_every_row_is_bad_the_first_ones_end_it(how: str) -> None:
    sink = PickySink(how, range(100_000))
    with pytest.raises(OverflowError):
        deliver(sink, Letters(limit=20), [range(start, start + 10_000) for start in range(0, 100_000, 10_000)])
    assert sink.emits + sink.flushes < 200
    assert sink.delivered == []


@pytest.mark.parametrize("how", HOW)
def test_later_rows_of_a_blocked_key_become_dead_letters_behind_the_bad_one(how: str) -> None:
    numbers = list(range(1, 13))
    for bad in subsets([2, 3, 6, 8]):
        sink, letters = PickySink(how, bad), Letters(block_key=True)
        deliver(sink, letters, [numbers[:4], numbers[4:9], numbers[9:]])
        first_bad: dict[int, int] = {}
        for n in bad:
            first_bad.setdefault(n % KEYS, n)
        behind = [n for n in numbers if n > first_bad.get(n % KEYS, 99)]
        assert set(letters.numbers) == set(first_bad.values()) | set(behind), bad
        for key in first_bad:
            mine = [n for n in letters.numbers if n % KEYS == key]
            assert mine == sorted(mine) or how == "name"
        if not how.startswith("name"):  # a sink that names rows has the others already
            assert not set(behind) & set(sink.delivered), bad
            assert len(letters.numbers) == len(set(letters.numbers))
        assert set(sink.delivered) | set(letters.numbers) == set(numbers)


class Wrong(PickySink):
    """Breaks its contract: `flush` returns *refused*, or raises *error*."""

    def __init__(self, *indices: object, error: Exception | None = None) -> None:
        super().__init__("encode", ())
        self.refused = tuple(RefusedRow(index=index, reason="no") for index in indices)  # type: ignore[arg-type]
        self.error = error

    def flush(self) -> Flushed:
        if self.error is not None:
            raise self.error
        return dataclasses.replace(super().flush(), refused=self.refused)


class Forgetful(Wrong):
    def flush(self) -> Flushed:
        return None  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("sink", "clause"),
    [
        (Forgetful(), "flush() returned NoneType, not a Flushed"),
        (Wrong(-1), "lists row -1, but 10 rows were emitted since the last flush"),
        (Wrong(10), "lists row 10, but 10 rows were emitted since the last flush"),
        (Wrong("3"), "lists row 3, but 10 rows"),
        (Wrong(3, 4, 3), "lists row 3 twice"),
        (Wrong(error=EncodeError("no")), "only emit() may raise an EncodeError"),
    ],
    ids=["nothing", "below 0", "behind the last emitted", "not a number", "twice", "encode error"],
)
def test_a_sink_that_breaks_the_contract_of_row_errors_is_named_with_the_clause(sink: Wrong, clause: str) -> None:
    with pytest.raises(ContractError) as raised:
        deliver(sink, Letters(), [range(1, 6), range(6, 11)])
    assert str(raised.value).startswith("sink 'picky' broke its contract: ")
    assert clause in str(raised.value)


def test_a_sink_cannot_refuse_rows_when_it_has_none() -> None:
    with pytest.raises(
        ContractError, match="RefusedRowsError refuses rows emitted since the last flush, but no rows were emitted"
    ):
        deliver(Wrong(error=RefusedRowsError("no")), Letters(), [])


@pytest.mark.parametrize(
    ("how", "what"),
    [
        ("name", "returned refused rows"),
        ("refuse in emit", "raised RefusedRowsError"),
        ("refuse in flush", "raised RefusedRowsError"),
    ],
)
def test_a_sink_that_says_it_refuses_no_rows_must_not(how: str, what: str) -> None:
    with pytest.raises(ContractError, match=f"refuses_rows=False, and it {what}"):
        deliver(PickySink(how, {3}), Letters(), [range(1, 6)], refuses_rows=False)


def test_other_errors_of_the_sink_are_raised_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(*_: object) -> None:
        raise RetryableSinkError("busy")

    with pytest.raises(RetryableSinkError, match="busy"):
        deliver(Wrong(error=RetryableSinkError("busy")), Letters(), [range(1, 6)])
    monkeypatch.setattr(PickySink, "emit", busy)
    with pytest.raises(RetryableSinkError, match="busy"):
        deliver(PickySink("encode", ()), Letters(), [range(1, 6)])


@pytest.mark.parametrize("seed", range(20))
def test_rows_of_many_batches_and_errors_of_every_kind_find_their_way(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    count = chance.randrange(1, 400)
    bad = {n for n in range(1, count + 1) if chance.random() < chance.choice([0.01, 0.2, 0.9])}
    monkeypatch.setattr(delivery_module, "FLUSH_BYTES", chance.choice([1, 2000, 10**9]))

    class Moody(PickySink):
        def emit(self, rows: RowBatch) -> None:
            if not any(n in self.bad for _, n in self.buffer):  # rows that wait stay refused in the same way
                self.how = chance.choice(HOW)
            super().emit(rows)

    sizes: list[int] = []
    while sum(sizes) < count:
        sizes.append(min(chance.randrange(1, 60), count - sum(sizes)))
    numbers = list(range(1, count + 1))
    split = [numbers[sum(sizes[:index]) : sum(sizes[: index + 1])] for index in range(len(sizes))]
    sink, letters = Moody("encode", bad), Letters()
    deliver(sink, letters, split)
    assert sorted(letters.numbers) == sorted(bad), f"seed {seed}"
    assert sorted(set(sink.delivered)) == [n for n in numbers if n not in bad], f"seed {seed}"
    assert newest_first_seen_late(sink.delivered) == [], f"seed {seed}"
