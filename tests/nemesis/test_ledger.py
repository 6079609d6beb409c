"""The ledger knows what the database held, and when."""

from __future__ import annotations

from cdc_conformance.validators import SeenRow
from cdc_testing.nemesis_events import Write
from cdc_testing.nemesis_ledger import Ledger, RowValidator

from cdc_core import Timestamp


def test_commits_stand_in_the_order_of_their_times() -> None:
    ledger = Ledger({"foo": "db.foo"})
    ledger.committed([Write("foo", 1, {"n": 1})], Timestamp(10))
    ledger.committed([Write("foo", 2, {"n": 3}), Write("foo", 1, None)], Timestamp(30))
    ledger.committed([Write("foo", 3, {"n": 2, "note": "a"})], Timestamp(20))
    assert [change[1] for commit in ledger.commits for change in commit] == [(1,), (3,), (2,), (1,)]
    assert ledger.state_at(Timestamp(9)) == {"db.foo": {}}
    assert ledger.state_at(Timestamp(29)) == {
        "db.foo": {(1,): {"id": 1, "n": 1, "note": None}, (3,): {"id": 3, "n": 2, "note": "a"}}
    }
    assert ledger.state_at(Timestamp(30))["db.foo"].keys() == {(2,), (3,)}


def test_a_delete_of_nothing_is_no_commit() -> None:
    ledger = Ledger({"foo": "foo"})
    ledger.committed([Write("foo", 1, None)], None)
    assert ledger.commits == []


def test_a_row_must_have_what_was_written_and_may_lack_columns() -> None:
    ledger = Ledger({"foo": "foo"})
    ledger.committed([Write("foo", 1, {"n": 1, "note": "a", "test1": "x"})], None)
    ledger.dropped("foo", "test1", None)
    ledger.committed([Write("foo", 1, {"n": 2})], None)

    def failures(**after: object) -> list[str]:
        validator = RowValidator(ledger)
        validator.note_row(SeenRow(topic="foo", key=(1,), after=after, updated=Timestamp(1)))
        return validator.failures()

    assert failures(id=1, n=1, note="a", test1="x") == []
    assert failures(id=1, n=1, note="a", test2=None) == []
    assert failures(id=1, n=2, note="a") == []
    assert failures(id=1, n=2, note="a", test1="x") != []
    assert failures(id=1, n=1, note="b") != []
    assert failures(id=1, n=3) == ["topic foo key [1] at 1.0000000000: after is {'id': 1, 'n': 3}, written was None"]


def test_rows_have_the_columns_of_their_time() -> None:
    ledger = Ledger({"foo": "foo", "bar": "bar"})
    ledger.committed([Write("foo", 1, {"n": 1}), Write("bar", 1, {"n": 2})], Timestamp(10))
    ledger.filled("test1", "filled", Timestamp(20), table="foo")
    ledger.committed([Write("foo", 1, {"n": 3, "test1": "x"}), Write("foo", 2, {"n": 4})], Timestamp(30))
    ledger.dropped("foo", "test1", Timestamp(40))

    def values(at: int) -> dict[int, object]:
        return {row["n"]: row.get("test1") for row in ledger.whole_state_at(Timestamp(at))["foo"].values()}

    assert [values(at) for at in (19, 20, 30)] == [{1: None}, {1: "filled"}, {3: "x", 4: "filled"}]
    assert values(40) == {3: None, 4: None}
    assert ledger.whole_state_at(Timestamp(30))["bar"] == {(1,): {"id": 1, "n": 2, "note": None}}


def test_a_row_may_have_the_default_of_a_column_that_it_never_wrote() -> None:
    ledger = Ledger({"foo": "foo"})
    ledger.committed([Write("foo", 1, {"n": 1})], None)
    ledger.filled("test1", "filled", None, table="foo")
    validator = RowValidator(ledger)
    for value in ("filled", None, "other"):
        after = {"id": 1, "n": 1, "note": None, "test1": value}
        validator.note_row(SeenRow(topic="foo", key=(1,), after=after, updated=Timestamp(1)))
    (failure,) = validator.failures()
    assert "other" in failure


def test_renamed_columns_have_their_first_name_and_integers_become_text() -> None:
    ledger = Ledger({"foo": "foo"})
    ledger.committed([Write("foo", 1, {"n": 1})], Timestamp(10))
    ledger.filled("test1", 7, Timestamp(20), table="foo")
    ledger.committed([Write("foo", 2, {"n": 2, "test1": 5})], Timestamp(30))
    ledger.renamed("test1", "test2")
    ledger.made_text("foo", "test2", Timestamp(40))
    ledger.committed([Write("foo", 2, {"n": 3}), Write("foo", 3, {"n": 4, "test2": "x"})], Timestamp(50))

    def values(at: int) -> dict[int, object]:
        return {row["n"]: row["test1"] for row in ledger.whole_state_at(Timestamp(at))["foo"].values()}

    assert [values(at) for at in (30, 40, 50)] == [{1: 7, 2: 5}, {1: "7", 2: "5"}, {1: "7", 3: "5", 4: "x"}]
    validator = RowValidator(ledger)
    for name, value in (("test1", 5), ("test2", 5), ("test2", "5"), ("test2", 6)):
        after = {"id": 2, "n": 2, "note": None, name: value}
        validator.note_row(SeenRow(topic="foo", key=(2,), after=after, updated=Timestamp(1)))
    (failure,) = validator.failures()
    assert "6" in failure
