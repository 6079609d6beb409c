"""Construction, use and close of the parts of a sink, what the driver asks of a destination, and what is left."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cdc_conformance.promises import requires
from cdc_conformance.rows import INT8, TEXT, table
from cdc_conformance.side_effects import descriptors, failure_of, threads, until, watched
from cdc_conformance.sinks.rig import AT, ORDERS, USERS, SinkRig, versions
from cdc_core import CdcError, ConfigError, Flushed, Timestamp
from cdc_core.config.parts import Parts

_LIVES = 3
_UNUSUAL_NAMES = (
    *("Orders", "orders", "or ders", "or-ders", "or_ders", "or.ders", "or/ders", "or%2Fders"),
    *("ördêrs", "订单"),
)


class Lifecycle:
    """Promises about construction and `close` of Sink, ResolvedSink and Destination."""

    def test_constructors_have_no_side_effects(self, fresh: SinkRig) -> None:
        """Constructing a sink, resolved sink or destination connects to nothing, starts nothing and touches no file.

        The engine constructs them in many processes, and uses some of them for a topic name only. Connect on the first
        call that needs it, and keep the client in a `cached_property`.
        """
        parts = Parts(fresh.feed())
        for construct in (parts.open_sink, parts.open_resolved_sink, parts.open_destination):
            construct()  # imports the modules
            with watched() as effects:
                part = construct()
            name = type(part).__name__
            assert str(effects) == "nothing", f"a constructor has no side effects, but that of {name} {effects}"

    def test_unused_parts_can_be_closed(self, fresh: SinkRig) -> None:
        """`close` works directly after construction: the engine closes what it opened, used or not."""
        for part in (fresh.open_sink(), fresh.open_resolved_sink(), fresh.open_destination()):
            error = failure_of(part.close)
            assert error is None, f"close of a new {type(part).__name__} must do nothing, but it raised {error!r}"

    def test_closing_twice_is_harmless(self, rig: SinkRig) -> None:
        """A second `close` does nothing. After an error the engine may close what is closed already."""
        sink, resolved_sink, destination = rig.open_sink(), rig.open_resolved_sink(), rig.open_destination()
        rig.write_with(sink, versions([1]))
        resolved_sink.emit_resolved(AT)
        failure_of(destination.check)
        for part in (sink, resolved_sink, destination):
            part.close()
            error = failure_of(part.close)
            assert error is None, f"the second close of {type(part).__name__} raised {error!r}"

    def test_another_sink_of_the_attempt_can_repeat_a_slice(self, readable: SinkRig) -> None:
        """When a task fails, the same attempt starts it again: a new sink gets the same slice with the same numbers.

        Only `task_attempt` is greater. A name that already exists is not an error. Do not skip the repeated slice as
        already written, because the first try may have ended early.
        """
        first, second = versions(range(4)), versions(range(4), at=100)
        with readable.closing(readable.open_sink()) as sink:
            readable.begin(sink, first)
            sink.emit(first.slice(0, 2))
        readable.write(first, task_attempt=1)
        readable.write(second, step=1)
        readable.assert_arrived(first, second, after="a slice ended early and another sink of the attempt repeated it")

    def test_use_after_close_is_an_error(self, rig: SinkRig) -> None:
        """`emit`, `flush` and `emit_resolved` raise a CdcError after `close`, such as TerminalSinkError.

        A closed sink that silently accepts rows loses them.
        """
        batch = versions([1])
        sink, resolved_sink = rig.open_sink(), rig.open_resolved_sink()
        rig.begin(sink, batch)
        sink.close()
        resolved_sink.close()
        for name, call in (
            ("emit", lambda: sink.emit(batch)),
            ("flush", sink.flush),
            ("emit_resolved", lambda: resolved_sink.emit_resolved(AT)),
        ):
            error = failure_of(call)
            assert isinstance(error, CdcError), f"{name} after close must raise a CdcError, not {error!r}"

    def test_an_empty_batch_is_accepted(self, rig: SinkRig) -> None:
        """A batch without rows, alone or between others, adds nothing and is not an error: a filter may leave one."""
        sink, batch = rig.open_sink(), versions([1, 2])
        rig.begin(sink, batch)
        for part in (batch.slice(0, 0), batch, batch.slice(2, 0)):
            error = failure_of(lambda part=part: sink.emit(part))  # type: ignore[misc]
            assert error is None, f"emit must accept a batch of {len(part)} rows, but it raised {error!r}"
        messages = sink.flush().messages
        assert messages == 2, f"2 rows and two empty batches were emitted, but flush counted {messages} messages"

    def test_a_slice_without_rows_can_be_flushed(self, rig: SinkRig) -> None:
        """`flush` directly after `begin` returns Flushed(): the slice of a quiet table has no rows."""
        sink = rig.open_sink()
        rig.begin(sink)
        flushed = sink.flush()
        assert flushed == Flushed(), f"nothing was emitted, so flush must return Flushed(), not {flushed!r}"

    def test_repr_is_harmless(self, rig: SinkRig) -> None:
        """`repr` and `str` of a sink work before use, in use and after `close`, and have no side effects."""
        sink = rig.open_sink()
        for state in ("new", "in use", "closed"):
            with watched() as effects:
                error = failure_of(lambda: (repr(sink), str(sink)))
            assert error is None, f"repr of a sink that is {state} raised {error!r}"
            assert str(effects) == "nothing", f"repr of a sink that is {state} {effects}"
            if state == "new":
                rig.write_with(sink, versions([1]))
            elif state == "in use":
                sink.close()


class Leftovers:
    """Promises about what remains after `close`: less than one thing for each sink that was closed.

    What a library keeps for the whole process exists after the first sink, or appears little by little.
    """

    def test_no_thread_is_left(self, rig: SinkRig, settle_s: float, allowed_threads: int) -> None:
        """The threads of a sink end with it, within `settle_s`. Executors open and close sinks for weeks."""
        grown = _growth(rig, threads, settle_s, allowed_threads)
        assert grown < _LIVES + allowed_threads, f"{_LIVES} sinks were closed and {grown} threads are left"

    def test_no_socket_is_left(self, rig: SinkRig, settle_s: float) -> None:
        """The sockets of a sink are closed with it, within `settle_s`."""
        grown = _growth(rig, lambda: descriptors()["sockets"], settle_s)
        assert grown < _LIVES, f"{_LIVES} sinks were closed and {grown} sockets are left open"

    def test_no_file_is_left_open(self, rig: SinkRig, settle_s: float) -> None:
        """The files and pipes of a sink are closed with it, within `settle_s`."""
        grown = _growth(rig, lambda: descriptors()["files"], settle_s)
        assert grown < _LIVES, f"{_LIVES} sinks were closed and {grown} files or pipes are left open"

    def test_no_temporary_file_is_left(self, rig: SinkRig, tmp_path: Path, settle_s: float) -> None:
        """`close` removes what a sink wrote outside its destination: nothing cleans up an executor's disk.

        What is below `tmp_path` belongs to the test, such as the files of a destination that runs in its process.
        """
        with watched() as effects:
            _live(rig, 0)
        places = [place for place in (rig.place, str(tmp_path)) if place]
        outside = {path for path in effects.changed if not any(place in path for place in places)}

        def left() -> list[str]:
            return sorted(path for path in outside if os.path.exists(path) and not path.startswith("/dev/"))

        until(lambda: not left(), within_s=settle_s)
        assert not left(), f"a sink was closed and its temporary files are left: {left()}"

    def test_nothing_is_printed(self, rig: SinkRig, capfd: pytest.CaptureFixture[str]) -> None:
        """A sink reports through `logging` and writes nothing to standard output or standard error."""
        _live(rig, 0)
        printed = "".join(capfd.readouterr())
        assert not printed, f"a sink must print nothing, but it printed {printed[:300]!r}"


def _growth(rig: SinkRig, count: Callable[[], int], settle_s: float, allowed: int = 0) -> int:
    """Return how much *count* grows from one closed sink to several, when it has had time to fall again."""
    start = count()
    _live(rig, 0)
    until(lambda: count() <= start, within_s=settle_s / 4)  # what is still ending must not count as the first sink's
    before = count()
    for number in range(1, 1 + _LIVES):
        _live(rig, number)
    until(lambda: count() < before + _LIVES + allowed, within_s=settle_s)
    return count() - before


def _live(rig: SinkRig, number: int) -> None:
    """Open and close a sink and a resolved sink."""
    rig.write(versions(range(3), at=100 * number), step=number)
    rig.resolve(Timestamp(AT.wall + 100 * number + 50))


class Destination:
    """Promises of Destination: `check`, `prepare` and `topic`."""

    def test_check_accepts_a_usable_destination(self, fresh: SinkRig) -> None:
        """`check` returns before the first `prepare` and after it. What `prepare` creates need not exist yet."""
        fresh.watch(ORDERS)
        before = failure_of(fresh.open_destination().check)
        fresh.start(ORDERS)
        for when, error in (("before", before), ("after", failure_of(fresh.open_destination().check))):
            assert error is None, f"{when} prepare, check refused a usable destination: {error!r}"

    def test_check_changes_nothing(self, fresh_readable: SinkRig) -> None:
        """`check` leaves the destination unchanged and writes nothing there, not even for a moment.

        Users run `cdc check` to find problems. Ask the destination for permissions instead of testing them with a
        write. If this is not possible, let the first write fail.
        """
        fresh_readable.watch(ORDERS)
        before = _state(fresh_readable)
        destination = fresh_readable.open_destination()
        with watched() as effects, contextlib.suppress(CdcError):
            destination.check()
        touched = [path for path in effects.changed if fresh_readable.place and fresh_readable.place in path]
        assert not touched, f"check must change nothing, but it wrote to {touched}"
        after = _state(fresh_readable)
        assert after == before, f"check must change nothing, but the destination was {before} and is {after}"

    @requires("unreachable", "the test must know a destination that cannot be used")
    def test_check_refuses_an_unusable_destination(self, fresh: SinkRig, unreachable_uri: str) -> None:
        """`check` raises ConfigError when the destination is unreachable or impossible, before a changefeed starts.

        Translate the client's errors. With a RetryableError the engine would retry forever what only a person can fix.
        """
        fresh.watch(ORDERS)
        destination = Parts(fresh.feed(uri=unreachable_uri)).open_destination()
        error = failure_of(destination.check)
        destination.close()
        assert isinstance(error, ConfigError), f"check must raise ConfigError for {unreachable_uri}, not {error!r}"

    def test_prepare_can_be_repeated(self, fresh: SinkRig) -> None:
        """`prepare` of a later run accepts what an earlier run prepared, even if no row was written since."""
        fresh.start(ORDERS, USERS)
        error = failure_of(fresh.open_destination(epoch=2).prepare)
        assert error is None, f"prepare must accept what an earlier run prepared, but it raised {error!r}"

    def test_prepare_keeps_existing_rows(self, readable: SinkRig) -> None:
        """`prepare` of a later run removes no row of an earlier one: a resumed changefeed does not start over."""
        batch = versions(range(5))
        readable.write(batch)
        with readable.closing(readable.open_destination(epoch=2)) as destination:
            destination.prepare()
        readable.assert_arrived(batch, after="a later run called prepare")

    def test_topic_connects_to_nothing(self, fresh: SinkRig) -> None:
        """`topic` and `payload` use names and options only: they are called where nothing can be reached."""
        fresh.watch(ORDERS)
        destination = fresh.open_destination()
        with watched() as effects:
            destination.topic(ORDERS.name)
            destination.payload(ORDERS)
        assert str(effects) == "nothing", f"topic and payload must connect to nothing, but they {effects}"

    def test_tables_with_unusual_names_have_their_own_topics(self, fresh_readable: SinkRig) -> None:
        """Tables whose names differ in case, blanks, dots, slashes or alphabet have different topics.

        Escape what the destination does not accept, so that two names never become one topic, or refuse such tables in
        `check` with a ConfigError. Replacing every unusual character by `_` mixes the rows of two tables.
        """
        schemas = [table(name, {"id": INT8, "note": TEXT}) for name in _UNUSUAL_NAMES]
        fresh_readable.watch(*schemas)
        if isinstance(failure_of(fresh_readable.open_destination().check), ConfigError):
            return
        topics = {fresh_readable.topic(schema) for schema in schemas}
        assert len(topics) == len(schemas), f"{len(schemas)} tables share {len(topics)} topics: {sorted(topics)}"
        fresh_readable.start(*schemas)
        batches = [versions([1], schema=schema) for schema in schemas]
        for step, batch in enumerate(batches):
            fresh_readable.write(batch, step=step)
        fresh_readable.assert_arrived(*batches, after="rows of tables with unusual names were written")

    def test_full_table_names_give_different_topics(self, readable: SinkRig) -> None:
        """With the option full_table_name, tables of one name in two schemas have two topics, and rows arrive there.

        Get topic names from `context.topics(…)`, which respects the option, and not from `name.table`. The destination,
        the sink and the resolved sink must use the same function.
        """
        readable.options |= {"full_table_name": True}
        schemas = [table("orders", {"id": INT8, "note": TEXT}, schema=schema) for schema in ("public", "eu")]
        readable.start(*schemas)
        topics = [readable.topic(schema) for schema in schemas]
        assert len(set(topics)) == 2, f"with full_table_name, public.orders and eu.orders have the topics {topics}"
        batches = [versions([1], schema=schema) for schema in schemas]
        for step, batch in enumerate(batches):
            readable.write(batch, step=step)
        readable.assert_arrived(*batches, after="rows of public.orders and eu.orders were written with full_table_name")


def _state(rig: SinkRig) -> object:
    with rig.reader() as reader:
        return sorted(reader.endpoints(), key=str), sum(1 for _ in reader.read())
