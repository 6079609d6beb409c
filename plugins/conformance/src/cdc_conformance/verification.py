"""One run of `cdc verify`: pytest with promises in words in place of its own output."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cdc_conformance.components import suite_for
from cdc_conformance.given import UNIQUE, Given
from cdc_conformance.installed import FILE, GIVEN
from cdc_conformance.limits import time_limit
from cdc_conformance.promises import promises_of, words
from cdc_conformance.report import Outcome, Report, alike, failure_lines, outcome_line, summary_lines
from cdc_conformance.reporting import NAME, Reporting
from cdc_core.errors import ConfigError
from cdc_core.masking import mask, masked_uri
from cdc_core.plugins.host import PluginHost

_UNSET = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTEST_THEME")
"""Environment variables that are meant for the user's own tests."""


class Verification:
    """Tests every promise of one component and reports the outcomes. For one use.

    It ignores the pytest configuration of the working directory and other pytest plugins, and writes nothing there.
    """

    def __init__(self, given: Given, *, say: Callable[[str], None], chosen: str, timeout_s: float) -> None:
        self.report = Report()
        self._given = given
        self._say = say
        self._chosen = chosen
        self._timeout_s = timeout_s
        self._host = PluginHost.load()
        self._secrets = given.secrets(self._host)
        self._refusal: ConfigError | None = None
        self._topic = ""
        self._collection: list[str] = []

    def run(self) -> int:
        """Return the exit status: 0 if no promise is broken, else 1. Raises: ConfigError, before any test."""
        arguments = [
            *("--disable-plugin-autoload", "-p", "cdc_conformance.pytest_plugin", "-p", "no:cacheprovider"),
            *("-c", os.devnull, "--rootdir", str(FILE.parent), "--noconftest", "--strict-markers"),
            *(["-k", self._chosen] if self._chosen else []),
            str(FILE),
        ]
        with _without_user_settings():
            status = pytest.main(arguments, plugins=[self])
        if self._refusal is not None:
            raise self._refusal
        if status == pytest.ExitCode.NO_TESTS_COLLECTED:
            raise ConfigError(f"no promise of a {self._given.kind} matches -k {shlex.quote(self._chosen)}")
        if status == pytest.ExitCode.USAGE_ERROR:
            raise ConfigError(f"-k {shlex.quote(self._chosen)} is not a valid expression")
        if status == pytest.ExitCode.INTERRUPTED and not self._collection:
            raise KeyboardInterrupt
        return 0 if status == pytest.ExitCode.OK else 1

    # hooks

    def pytest_load_initial_conftests(self, early_config: pytest.Config) -> None:
        early_config.stash[GIVEN] = self._given

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        config.pluginmanager.unregister(name="terminalreporter")
        reporting = config.pluginmanager.get_plugin(NAME)
        assert isinstance(reporting, Reporting)
        self.report = reporting.report

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        from cdc_conformance.preflight import try_out  # imports suites: only pytest rewrites their assertions

        try:
            self._given.check(self._host, suite_for(self._given.kind))
            try_out(self._given, self._host)
        except ConfigError as error:
            self._refusal = type(error)(mask(str(error), self._secrets))
            pytest.exit("refused", returncode=2)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        order = {name: number for number, name in enumerate(promises_of(suite_for(self._given.kind)))}
        items.sort(key=lambda item: order.get(item.name.partition("[")[0], len(order)))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if session.items:
            self._say(self._announcement())

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._collection.append(str(report.longrepr))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None]:
        with time_limit(self._timeout_s, what=f"setting up '{words(item.name)}'"):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None]:
        with time_limit(self._timeout_s, what=f"'{words(item.name)}'"):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None]:
        with time_limit(self._timeout_s, what=f"cleaning up after '{words(item.name)}'"):
            return (yield)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            outcome = self.report.outcomes()[-1]
            if outcome.topic != self._topic:
                self._topic = outcome.topic
                self._say(f"\n{outcome.topic}")
            self._say(f"  {outcome_line(outcome)}")

    def pytest_internalerror(self, excrepr: object) -> None:
        self._say(mask(str(excrepr), self._secrets))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        for problem in self._collection:
            self._say(mask(problem, self._secrets))
        for same in alike(self.report.outcomes()):
            self._say("")
            for line in failure_lines(same[0], again=self._again(same[0])):
                self._say(line)
            if same[1:]:
                self._say("  these were not tested because of the same error:")
                for outcome in same[1:]:
                    self._say(f"    {words(outcome.name)}")
        if any(outcome.outcome != "not_declared" for outcome in self.report.outcomes()):
            self._say("")
            for line in summary_lines(self.report):
                self._say(line)

    # output

    def _announcement(self) -> str:
        given = self._given
        if given.kind == "encoder":
            return f"encoder '{given.name}': writes nothing"
        where = self._shown(given.uri)
        if given.kind == "rangefeed":
            return f"rangefeed '{given.name}': creates, changes and drops its own tables at {where}"
        return f"sink '{given.name}': writes to {where} with another word for {UNIQUE} each time, and deletes nothing"

    def _again(self, outcome: Outcome) -> str:
        given = self._given
        parts = ["cdc", "verify", given.kind, given.name]
        if given.uri:
            parts += ["--uri", self._shown(given.uri)]
        if given.format not in ("", "json"):
            parts += ["--format", given.format]
        for name, value in given.options.items():
            parts += ["--option", mask(f"{name}={value}", self._secrets)]
        for name in sorted(given.capabilities):
            parts += ["--capability", name]
        return shlex.join([*parts, "-k", outcome.name.partition("[")[0]])

    def _shown(self, uri: str) -> str:
        return mask(masked_uri(uri), self._secrets)


@contextmanager
def _without_user_settings() -> Iterator[None]:
    before = {name: os.environ.pop(name) for name in _UNSET if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(before)


def writable(path: Path) -> None:
    """Return if a report can be written to *path*. Raises: ConfigError."""
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"--report {path}: the directory {path.absolute().parent} does not exist")
