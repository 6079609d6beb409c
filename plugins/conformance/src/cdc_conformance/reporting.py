"""The hooks that turn pytest's reports of suites into outcomes, and mask secrets in both."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from cdc_conformance.components import installed, listed, registration_of
from cdc_conformance.guard import waiver
from cdc_conformance.promises import suite_of
from cdc_conformance.report import Outcome, Proof, Report, outcome_of, summary_lines, topic_of
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.errors import ConfigError
from cdc_core.masking import mask, secret_forms, secret_texts, uri_secrets
from cdc_core.options import describe
from cdc_core.plugins.classes import load_class
from cdc_core.registrations import Registration

NAME = "cdc-reporting"
"""The name under which a run's `Reporting` is registered with pytest."""
ATTRIBUTE = "cdc_outcome"
"""The attribute of a pytest report that holds the outcome as JSON values, which can be sent to another process."""
NOT_DECLARED = pytest.StashKey[list[tuple[pytest.Function, str]]]()
"""Where a run's configuration keeps the tests of promises that are not declared, each with its reason."""
_SENT = "cdc_not_declared"
"""The same as JSON values, in the output of a pytest-xdist worker."""


class Reporting:
    """A pytest plugin for one run. Its `report` is complete when the session has finished."""

    def __init__(self, config: pytest.Config, *, path: Path | None, secrets: Collection[str], shown: bool) -> None:
        self.report = Report()
        self._config = config
        self._path = path
        self._secrets = set(secrets)
        self._shown = shown
        self._proofs: dict[str, tuple[Proof, Registration]] = {}
        self._not_declared: list[Outcome] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        blank = self._blank(item) if isinstance(item, pytest.Function) else None
        if blank is None or not isinstance(item, pytest.Function) or item.cls is None:
            return report
        outcome = outcome_of(report, call, waived=waiver(item.cls, item.originalname), blank=blank)
        self._secrets |= _secrets_in(self._proof(item, item.cls, blank.proof.kind)[1], getattr(item, "funcargs", {}))
        report = self._masked(report)
        setattr(report, ATTRIBUTE, _masked_values(asdict(outcome), self._secrets))
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Count promises that do not apply apart from skipped tests, so that `-ra` does not list them."""
        outcome = getattr(report, ATTRIBUTE, None)
        if outcome is None or outcome["outcome"] != "not_declared":
            return None
        return "not declared", "n", "NOT DECLARED"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        value = getattr(report, ATTRIBUTE, None)
        if value is not None:
            self.report.add(Outcome.from_json(value))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        tested = {item.getparent(pytest.Class) for item in session.items}
        for item, reason in self._config.stash[NOT_DECLARED]:
            blank = self._blank(item) if item.getparent(pytest.Class) in tested else None
            if blank is not None:
                self._not_declared.append(replace(blank, outcome="not_declared", reason=reason))
        for outcome in self._not_declared:
            self.report.add(outcome)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add what a pytest-xdist worker collected: the controller itself collects nothing."""
        for value in getattr(node, "workeroutput", {}).get(_SENT, ()):
            self.report.add(Outcome.from_json(value))

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        self.report.deselected += sum(1 for item in items if suite_of(getattr(item, "cls", None) or object))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        if hasattr(self._config, "workeroutput"):  # this is a worker of pytest-xdist
            self._config.workeroutput[_SENT] = [asdict(outcome) for outcome in self._not_declared]
        elif self._path is not None:
            self.report.write(self._path)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._shown and self.report.outcomes():
            terminalreporter.section("promises")
            for line in summary_lines(self.report):
                terminalreporter.line(line)
            if self._path is not None:
                terminalreporter.line(f"written to {self._path}")

    def _blank(self, item: pytest.Function) -> Outcome | None:
        """Return the outcome of a promise that was not tested yet; None for a test that is not in a suite."""
        suite = None if item.cls is None else suite_of(item.cls)
        if suite is None or item.cls is None:
            return None
        return Outcome(
            name=item.name,
            topic=topic_of(item.cls, item.originalname),
            contract=inspect.getdoc(getattr(suite, item.originalname, item.function)) or "",
            proof=self._proof(item, item.cls, suite.kind)[0],
        )

    def _proof(self, item: pytest.Function, cls: type[Any], kind: str) -> tuple[Proof, Registration]:
        node = item.getparent(pytest.Class)
        suite = cls.__name__ if node is None else node.nodeid
        if suite not in self._proofs:
            registration = registration_of(cls, kind)
            origin = listed(kind, registration, installed())
            proof = Proof(
                suite=suite,
                kind=kind,
                name=registration.name,
                distribution=None if origin is None else origin.distribution,
                version=None if origin is None else origin.version,
                capabilities=tuple(sorted(cls.capabilities)),
                undeclared=tuple(sorted(set(cls.known_capabilities) - set(cls.capabilities))),
            )
            self._proofs[suite] = (proof, registration)
        return self._proofs[suite]

    def _masked(self, report: pytest.TestReport) -> pytest.TestReport:
        """Return *report* with all secrets masked."""
        if not self._secrets or (report.passed and not report.sections):
            return report
        hook = self._config.hook
        values = hook.pytest_report_to_serializable(config=self._config, report=report)
        masked: pytest.TestReport = hook.pytest_report_from_serializable(
            config=self._config, data=_masked_values(values, self._secrets)
        )
        return masked


def _secrets_in(registration: Registration, arguments: Mapping[str, Any]) -> frozenset[str]:
    """Return the secrets in the fixtures of a test: in URIs, in secret options, and in options with telling names."""
    declared = _declared_secrets(registration)
    found: set[str] = set()
    for value in arguments.values():
        if isinstance(value, str) and "://" in value:
            found |= uri_secrets(value)
        elif isinstance(value, ResolvedChangefeed):
            found |= value.secrets()
        elif isinstance(value, Mapping):
            texts = {str(name): text for name, text in value.items()}
            found |= set(secret_texts(texts))
            found |= {text for name, text in texts.items() if name in declared and isinstance(text, str) and text}
    return secret_forms(found)


def _declared_secrets(registration: Registration) -> frozenset[str]:
    try:
        options = load_class(registration.options, owner=registration.name)
        return frozenset(row.name for row in describe(options) if row.secret)
    except (ConfigError, TypeError):  # a promise of the suite reports a broken options class
        return frozenset()


def _masked_values(value: Any, secrets: Collection[str]) -> Any:
    if isinstance(value, str):
        return mask(value, secrets)
    if isinstance(value, Mapping):
        return {name: _masked_values(entry, secrets) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_masked_values(entry, secrets) for entry in value)
    return value
