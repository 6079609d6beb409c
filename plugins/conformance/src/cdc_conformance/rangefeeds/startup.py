"""Promises about what happens before the first step: checks, schemas, options, and nothing unasked."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

import pytest

from cdc_conformance.promises import requires
from cdc_conformance.rangefeeds.resources import Resources
from cdc_conformance.rangefeeds.suite import MakeJob, OpenFeed, RangefeedSuite
from cdc_conformance.workload import Workload
from cdc_core import ConfigError, Kind, RangefeedRegistration
from cdc_core.options import describe
from cdc_core.plugins.classes import load_class

__all__ = ["SettingUp"]


class SettingUp(RangefeedSuite):
    def test_the_constructor_touches_nothing(self, make_job: MakeJob) -> None:
        """A new instance has opened no file or connection and started no thread.

        Instances are made in every process, often only to be asked for something that needs no connection, and not all
        of them are ever closed.
        """
        job = make_job()
        job.open_rangefeed().close()  # whatever is imported for it
        before = Resources.now()
        instances = [job.open_rangefeed() for _ in range(3)]
        more = before.more()
        for instance in instances:
            instance.close()
        assert not more, f"the constructor left open: {more}"

    @requires("inspection", "it must be seen what was created")
    def test_check_changes_nothing(
        self, workload: Workload, open_feed: OpenFeed, created: Callable[[], object]
    ) -> None:
        """`check` finds nothing wrong with a source that is right, and leaves it as it was.

        `cdc check` is for people who only want to know.
        """
        workload.fill(workload.tables[0], 3)
        rows, before = dict(workload.writer.rows(workload.tables[0])), created()
        feed = open_feed()
        feed.driver.check()
        feed.driver.schemas()
        assert created() == before, f"after check() {created()} is there, before it was {before}"
        assert dict(workload.writer.rows(workload.tables[0])) == rows

    def test_check_names_a_table_that_is_missing(
        self, workload: Workload, make_job: MakeJob, missing_table: str
    ) -> None:
        """A table that is not there is a ConfigError of one sentence that names it.

        Nobody can see from a stack trace which of forty tables was misspelt.
        """
        rangefeed = make_job(workload.tables[0], missing_table).open_rangefeed()
        try:
            with pytest.raises(ConfigError) as raised:
                rangefeed.check()
        finally:
            rangefeed.close()
        _assert_sentence(raised.value)
        assert missing_table in str(raised.value), f"the error does not name {missing_table}: {raised.value}"

    @requires("unreachable", "there must be a place where nobody answers")
    def test_check_names_a_source_that_is_out_of_reach(self, make_job: MakeJob, unreachable_uri: str) -> None:
        """A source that nobody answers at is a ConfigError of one sentence, within seconds.

        Not an error of the client library: `cdc check` prints a ConfigError, and a stack trace for anything else.
        """
        rangefeed = make_job(uri=unreachable_uri).open_rangefeed()
        try:
            with pytest.raises(ConfigError) as raised:
                rangefeed.check()
        except Exception as error:
            pytest.fail(f"should be a ConfigError, not {type(error).__name__}: {error}")
        finally:
            rangefeed.close()
        _assert_sentence(raised.value)

    def test_schemas_describe_the_tables(self, workload: Workload, open_feed: OpenFeed) -> None:
        """`schemas` gives each watched table once, with its columns in order, what they hold, and its key.

        Topics, encoders and sinks are made ready from it before the first row.
        """
        feed = open_feed()
        feed.driver.check()
        schemas = {schema.name.table: schema for schema in feed.driver.schemas()}
        assert len(schemas) == len(feed.driver.schemas()) == len(workload.tables)
        for table in workload.tables:
            schema = schemas.get(table.rpartition(".")[2].strip('"'))
            assert schema is not None, f"there is no schema of {table}, only of {sorted(schemas)}"
            columns = [(column.name, column.type.kind) for column in schema.columns]
            expected = [("id", Kind.INT), ("n", Kind.INT), ("note", Kind.STRING)]
            assert columns == expected, f"the columns of {table} are {expected}, not {columns}"
            assert schema.primary_key == ("id",), f"the key of {table} is (id), not {schema.primary_key}"
            assert schema.version >= 1, f"versions of {table} count from 1, not {schema.version}"

    def test_options_are_documented(self, registration: RangefeedRegistration) -> None:
        """Every option says in a sentence what it does.

        The README's table, `cdc plugins` and the errors for wrong values are made from it.
        """
        options = load_class(registration.options, owner=f"rangefeed '{registration.name}'")
        for option in describe(options):
            assert option.doc.strip().endswith("."), f"option '{option.name}' is not documented: {option.doc!r}"

    @requires("secret", "there must be something to hide")
    def test_secrets_are_masked(
        self, workload: Workload, open_feed: OpenFeed, secret: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """No secret of the URI is in the `repr` of an instance, or in what it logs, at whatever level.

        Logs and stack traces are copied into tickets.
        """
        workload.fill(workload.tables[0], 3)
        with caplog.at_level(logging.DEBUG):
            feed = open_feed()
            feed.start()
            feed.scan()
            workload.put(workload.tables[0], 1)
            feed.catch_up()
        for instance in (feed.driver, feed.planner, feed.executor, feed.coordinator):
            assert secret not in repr(instance), "a secret is in the repr of the rangefeed"
        logged = next((record for record in caplog.records if secret in record.getMessage()), None)
        assert logged is None, f"a secret was logged by {logged.name if logged else ''}"

    def test_metrics_are_finite_numbers(self, workload: Workload, open_feed: OpenFeed) -> None:
        """`metrics` gives finite numbers by name after each step, also before anything was read.

        They are shown, added to others and saved with the progress.
        """
        feed = open_feed()
        feed.start()
        for _ in range(3):
            workload.run(3)
            workload.settle()
            feed.catch_up()
            for name, value in feed.coordinator.metrics().items():
                assert isinstance(name, str), f"the name of a metric is {name!r}"
                number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
                assert number, f"metric '{name}' is no finite number: {value!r}"


def _assert_sentence(error: ConfigError) -> None:
    text = str(error)
    assert text.strip(), "the error says nothing"
    assert "\n" not in text, f"the error is more than one sentence: {text}"
