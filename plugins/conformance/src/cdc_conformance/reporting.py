"""The hooks that turn pytest's reports of suites into outcomes, and keep secrets out of both."""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from cdc_conformance.components import origin_of, registration_of
from cdc_conformance.guard import waiver
from cdc_conformance.outcomes import Outcome, Proof, contract_of, outcome_of, topic_of
from cdc_conformance.people import summary_lines
from cdc_conformance.promises import suite_of
from cdc_conformance.report import Report
from cdc_core.config.resolved import Job
from cdc_core.errors import ConfigError
from cdc_core.masking import mask, secret_forms, secret_texts, uri_secrets
from cdc_core.options import describe
from cdc_core.plugins.classes import load_class
from cdc_core.plugins.host import PluginHost
from cdc_core.registrations import Registration

__all__ = ["ATTRIBUTE", "Reporting"]

ATTRIBUTE = "cdc_outcome"
"""Name of the attribute of a pytest report that holds the outcome as JSON values, so that it crosses processes."""


class Reporting:
    """A pytest plugin, one for each run; its `report` is complete when the session has finished."""

    def __init__(self, config: pytest.Config, *, path: Path | None, secrets: Collection[str], shown: bool) -> None:
        self.report = Report()
        self._config = config
        self._path = path
        self._secrets = set(secrets)
        self._shown = shown
        self._proofs: dict[str, tuple[Proof, Registration]] = {}

    @cached_property
    def _host(self) -> PluginHost:
        return PluginHost.load()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if not isinstance(item, pytest.Function) or item.cls is None:
            return report
        cls: type = item.cls
        suite = suite_of(cls)
        if suite is None:
            return report
        proof, registration = self._proof(item, cls, suite.kind)
        arguments = getattr(item, "funcargs", {})
        declared = set(arguments.get("capabilities", proof.capabilities))
        blank = Outcome(
            name=item.name,
            topic=topic_of(cls, item.originalname),
            contract=contract_of(getattr(suite, item.originalname, item.function)),
            proof=_with_capabilities(proof, declared, suite.known_capabilities),
        )
        outcome = outcome_of(report, call, waived=waiver(cls, item.originalname), blank=blank)
        self._secrets |= _secrets_in(registration, arguments)
        report = self._masked(report)
        setattr(report, ATTRIBUTE, _masked_values(outcome.to_json(), self._secrets))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        value = getattr(report, ATTRIBUTE, None)
        if value is not None:
            self.report.add(Outcome.from_json(value))

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        self.report.deselected += sum(1 for item in items if suite_of(getattr(item, "cls", None) or object))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        if self._path is not None and not hasattr(self._config, "workerinput"):  # set where pytest-xdist runs tests
            self.report.write(self._path)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._shown and self.report.outcomes():
            terminalreporter.section("promises")
            for line in summary_lines(self.report):
                terminalreporter.line(line)
            if self._path is not None:
                terminalreporter.line(f"written to {self._path}")

    def _proof(self, item: pytest.Function, cls: type, kind: str) -> tuple[Proof, Registration]:
        node = item.getparent(pytest.Class)
        suite = cls.__name__ if node is None else node.nodeid
        if suite not in self._proofs:
            registration = registration_of(cls, kind)
            proof = Proof(
                suite=suite, kind=kind, name=registration.name, origin=origin_of(kind, registration, self._host)
            )
            self._proofs[suite] = (proof, registration)
        return self._proofs[suite]

    def _masked(self, report: pytest.TestReport) -> pytest.TestReport:
        """Return *report* without any secret in what it shows."""
        if not self._secrets or (report.passed and not report.sections):
            return report
        hook = self._config.hook
        values = hook.pytest_report_to_serializable(config=self._config, report=report)
        masked: pytest.TestReport = hook.pytest_report_from_serializable(
            config=self._config, data=_masked_values(values, self._secrets)
        )
        return masked


def _with_capabilities(proof: Proof, declared: Collection[str], known: Mapping[str, str]) -> Proof:
    return Proof(
        suite=proof.suite,
        kind=proof.kind,
        name=proof.name,
        origin=proof.origin,
        capabilities=tuple(sorted(declared)),
        undeclared=tuple(sorted(set(known) - set(declared))),
    )


def _secrets_in(registration: Registration, arguments: Mapping[str, Any]) -> frozenset[str]:
    """Return the secrets among the fixtures of a test, by what its component declares and by the look of them."""
    declared = _declared_secrets(registration)
    found: set[str] = set()
    for value in arguments.values():
        if isinstance(value, str) and "://" in value:
            found |= uri_secrets(value)
        elif isinstance(value, Job):
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
    except (ConfigError, TypeError):  # the suite says what is wrong with the options class
        return frozenset()


def _masked_values(value: Any, secrets: Collection[str]) -> Any:
    if isinstance(value, str):
        return mask(value, secrets)
    if isinstance(value, Mapping):
        return {name: _masked_values(entry, secrets) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_masked_values(entry, secrets) for entry in value)
    return value
