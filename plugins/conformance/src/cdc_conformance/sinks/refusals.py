"""Rows that the destination refuses for what they hold: the sink reports them, and all other rows are delivered."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from cdc_conformance.promises import requires
from cdc_conformance.rows import Change, rows
from cdc_conformance.side_effects import failure_of
from cdc_conformance.sinks.rig import AT, ORDERS, SinkRig, versions
from cdc_core import CdcError, Flushed, RefusedRowsError, RowBatch, Sink, Timestamp

BAD = (4711, 4712)
"""Keys of the rows that are refused."""
BY_KEY = pytest.param("key", marks=requires("refusal", "the destination must refuse single rows"))
BY_SIZE = pytest.param("size", marks=requires("row_limit", "the destination must have a limit"))
"""Ways in which a destination refuses rows, as parameters of a fixture for `Poison.requested`."""
_ONE, _OTHER = BAD


class Poison:
    """Makes batches with bad rows: refused by the destination for their key or size, or by the encoder."""

    def __init__(
        self, way: Literal["encoder", "key", "size"], rig: SinkRig, *, limit_bytes: int = 0, disturbance: Any = None
    ) -> None:
        self.way = way
        self._rig = rig
        self._limit_bytes = limit_bytes
        self._disturbance = disturbance

    @classmethod
    def requested(cls, request: pytest.FixtureRequest, rig: SinkRig) -> Poison:
        """Return poison of the way that a fixture's parameter names."""
        disturbance = request.getfixturevalue("disturbance") if request.param == "key" else None
        limit_bytes = request.getfixturevalue("row_limit_bytes") if request.param == "size" else 0
        return cls(request.param, rig, limit_bytes=limit_bytes, disturbance=disturbance)

    def batch(self, keys: Sequence[int], *, at: int = 0, bad: Collection[int] = BAD) -> RowBatch:
        """Return a version of each of *keys*, in order. Within `active`, those in *bad* are refused."""
        large = "n" * (self._limit_bytes if self.way == "size" else 1)
        changes = [Change({"id": key, "note": large if key in bad else f"{key} at {at}"}) for key in keys]
        return rows(ORDERS, changes, start=Timestamp(AT.wall + at))

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """The destination refuses bad rows until the block ends."""
        if self.way != "key":
            yield
            return
        with self._disturbance.refusing(self._rig.keys(self.batch(BAD))):
            yield


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of the rows between one flush and the next. Exactly one field is set."""

    flushed: Flushed | None = None
    forgotten: RefusedRowsError | None = None
    """The sink refused all rows together, and has forgotten them."""
    error: CdcError | None = None
    """An error that is not about rows."""

    @property
    def indices(self) -> list[int]:
        """The index of each row that `flush` listed as refused."""
        return [] if self.flushed is None else [row.index for row in self.flushed.refused]

    @property
    def refused(self) -> bool:
        return bool(self.indices) or self.forgotten is not None


def emit_and_flush(sink: Sink, *batches: RowBatch) -> Outcome:
    """Emit *batches*, flush, and return what became of the rows."""
    try:
        for batch in batches:
            sink.emit(batch)
        return Outcome(flushed=sink.flush())
    except RefusedRowsError as error:
        return Outcome(forgotten=error)
    except CdcError as error:
        return Outcome(error=error)


class Refusals:
    """Promises about `Flushed.refused` and RefusedRowsError. After both, the engine continues to use the sink."""

    @pytest.fixture(params=[BY_KEY, BY_SIZE])
    def poison(self, request: pytest.FixtureRequest, rig: SinkRig) -> Poison:
        """Rows that the destination refuses, in each way that the capabilities declare."""
        return Poison.requested(request, rig)

    @pytest.fixture
    def refusing(self, rig: SinkRig, disturbance: Any) -> Poison:
        """Rows that are refused for their keys: the sink can tell which."""
        return Poison("key", rig, disturbance=disturbance)

    @pytest.fixture
    def large(self, rig: SinkRig, row_limit_bytes: int) -> Poison:
        """Rows that are refused for their size."""
        return Poison("size", rig, limit_bytes=row_limit_bytes)

    def test_a_bad_row_is_reported_as_refused(self, rig: SinkRig, poison: Poison) -> None:
        """A row that the destination never accepts is listed in `Flushed.refused`, or RefusedRowsError is raised.

        With either of these, the engine finds the row. With a RetryableError it would try the row forever, with a
        TerminalSinkError the changefeed would end without naming it, and without an error the row would be lost.
        """
        _, outcome = _tried(rig, poison, poison.batch([1, _ONE, 2]))
        assert outcome.error is None, (
            f"a row that the destination never accepts must be reported as refused, not with {outcome.error!r}"
        )
        assert outcome.refused, (
            f"a row that the destination should never accept was not refused; flush returned {outcome.flushed}. Either "
            "the row is lost, or the destination accepted it because the test class does not make it refuse such rows"
        )
        listed = [] if outcome.flushed is None else [row.reason for row in outcome.flushed.refused]
        for reason in listed or [str(outcome.forgotten)]:
            assert reason.strip(), "a refused row needs a reason, but this one is empty"
            assert "\n" not in reason, f"the reason of a refusal must be one line, not {reason!r}"

    def test_rows_beside_refused_ones_are_durable(self, readable: SinkRig, poison: Poison) -> None:
        """When `flush` returns a list of refused rows, all other rows are durable: the engine does not emit them again.

        After a RefusedRowsError, they are durable once they have been emitted and flushed again without the bad ones.
        """
        sink, batch = readable.open_sink(), poison.batch([0, _ONE, 2, 3, _OTHER, 5])
        readable.begin(sink, batch)
        others = [batch.slice(0, 1), batch.slice(2, 2), batch.slice(5)]
        with poison.active():
            outcome = emit_and_flush(sink, batch)
            if not outcome.refused:
                return  # another promise is broken
            if outcome.forgotten is not None:
                emit_and_flush(sink, *others)
        readable.assert_arrived(*others, after="two of six rows were refused and flush returned")

    def test_a_sink_works_after_a_refusal(self, readable: SinkRig, poison: Poison) -> None:
        """A sink whose rows were refused accepts more rows, in the same slice and in the next one.

        A bad row does not end a connection. If the client cannot continue, replace it inside the sink.
        """
        batch = poison.batch([1, _ONE])
        more, later = versions(range(6), at=100), versions(range(6), at=200)
        sink = readable.open_sink()
        readable.begin(sink, batch, more)
        with poison.active():
            if not emit_and_flush(sink, batch).refused:
                return
            _assert_accepted(sink, more)
        error = failure_of(lambda: readable.begin(sink, later, step=1))
        assert error is None, f"rows of a slice were refused, and `begin` of the next slice raised {error!r}"
        _assert_accepted(sink, later)
        readable.close(sink)
        readable.assert_arrived(more, later, after="a row was refused and the sink was used again")

    def test_refusing_all_rows_together_forgets_them(self, rig: SinkRig, poison: Poison) -> None:
        """After a RefusedRowsError nothing that was emitted since the last flush is kept, counted or sent later.

        The engine emits the rows again, in smaller parts. A sink that still holds the bad row would refuse every part.
        """
        sink, batch = rig.open_sink(), poison.batch([1, 2, _ONE, 3])
        rig.begin(sink, batch)
        with poison.active():
            if emit_and_flush(sink, batch).forgotten is None:
                return  # it lists the bad rows
            again = emit_and_flush(sink, batch.slice(0, 1))
        assert again.flushed is not None, f"the bad row was not emitted again, but the next flush raised {again}"
        assert again.flushed.messages == 1, (
            f"one row was emitted again after a RefusedRowsError, but flush counted {again.flushed.messages}"
        )

    @requires("row_limit", "one version of a row must be refused and the others not")
    def test_versions_of_a_key_stay_in_order_around_a_refused_one(self, readable: SinkRig, large: Poison) -> None:
        """The third of five versions of a row is refused, and the others arrive in order.

        Later versions must follow, so that consumers end with the right values. Look for rows after the bad one that
        are sent first, while the rows before it wait.
        """
        batches = [large.batch([7], at=number, bad=[7] if number == 3 else []) for number in range(1, 6)]
        good = [batch for number, batch in enumerate(batches, start=1) if number != 3]
        sink, outcome = _tried(readable, large, *batches)
        if not outcome.refused:
            return
        if outcome.forgotten is not None:
            emit_and_flush(sink, *good)
        readable.close(sink)
        readable.assert_arrived(*good, after="one of five versions of a row was refused", in_order=True)

    def test_a_sink_that_refuses_rows_declares_it(self, rig: SinkRig, poison: Poison) -> None:
        """A sink that is registered with `refuses_rows=False` lists no refused row and raises no RefusedRowsError.

        For such a sink the engine keeps no rows to emit again, and could not find the bad ones.
        """
        refused = _tried(rig, poison, poison.batch([1, _ONE]))[1].refused
        assert rig.registration.refuses_rows or not refused, (
            f"sink '{rig.registration.name}' is registered with refuses_rows=False, but it refused rows; remove that"
            " setting"
        )

    @requires("partial_failure", "the sink must be able to tell which rows are refused")
    def test_flush_lists_exactly_the_refused_rows(self, rig: SinkRig, refusing: Poison) -> None:
        """`Flushed.refused` has the index of each refused row, counted from 0, and no other."""
        _, outcome = _tried(rig, refusing, refusing.batch([0, _ONE, 2, 3, _OTHER, 5]))
        assert outcome.forgotten is None, (
            "the sink declares 'partial_failure', so flush must list rows that are refused for their keys, not raise"
            f" {outcome.forgotten!r}"
        )
        listed = sorted(set(outcome.indices))
        assert listed == [1, 4], f"rows 1 and 4 of six were refused, but flush lists {listed}"

    @requires("partial_failure", "the sink must be able to tell which rows are refused")
    def test_rows_beside_refused_ones_are_counted(self, rig: SinkRig, refusing: Poison) -> None:
        """`Flushed.messages` counts the rows that were delivered, and not those that were refused."""
        _, outcome = _tried(rig, refusing, refusing.batch([0, _ONE, 2]))
        if outcome.refused and outcome.flushed is not None:
            messages = outcome.flushed.messages
            assert messages == 2, f"one of three rows was refused, but flush counted {messages} messages"

    @requires("partial_failure", "the sink must be able to tell which rows are refused")
    def test_a_refused_row_is_listed_once(self, rig: SinkRig, refusing: Poison) -> None:
        """A flush lists each refused row once, however often the destination was asked: it becomes one dead letter."""
        listed = _tried(rig, refusing, refusing.batch([_ONE, 1]), refusing.batch([2, _OTHER], at=100))[1].indices
        assert len(listed) == len(set(listed)), f"flush must list a refused row once, but it lists {listed}"

    @requires("partial_failure", "the sink must be able to tell which rows are refused")
    def test_refused_rows_are_numbered_across_batches(self, rig: SinkRig, refusing: Poison) -> None:
        """The index counts all rows since the last flush, refused rows too, and does not restart with each batch."""
        keys = [1, _ONE, 2], [3, 4], [5, _OTHER, 6]
        batches = [refusing.batch(some, at=100 * number) for number, some in enumerate(keys)]
        listed = _listed(_tried(rig, refusing, *batches)[1])
        assert max(listed) - min(listed) == 5, (
            f"of three batches, a row and the fifth row after it were refused, but flush lists {listed}"
        )

    @requires("partial_failure", "the sink must be able to tell which rows are refused")
    def test_each_flush_restarts_the_numbering_of_rows(self, rig: SinkRig, refusing: Poison) -> None:
        """The index starts at 0 after each `flush`, whether that flush listed refused rows or not."""
        batch, quiet = refusing.batch([1, _ONE], at=100), versions(range(3))
        sink = rig.open_sink()
        rig.begin(sink, batch, quiet)
        with refusing.active():
            first = _listed(emit_and_flush(sink, batch))
            emit_and_flush(sink, quiet)
            then = [_listed(emit_and_flush(sink, refusing.batch([1, _ONE], at=at))) for at in (200, 300)]
        assert then == [first, first], (
            f"the second row after a flush was refused three times, but the flushes list {first} and then {then}"
        )


def _tried(rig: SinkRig, poison: Poison, *batches: RowBatch) -> tuple[Sink, Outcome]:
    """Emit and flush *batches* in one slice, while the destination refuses bad rows. Return the sink, still open."""
    sink = rig.open_sink()
    rig.begin(sink, *batches)
    with poison.active():
        return sink, emit_and_flush(sink, *batches)


def _listed(outcome: Outcome) -> list[int]:
    """Return the indices that flush lists; made-up ones if none, because that breaks another promise."""
    return sorted(set(outcome.indices)) or [0, 5]


def _assert_accepted(sink: Sink, batch: RowBatch) -> None:
    __tracebackhide__ = True
    outcome = emit_and_flush(sink, batch)
    assert outcome.error is None, f"a sink must work after a refusal, but the next call raised {outcome.error!r}"
    assert not outcome.refused, f"the rows after a refusal were good, but the sink refused some: {outcome}"
