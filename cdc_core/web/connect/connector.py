"""A connector as requests see it: a job that is not deleted, its configuration and its state."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from starlette.requests import Request

from cdc_core.config.flat import flat
from cdc_core.masking import MASK, is_secret_name, masked_uri
from cdc_core.store.job_values import JobRecord
from cdc_core.store.reports import Report
from cdc_core.store.verbs import UnknownError
from cdc_core.web.config_keys import CLASS
from cdc_core.web.endpoint import Refusal
from cdc_core.web.requests import Deployment, deployment_of, name_of

TYPE = "source"
VERSION = version("cdc-core")


DELETED = ("cancel-requested", "reverting", "canceled")


def is_deleted(job: JobRecord) -> bool:
    """Return whether the job is canceled, or will be: for a client of Kafka Connect it does not exist anymore."""
    return job.state in DELETED


@dataclass(frozen=True, slots=True)
class Connector:
    """The *job* that *report* is about, as a connector."""

    report: Report
    job: JobRecord

    @property
    def name(self) -> str:
        return self.job.name

    @property
    def definition(self) -> Mapping[str, Any]:
        """The definition that was given last, even if it does not run yet."""
        return self.report.known.definition if self.job.pending is None else self.job.pending.definition

    @property
    def config(self) -> dict[str, str]:
        """The configuration. It holds references and no secrets: the store has none."""
        written = self.definition.get("written") or self.definition
        return {"connector.class": CLASS, "name": self.name, **flat(written)}

    @property
    def state(self) -> str:
        """One of Kafka Connect's states."""
        job = self.job
        if job.state in ("running", "waiting"):
            return "UNASSIGNED" if job.node is None else "RUNNING"
        if job.state == "pause-requested":
            return "RESTARTING" if job.paused_for == "restart" else "RUNNING"
        if job.state == "paused":
            return {None: "PAUSED", "stop": "STOPPED", "restart": "RESTARTING", "error": "FAILED"}[job.paused_for]
        return "STOPPED" if job.state == "succeeded" else "FAILED"

    @property
    def has_task(self) -> bool:
        return self.state != "STOPPED"

    def info(self) -> dict[str, Any]:
        """Return Kafka Connect's ConnectorInfo."""
        tasks = [{"connector": self.name, "task": 0}] if self.has_task else []
        return {"name": self.name, "config": self.config, "tasks": tasks, "type": TYPE}

    def status(self, *, connector: str | None = None, task: str | None = None) -> dict[str, Any]:
        """Return Kafka Connect's ConnectorStateInfo, with other states where they are given."""
        tasks = [{"id": 0, **self._state(task)}] if self.has_task else []
        return {"name": self.name, "connector": self._state(connector), "tasks": tasks, "type": TYPE}

    def _state(self, state: str | None) -> dict[str, Any]:
        found = {"state": state or self.state, "worker_id": self.job.node or "", "version": VERSION}
        if self.state == "FAILED":
            return {**found, "trace": self.job.reason or "the job has failed"}
        retrying = self.report.retrying
        return found if retrying is None or self.report.state != "retrying" else {**found, "trace": retrying.text}


def find_connector(deployment: Deployment, name: str, *, missing: str = "Connector {} not found") -> Connector:
    """Return the connector. Raises: Refusal with the text *missing*, which has the name in place of `{}`."""
    job = deployment.changefeeds.find_job(name)
    if job is not None and not is_deleted(job):
        with suppress(UnknownError):  # it was forgotten meanwhile
            return Connector(deployment.changefeeds.job_report(job), job)
    raise Refusal(404, missing.replace("{}", name, 1))


def connector_of(request: Request, *, missing: str = "Connector {} not found") -> Connector:
    """Return the connector in the path. Raises: Refusal with the text *missing*."""
    return find_connector(deployment_of(request), name_of(request), missing=missing)


def unknown_class(name: str) -> Refusal:
    """Return the refusal of a class that is not ours, in the words by which clients know it."""
    return Refusal(
        400,
        f"Failed to find any class that implements Connector and which name matches {name}, available connectors are:"
        f" PluginDesc{{klass=class {CLASS}, name='{CLASS}', version='{VERSION}', encodedVersion={VERSION}, type={TYPE},"
        f" typeName='{TYPE}'}}",
    )


def all_connectors(deployment: Deployment) -> list[Connector]:
    """Return all connectors by name, in a few transactions."""
    found = ((report, report.job) for report in deployment.changefeeds.job_reports())
    return [Connector(report, job) for report, job in found if job is not None and not is_deleted(job)]


def with_kept_secrets(config: Mapping[str, str | None], before: Mapping[str, str]) -> dict[str, str | None]:
    """Return *config* with what *before* has where a client has masked it and sends it back."""
    return {
        key: before[key] if value is not None and key in before and value in _masked(key, before[key]) else value
        for key, value in config.items()
    }


def _masked(key: str, text: str) -> tuple[str, ...]:
    masked = masked_uri(text) if "://" in text else text
    return tuple(each for each in (MASK if is_secret_name(key) else "", masked) if MASK in each)
