"""Rows that the destination refuses for what they hold: which, and that all others are delivered."""

from __future__ import annotations

from typing import Any

import pytest

from cdc_conformance.promises import requires
from cdc_conformance.sinks.poison import BAD, Poison, give
from cdc_conformance.sinks.rig import SinkRig
from cdc_conformance.sinks.tables import ORDERS, versions
from cdc_conformance.sinks.watching import failure_of
from cdc_core import RowBatch, Sink

__all__ = ["Refusals"]

_ONE, _OTHER = BAD
_BY_KEY = pytest.param("key", marks=requires("refusal", "the destination must refuse single rows"))
_BY_SIZE = pytest.param("size", marks=requires("row_limit", "the destination must have a limit"))


class Refusals:
    """Promises about PartialWriteError and RefusedRowsError. The sink goes on being used after each."""

    @pytest.fixture(params=[_BY_KEY, _BY_SIZE])
    def poison(self, request: pytest.FixtureRequest, rig: SinkRig) -> Poison:
        """Rows that the destination refuses, in each way that the capabilities name."""
        if request.param == "key":
            return Poison("key", rig, disturbance=request.getfixturevalue("disturbance"))
        return Poison("size", rig, limit_bytes=request.getfixturevalue("row_limit_bytes"))

    @pytest.fixture
    def refusing(self, rig: SinkRig, disturbance: Any) -> Poison:
        """Rows that are refused for their keys: the sink can tell which."""
        return Poison("key", rig, disturbance=disturbance)

    @pytest.fixture
    def large(self, rig: SinkRig, row_limit_bytes: int) -> Poison:
        """Rows that are refused for their size."""
        return Poison("size", rig, limit_bytes=row_limit_bytes)

    def test_a_bad_row_is_refused_as_a_row(self, rig: SinkRig, poison: Poison) -> None:
        """For a row that the destination never takes, `emit` or `flush` raises PartialWriteError or RefusedRowsError.

        By these the engine finds the row and puts it aside, or stops and names it. A RetryableError would have it tried
        for ever, a TerminalSinkError ends the changefeed without naming it, and silence loses it.
        """
        rig.start(ORDERS)
        sink, batch = rig.open(), poison.batch([1, _ONE, 2])
        rig.begin(sink, batch)
        with poison.at_work():
            answer = give(sink, batch)
        assert answer.other is None, (
            "a row that the destination never takes must raise PartialWriteError or RefusedRowsError, not"
            f" {answer.other!r}"
        )
        assert answer.refused, "a row that the destination does not take was neither delivered nor refused"
        for reason in [reason for _, reason in answer.failures] or [str(answer.whole)]:
            assert reason.strip(), "a refused row needs a reason, but this one is empty"
            assert "\n" not in reason, f"a reason must be one line, not {reason!r}"

    def test_a_refusal_delivers_all_other_rows(self, readable: SinkRig, poison: Poison) -> None:
        """Rows that a PartialWriteError does not list are delivered by the next `flush`: nothing repeats them.

        After a RefusedRowsError they are delivered when they are given again without the bad ones.
        """
        rig = readable
        rig.start(ORDERS)
        sink, batch = rig.open(), poison.batch([0, _ONE, 2, 3, _OTHER, 5])
        rig.begin(sink, batch)
        others = [batch.slice(0, 1), batch.slice(2, 2), batch.slice(5)]
        with poison.at_work():
            answer = give(sink, batch)
            if not answer.refused:
                return  # another promise's affair
            if answer.whole is not None:
                give(sink, *others)
        rig.close(sink)
        missing = rig.read().missing(rig.rows(*others))
        assert not missing, f"two of six rows were refused, the others count as delivered, but {missing}"

    def test_a_sink_goes_on_after_a_refusal(self, readable: SinkRig, poison: Poison) -> None:
        """The sink that had rows refused takes more, in the same slice and in the next one.

        A bad row is not the end of a connection. A client that cannot go on is replaced inside of the sink.
        """
        rig = readable
        rig.start(ORDERS)
        batch = poison.batch([1, _ONE])
        more, later = versions(range(6), at=100), versions(range(6), at=200)
        sink = rig.open()
        rig.begin(sink, batch, more)
        with poison.at_work():
            if not give(sink, batch).refused:
                return
            _goes_on(sink, more)
        error = failure_of(lambda: rig.begin(sink, later, step=1))
        assert error is None, f"rows of a slice were refused, and `begin` of the next one raised {error!r}"
        _goes_on(sink, later)
        rig.close(sink)
        missing = rig.read().missing(rig.rows(more, later))
        assert not missing, f"a row was refused and the sink went on, but of what followed {missing}"

    def test_a_refusal_as_a_whole_forgets_all_since_the_flush(self, rig: SinkRig, poison: Poison) -> None:
        """After a RefusedRowsError nothing that was emitted since the flush before is kept, counted or sent later.

        The engine gives the rows again, in other parts. A sink that still has the bad one refuses every part.
        """
        rig.start(ORDERS)
        sink, batch = rig.open(), poison.batch([1, 2, _ONE, 3])
        rig.begin(sink, batch)
        with poison.at_work():
            if give(sink, batch).whole is None:
                return  # it said which rows are bad
            again = give(sink, batch.slice(0, 1))
        assert again.flushed is not None, f"the bad row was not given again, but the next flush said {again}"
        assert again.flushed.messages == 1, (
            f"one row was given again after all were refused together, but flush counted {again.flushed.messages}"
        )

    @requires("row_limit", "a row must be refused and its other versions not")
    def test_versions_of_a_key_stay_in_order_around_a_refused_one(self, readable: SinkRig, large: Poison) -> None:
        """The third of five versions of a row is refused; the others arrive in their order.

        Later versions follow: a consumer of the last one is right in the end. Look for rows behind the bad one that go
        first, while those before it wait.
        """
        rig = readable
        rig.start(ORDERS)
        batches = [large.batch([7], at=number, bad=[7] if number == 3 else []) for number in range(1, 6)]
        good = [batch for number, batch in enumerate(batches, start=1) if number != 3]
        sink = rig.open()
        rig.begin(sink, *batches)
        answer = give(sink, *batches)
        if not answer.refused:
            return
        if answer.whole is not None:
            give(sink, *good)
        rig.close(sink)
        seen = rig.read()
        missing = seen.missing(rig.rows(*good))
        assert not missing, f"one of five versions of a row was refused, and of the others {missing}"
        wrong = seen.out_of_order()
        assert not wrong, f"one of five versions of a row was refused, and then {wrong}"

    def test_a_sink_that_says_it_refuses_no_rows_never_does(self, rig: SinkRig, poison: Poison) -> None:
        """A sink class with `refuses_rows = False` raises neither PartialWriteError nor RefusedRowsError.

        The engine then keeps no rows to give again: it could not act on them.
        """
        rig.start(ORDERS)
        sink, batch = rig.open(), poison.batch([1, _ONE])
        rig.begin(sink, batch)
        with poison.at_work():
            refused = give(sink, batch).refused
        assert sink.refuses_rows or not refused, (
            f"{type(sink).__name__} says refuses_rows = False, and refused rows: leave the attribute at True"
        )

    @requires("partial_failure", "the sink must be able to tell which rows are refused")
    def test_a_partial_failure_names_the_refused_rows(self, rig: SinkRig, refusing: Poison) -> None:
        """`failures` of PartialWriteError has the index of each refused row, counted from 0, and no other."""
        rig.start(ORDERS)
        sink, batch = rig.open(), refusing.batch([0, _ONE, 2, 3, _OTHER, 5])
        rig.begin(sink, batch)
        with refusing.at_work():
            answer = give(sink, batch)
        assert answer.whole is None, (
            "the sink declares 'partial_failure', so what is refused for its key must be named by a PartialWriteError,"
            f" not {answer.whole!r}"
        )
        named = sorted({index for index, _ in answer.failures})
        assert named == [1, 4], f"rows 1 and 4 of six were refused, but the error names {named}"

    @requires("partial_failure", "the sink must be able to tell which rows are refused")
    def test_rows_beside_refused_ones_are_counted(self, rig: SinkRig, refusing: Poison) -> None:
        """`Flushed.messages` counts the rows that were delivered, and not those that were refused.

        Where it is `flush` that raises PartialWriteError, the next one tells what that one delivered: the engine calls
        it at once.
        """
        rig.start(ORDERS)
        sink, batch = rig.open(), refusing.batch([0, _ONE])
        rig.begin(sink, batch)
        with refusing.at_work():
            answer = give(sink, batch)
        if answer.failures and answer.flushed is not None:
            assert answer.flushed.messages == 1, (
                f"of two rows one was refused, but flush counted {answer.flushed.messages} delivered"
            )

    @requires("partial_failure", "the sink must be able to tell which rows are refused")
    def test_a_refused_row_is_named_once(self, rig: SinkRig, refusing: Poison) -> None:
        """What a PartialWriteError of `emit` has named, `flush` does not name again: it would be put aside twice."""
        rig.start(ORDERS)
        sink, first, second = rig.open(), refusing.batch([_ONE, 1]), refusing.batch([2, _OTHER], at=100)
        rig.begin(sink, first, second)
        with refusing.at_work():
            named = [index for index, _ in give(sink, first, second).failures]
        assert len(named) == len(set(named)), f"a refused row is named once, but the errors named {named}"

    @requires("partial_failure", "the sink must be able to tell which rows are refused")
    def test_refused_rows_are_counted_over_several_emits(self, rig: SinkRig, refusing: Poison) -> None:
        """Rows are counted through all batches since the flush, refused ones too, not within each batch."""
        rig.start(ORDERS)
        sink = rig.open()
        keys = [1, _ONE, 2], [3, 4], [5, _OTHER, 6]
        batches = [refusing.batch(some, at=100 * number) for number, some in enumerate(keys)]
        rig.begin(sink, *batches)
        with refusing.at_work():
            named = _indices(sink, *batches)
        assert max(named) - min(named) == 5, (
            f"the second row of three batches was refused, and the fifth one after it, but the errors name {named}"
        )

    @requires("partial_failure", "the sink must be able to tell which rows are refused")
    def test_refused_rows_are_counted_anew_after_a_flush(self, rig: SinkRig, refusing: Poison) -> None:
        """Each `flush` of a slice starts the count of rows again, whether rows were refused before it or not."""
        rig.start(ORDERS)
        batch, quiet = refusing.batch([1, _ONE], at=100), versions(range(3))
        sink = rig.open()
        rig.begin(sink, batch, quiet)
        with refusing.at_work():
            first = _indices(sink, batch)
            give(sink, quiet)
            then = [_indices(sink, refusing.batch([1, _ONE], at=at)) for at in (200, 300)]
        assert then == [first, first], (
            f"the same row after a flush was refused three times, and was named {first} and then {then}"
        )

    @requires("partial_failure", "the sink must be able to tell which rows are refused")
    def test_refused_rows_are_counted_anew_in_each_slice(self, rig: SinkRig, refusing: Poison) -> None:
        """`begin` starts the count of rows again, also when the slice before was not flushed."""
        rig.start(ORDERS)
        batches = [refusing.batch([1, _ONE], at=at) for at in (100, 200)]
        abandoned = versions(range(3), at=150)
        named = []
        with refusing.at_work():
            for step, batch in enumerate(batches):
                sink = rig.open()
                if step:
                    rig.begin(sink, abandoned, step=1)
                    sink.emit(abandoned)
                rig.begin(sink, batch, step=2 * step)
                named.append(_indices(sink, batch))
                rig.close(sink)
        assert named[0] == named[1], f"the second row of two slices was refused, and was named {named}"


def _indices(sink: Sink, *batches: RowBatch) -> list[int]:
    """Return which rows the sink names, none but an odd one when it names none: that is another promise's affair."""
    return sorted({index for index, _ in give(sink, *batches).failures}) or [0, 5]


def _goes_on(sink: Sink, batch: RowBatch) -> None:
    answer = give(sink, batch)
    assert answer.other is None, f"a sink goes on after rows were refused, but then it raised {answer.other!r}"
    assert not answer.refused, f"nothing was wrong with the rows after a refusal, but the sink said {answer}"
