"""What the driver asks of a destination before a run."""

from __future__ import annotations

import contextlib

from cdc_conformance.promises import requires
from cdc_conformance.rows import INT8, TEXT, table
from cdc_conformance.side_effects import failure_of, watched
from cdc_conformance.sinks.rig import SinkRig
from cdc_conformance.sinks.tables import ORDERS, USERS, versions
from cdc_core import CdcError, ConfigError

__all__ = ["Destination"]

_UNUSUAL_NAMES = (
    *("Orders", "orders", "or ders", "or-ders", "or_ders", "or.ders", "or/ders", "or%2Fders"),
    *("ördêrs", "订单"),
)


class Destination:
    """Promises of Destination: `check`, `prepare` and `topic`."""

    def test_check_accepts_a_usable_destination(self, rig: SinkRig) -> None:
        """`check` returns before the first `prepare` and after it. What `prepare` creates need not exist yet."""
        rig.watch(ORDERS)
        before = failure_of(rig.open_destination().check)
        rig.start(ORDERS)
        for when, error in (("before", before), ("after", failure_of(rig.open_destination().check))):
            assert error is None, f"{when} prepare, check refused a usable destination: {error!r}"

    def test_check_changes_nothing(self, readable: SinkRig) -> None:
        """`check` leaves the destination unchanged and writes nothing there, not even for a moment.

        People run `cdc check` to look. Ask the destination for permissions instead of testing them with a write. Where
        that is not possible, let the first write fail.
        """
        readable.watch(ORDERS)
        before = _state(readable)
        destination = readable.open_destination()
        with watched() as effects, contextlib.suppress(CdcError):
            destination.check()
        touched = [path for path in effects.changed if readable.place and readable.place in path]
        assert not touched, f"check must change nothing, but it wrote to {touched}"
        after = _state(readable)
        assert after == before, f"check must change nothing, but the destination was {before} and is {after}"

    @requires("unreachable", "the test must know a destination that cannot be used")
    def test_check_refuses_an_unusable_destination(self, rig: SinkRig, unreachable_uri: str) -> None:
        """`check` raises ConfigError when the destination is out of reach or impossible, before a changefeed starts.

        Translate the client's errors. With a RetryableError the engine would retry for ever what only a person can fix.
        """
        rig.watch(ORDERS)
        destination = rig.feed(uri=unreachable_uri).open_destination()
        error = failure_of(destination.check)
        destination.close()
        assert isinstance(error, ConfigError), f"check must raise ConfigError for {unreachable_uri}, not {error!r}"

    def test_prepare_can_be_repeated(self, rig: SinkRig) -> None:
        """`prepare` of a later run accepts what an earlier run prepared, even if no row was written since."""
        rig.start(ORDERS, USERS)
        error = failure_of(rig.open_destination(epoch=2).prepare)
        assert error is None, f"prepare must accept what an earlier run prepared, but it raised {error!r}"

    def test_prepare_keeps_existing_rows(self, readable: SinkRig) -> None:
        """`prepare` of a later run removes no row of an earlier one: a resumed changefeed does not start over."""
        readable.start(ORDERS)
        batch = versions(range(5))
        readable.write(batch)
        with readable.closing(readable.open_destination(epoch=2)) as destination:
            destination.prepare()
        readable.assert_arrived(batch, after="a later run called prepare")

    def test_topic_connects_to_nothing(self, rig: SinkRig) -> None:
        """`topic` and `payload` use names and options only: they are called where nothing can be reached."""
        rig.watch(ORDERS)
        destination = rig.open_destination()
        with watched() as effects:
            destination.topic(ORDERS.name)
            destination.payload(ORDERS)
        assert str(effects) == "nothing", f"topic and payload must connect to nothing, but they {effects}"

    def test_tables_with_unusual_names_have_their_own_topics(self, readable: SinkRig) -> None:
        """Tables whose names differ in case, blanks, dots, slashes or alphabet have different topics.

        Escape what the destination does not accept, so that two names never become one topic, or refuse such tables in
        `check` with a ConfigError. Replacing every unusual character by `_` mixes the rows of two tables.
        """
        schemas = [table(name, {"id": INT8, "note": TEXT}) for name in _UNUSUAL_NAMES]
        readable.watch(*schemas)
        if isinstance(failure_of(readable.open_destination().check), ConfigError):
            return
        topics = {readable.topic(schema) for schema in schemas}
        assert len(topics) == len(schemas), f"{len(schemas)} tables share {len(topics)} topics: {sorted(topics)}"
        readable.start(*schemas)
        batches = [versions([1], schema=schema) for schema in schemas]
        for step, batch in enumerate(batches):
            readable.write(batch, step=step)
        readable.assert_arrived(*batches, after="rows of tables with unusual names were written")

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
