"""What the driver asks of a sink before a run."""

from __future__ import annotations

import contextlib

from cdc_conformance.promises import requires
from cdc_conformance.rows import INT8, TEXT, table
from cdc_conformance.sinks.rig import SinkRig
from cdc_conformance.sinks.tables import ORDERS, USERS, versions
from cdc_conformance.sinks.watching import failure_of, watched
from cdc_core import CdcError, ConfigError

__all__ = ["Destination"]

_ODD_NAMES = ("Orders", "orders", "or ders", "or-ders", "or_ders", "or.ders", "or/ders", "or%2Fders", "ördêrs", "订单")


class Destination:
    """Promises of `check`, `prepare` and `topic`."""

    def test_check_accepts_a_destination_that_can_be_used(self, rig: SinkRig) -> None:
        """`check` returns, before the first `prepare` as after it: what prepare will make need not be there yet."""
        rig.watch(ORDERS)
        before = failure_of(rig.open().check)
        rig.start(ORDERS)
        for when, error in (("before", before), ("after", failure_of(rig.open().check))):
            assert error is None, f"{when} prepare, check refused a destination that can be used: {error!r}"

    def test_check_changes_nothing(self, readable: SinkRig) -> None:
        """`check` leaves the destination as it was and writes nothing there, not even for a moment.

        `cdc check` is run by people who only look. Ask for rights instead of trying them out; where that cannot be,
        let the first write fail.
        """
        rig = readable
        rig.watch(ORDERS)
        before = _state(rig)
        sink = rig.open()
        with watched() as effects, contextlib.suppress(CdcError):
            sink.check()
        touched = [path for path in effects.changed if rig.place and rig.place in path]
        assert not touched, f"check must change nothing, but it wrote to {touched}"
        after = _state(rig)
        assert after == before, f"check must change nothing, but the destination was {before} and is {after}"

    @requires("unreachable", "somebody must say which destination cannot be used")
    def test_check_refuses_a_destination_that_cannot_be_used(self, rig: SinkRig, unreachable_uri: str) -> None:
        """`check` raises ConfigError when the destination is out of reach or impossible, before a changefeed starts.

        Translate what the client raises; a RetryableError would have the engine try for ever what only a person mends.
        """
        rig.watch(ORDERS)
        sink = rig.job(uri=unreachable_uri).open_sink()
        error = failure_of(sink.check)
        sink.close()
        assert isinstance(error, ConfigError), f"check must raise ConfigError for {unreachable_uri}, not {error!r}"

    def test_prepare_can_be_repeated(self, rig: SinkRig) -> None:
        """A later run's `prepare` finds what the run before prepared, though no row was written since, and goes on."""
        rig.start(ORDERS, USERS)
        driver = rig.open(epoch=2)
        error = failure_of(driver.prepare)
        assert error is None, f"prepare must accept what an earlier run prepared, but it raised {error!r}"

    def test_prepare_keeps_what_is_there(self, readable: SinkRig) -> None:
        """A later run's `prepare` removes no row of an earlier one: a changefeed that resumes does not start over."""
        rig = readable
        rig.start(ORDERS)
        batch = versions(range(5))
        rig.write(batch)
        driver = rig.open(epoch=2)
        driver.prepare()
        rig.close(driver)
        missing = rig.read().missing(rig.rows(batch))
        assert not missing, f"prepare must keep the rows of earlier runs, but {missing}"

    def test_topic_connects_to_nothing(self, rig: SinkRig) -> None:
        """`topic` is computed from names and options alone: it is asked where nothing can be connected to."""
        rig.watch(ORDERS)
        sink = rig.open()
        with watched() as effects:
            sink.topic(ORDERS.name)
            sink.payload(ORDERS)
        assert str(effects) == "nothing", f"topic and payload must connect to nothing, but they {effects}"

    def test_tables_with_odd_names_stay_apart(self, readable: SinkRig) -> None:
        """Tables whose names differ in case, blanks, dots, slashes or alphabet have topics of their own.

        A sink escapes what its destination cannot take, so that two names never become one; or `check` refuses such
        tables by a ConfigError. Replacing every odd character by `_` mixes the rows of two tables.
        """
        rig = readable
        schemas = [table(name, {"id": INT8, "note": TEXT}) for name in _ODD_NAMES]
        rig.watch(*schemas)
        if isinstance(failure_of(rig.open().check), ConfigError):
            return
        topics = {rig.topic(schema) for schema in schemas}
        assert len(topics) == len(schemas), f"{len(schemas)} tables share {len(topics)} topics: {sorted(topics)}"
        rig.start(*schemas)
        batches = [versions([1], schema=schema) for schema in schemas]
        for step, batch in enumerate(batches):
            rig.write(batch, step=step)
        missing = rig.read().missing(rig.rows(*batches))
        assert not missing, f"rows of tables with odd names must arrive at their own topics, but {missing}"

    def test_tables_of_one_name_stay_apart_by_their_full_names(self, rig: SinkRig) -> None:
        """With the option full_table_name, tables of one name in two schemas have two topics.

        Make topics with `context.topics(…)`, which knows the option, and not from `name.table`.
        """
        schemas = [table("orders", {"id": INT8}, schema=schema) for schema in ("public", "eu")]
        rig.watch(*schemas)
        sink = rig.job(full_table_name=True).open_sink()
        topics = [sink.topic(schema.name) for schema in schemas]
        assert len(set(topics)) == 2, f"public.orders and eu.orders have the topics {topics}, with full_table_name"


def _state(rig: SinkRig) -> object:
    with rig.reader() as reader:
        return sorted(reader.endpoints(), key=str), sum(1 for _ in reader.read())
