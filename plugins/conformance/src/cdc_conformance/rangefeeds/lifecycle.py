"""Promises about what happens before the first step, and about `close`, `drop` and `created`."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import pytest

from cdc_conformance.promises import does_not_apply, requires
from cdc_conformance.rangefeeds.driver import Feed, Part
from cdc_conformance.rangefeeds.suite import Created, MakeChangefeed, OpenFeed, RangefeedSuite
from cdc_conformance.side_effects import Resources, failure_of
from cdc_conformance.workload import Workload
from cdc_core import ConfigError, Kind, RangefeedRegistration
from cdc_core.config.parts import Parts
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.options import describe
from cdc_core.plugins.classes import load_options


class Startup(RangefeedSuite):
    """What happens before the first step: constructors, `check`, schemas, options and secrets."""

    def test_constructors_have_no_side_effects(self, make_changefeed: MakeChangefeed) -> None:
        """The constructors of all four parts open no file or connection and start no thread.

        Every process constructs parts, some only for a method that needs no connection, and not every instance is
        closed.
        """
        changefeed = make_changefeed()
        for part, open_ in _openers(changefeed).items():
            open_().close()  # import all modules first
            before = Resources.now()
            instances = [open_() for _ in range(3)]
            more = before.more()
            for instance in instances:
                instance.close()
            assert not more, f"the constructor of the {part} left open: {more}"

    @requires("inspection", "the test must be able to list what was created")
    def test_check_changes_nothing(self, workload: Workload, open_feed: OpenFeed, created: Created) -> None:
        """`check` accepts a source that is set up correctly, and leaves it unchanged.

        Users run `cdc check` to find problems, not to change anything.
        """
        workload.fill(workload.tables[0], 3)
        rows, before = dict(workload.writer.rows(workload.tables[0])), created()
        feed = open_feed()
        feed.rangefeed.check()
        feed.rangefeed.schemas()
        assert created() == before, f"check() changed the source from {before} to {created()}"
        assert dict(workload.writer.rows(workload.tables[0])) == rows

    def test_check_names_a_missing_table(
        self, workload: Workload, make_changefeed: MakeChangefeed, missing_table: str
    ) -> None:
        """For a table that does not exist, `check` raises a ConfigError of one sentence with the table's name.

        A stack trace does not show which of forty tables was misspelled.
        """
        rangefeed = Parts(make_changefeed(workload.tables[0], missing_table)).open_rangefeed()
        with closing(rangefeed), pytest.raises(ConfigError) as raised:
            rangefeed.check()
        _assert_sentence(raised.value)
        assert missing_table in str(raised.value), f"the error does not name {missing_table}: {raised.value}"

    @requires("unreachable", "the test needs a source that does not answer")
    def test_check_refuses_an_unreachable_source(self, make_changefeed: MakeChangefeed, unreachable_uri: str) -> None:
        """For a source that does not answer, `check` raises a ConfigError of one sentence within seconds.

        `cdc check` prints a ConfigError, but a stack trace for any other error, such as one of the client library.
        """
        rangefeed = Parts(make_changefeed(uri=unreachable_uri)).open_rangefeed()
        with closing(rangefeed):
            error = failure_of(rangefeed.check)
        assert isinstance(error, ConfigError), f"check() must raise ConfigError, not {error!r}"
        _assert_sentence(error)

    def test_schemas_describe_the_tables(self, workload: Workload, open_feed: OpenFeed) -> None:
        """`schemas` returns each watched table once, with its columns in order, their types, and the primary key.

        Topics, encoders and sinks are prepared from the schemas before the first row.
        """
        feed = open_feed()
        feed.rangefeed.check()
        schemas = {schema.name.table: schema for schema in feed.rangefeed.schemas()}
        assert len(schemas) == len(feed.rangefeed.schemas()) == len(workload.tables)
        for table in workload.tables:
            schema = schemas.get(table.rpartition(".")[2].strip('"'))
            assert schema is not None, f"there is no schema of {table}, only of {sorted(schemas)}"
            columns = [(column.name, column.type.kind) for column in schema.columns]
            expected = [("id", Kind.INT), ("n", Kind.INT), ("note", Kind.STRING)]
            assert columns == expected, f"the columns of {table} are {expected}, not {columns}"
            assert schema.primary_key == ("id",), f"the primary key of {table} is (id), not {schema.primary_key}"
            assert schema.version >= 1, f"schema versions of {table} start at 1, not {schema.version}"

    def test_options_are_documented(self, registration: RangefeedRegistration) -> None:
        """The documentation of every option is at least one sentence.

        The text appears in the README's table, in `cdc options` and in errors for wrong values.
        """
        for option in describe(load_options(registration)):
            assert option.doc.strip().endswith("."), f"option '{option.name}' is not documented: {option.doc!r}"

    @requires("secret", "the source's URI must contain a secret")
    def test_secrets_are_masked(
        self, workload: Workload, open_feed: OpenFeed, secret: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """No secret of the URI appears in the `repr` of a part or in a log line of any level.

        Logs and stack traces are copied into tickets.
        """
        workload.fill(workload.tables[0], 3)
        with caplog.at_level(logging.DEBUG):
            feed = open_feed().scan()
            workload.put(workload.tables[0], 1)
            feed.catch_up()
        for part in feed.opened:
            assert secret not in repr(part), f"the repr of {type(part).__name__} contains a secret"
        logged = next((record for record in caplog.records if secret in record.getMessage()), None)
        assert logged is None, f"the logger {logged.name if logged else ''} logged a secret"

    def test_metrics_are_finite_numbers(self, workload: Workload, open_feed: OpenFeed) -> None:
        """`metrics` returns finite numbers by name after each step, also before any row was read.

        They are displayed, added to those of other changefeeds and saved with the progress.
        """
        feed = open_feed(start=True)
        for _ in range(3):
            workload.run(3, settle=True)
            feed.catch_up()
            for name, value in feed.history.metrics().items():
                assert isinstance(name, str), f"the name of a metric is {name!r}"
                number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
                assert number, f"metric '{name}' is not a finite number: {value!r}"


def _openers(changefeed: ResolvedChangefeed) -> dict[str, Callable[[], Part]]:
    of = Parts(changefeed)
    openers: list[Callable[[], Part]] = [of.open_rangefeed, of.open_planner, of.open_reader, of.open_history]
    return {open_.__name__.removeprefix("open_"): open_ for open_ in openers}


def _assert_sentence(error: ConfigError) -> None:
    text = str(error)
    assert text.strip(), "the error has no text"
    assert "\n" not in text, f"the error is more than one sentence: {text}"


class Closing(RangefeedSuite):
    """`close`, `drop` and `created`."""

    def test_close_may_be_called_twice(
        self, workload: Workload, open_feed: OpenFeed, make_changefeed: MakeChangefeed
    ) -> None:
        """`close` of each part may be called twice, and on an instance that was never used."""
        changefeed = make_changefeed()
        for open_ in _openers(changefeed).values():
            unused = open_()
            unused.close()
            unused.close()
        feed = open_feed(start=True)
        workload.run(3, settle=True)
        feed.catch_up()
        feed.close()
        feed.close()

    def test_nothing_stays_open_after_close(self, workload: Workload, open_feed: OpenFeed) -> None:
        """After `close` the process has no more files, sockets and threads than before, also after an abandoned read.

        One process runs many attempts, and servers limit the number of connections.
        """
        workload.fill(workload.tables[0], 5)

        def run() -> Feed:
            feed = open_feed().scan()
            workload.put(workload.tables[0], 1)
            plan = feed.next_plan()
            with closing(feed.parts.open_reader()) as reader:
                next(reader.read(plan.slices[0]), None)
            feed.catch_up()
            feed.close()
            return feed

        run()
        before = Resources.now()
        feed = run()
        for _ in feed.patiently(lambda: f"still open after close(): {before.more()}"):
            if not before.more():
                break

    def test_drop_may_be_repeated(self, workload: Workload, open_feed: OpenFeed) -> None:
        """`drop` may be called twice, and for a changefeed that was never started.

        An interrupted cancellation is repeated.
        """
        never = open_feed()
        never.drop()
        feed = open_feed(start=True)
        workload.run(3, settle=True)
        feed.catch_up()
        feed.close()
        feed.drop()
        feed.drop()

    @requires("inspection", "the test must be able to list what was created")
    def test_drop_removes_everything_created(self, workload: Workload, open_feed: OpenFeed, created: Created) -> None:
        """After `drop` the source is as it was before the changefeed's first start.

        A forgotten object keeps history and fills the disk of the database.
        """
        before = created()
        feed = open_feed(start=True)
        feed.step()
        workload.run(3)
        feed.step()
        assert created() != before, "a running changefeed created nothing; check that the fixture `created` sees it"
        feed.close()
        feed.drop()
        assert created() == before, f"after drop(), {created()} exists; before the start, it was {before}"

    @requires("inspection", "the test must be able to list what was created")
    def test_a_temporary_run_leaves_nothing_behind(
        self,
        registration: RangefeedRegistration,
        workload: Workload,
        open_feed: OpenFeed,
        make_changefeed: MakeChangefeed,
        created: Created,
    ) -> None:
        """With `temporary` in the context, the source is as before when the parts are closed, and no row is missing.

        `cdc watch` and `cdc preview` only read. Anything that they left behind would never be dropped.
        """
        if not registration.temporary:
            does_not_apply("the registration does not say `temporary`")
        before = created()
        workload.fill(workload.tables[0], 5)
        feed = open_feed(changefeed=replace(make_changefeed(), temporary=True)).scan()
        workload.run(10, settle=True)
        feed.catch_up()
        missing = sorted(workload.rows.keys() - {change.row_key for change in feed.changes})
        assert not missing, f"{len(missing)} rows did not arrive; the first is {missing[0]}"
        feed.close()
        assert created() == before, f"after close(), {created()} exists; before the start, it was {before}"

    def test_created_lists_the_objects_of_every_changefeed(
        self, workload: Workload, open_feed: OpenFeed, make_changefeed: MakeChangefeed
    ) -> None:
        """If `created` returns a list, it has the objects of every changefeed of the source, not only its own.

        `cdc drop --orphans` uses it to find leftovers.
        """
        with closing(Parts(make_changefeed()).open_rangefeed()) as stranger:
            before = stranger.created()
            if before is None:
                does_not_apply("the rangefeed does not list what changefeeds have created")
            open_feed(start=True)
            workload.run(3)
            listed = stranger.created() or ()
            more = {entry.name for entry in listed} - {entry.name for entry in before}
            assert more, "another changefeed has started, and created() does not list what it created"
            assert len({entry.name for entry in listed}) == len(listed), f"a name is listed twice: {listed}"
