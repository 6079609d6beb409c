"""Connectors and their tasks while they run: status, restart, pause, resume, stop."""

from __future__ import annotations

from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cdc_core.web.connect.connector import Connector, find_connector
from cdc_core.web.deployment import deployment_of
from cdc_core.web.endpoint import Refusal
from cdc_core.web.requests import asked_by, flag, name_of

__all__ = ["pause", "restart", "restart_task", "resume", "status", "stop", "task_status", "tasks"]


def status(request: Request) -> Response:
    found = find_connector(deployment_of(request), name_of(request), missing="No status found for connector {}")
    return JSONResponse(found.status())


def restart(request: Request) -> Response:
    """Restart the connector. Its task is the same run, and restarts with it."""
    name = name_of(request)
    connector = find_connector(deployment_of(request), name, missing="Unknown connector: {}")
    with_tasks, only_failed = flag(request, "includeTasks"), flag(request, "onlyFailed")
    failed = connector.state == "FAILED"
    if failed or not only_failed:
        _restart(request, connector)
    if not with_tasks and not only_failed:
        return Response(status_code=204)
    running = connector.state in ("RUNNING", "RESTARTING")
    shown = "RESTARTING" if failed or (running and not only_failed) else None
    return JSONResponse(connector.status(connector=shown, task=shown if with_tasks else None), status_code=202)


def pause(request: Request) -> Response:
    return _rest(request, "pause", 202)


def stop(request: Request) -> Response:
    return _rest(request, "stop", 204)


def resume(request: Request) -> Response:
    deployment, name = deployment_of(request), name_of(request)
    find_connector(deployment, name, missing="Unknown connector {}")
    deployment.changefeeds.resume(name)
    return Response(status_code=202)


def tasks(request: Request) -> Response:
    connector = find_connector(deployment_of(request), name_of(request))
    config = {"task.class": connector.config["connector.class"], **connector.config}
    found: list[dict[str, Any]] = []
    if connector.has_task:
        found.append({"id": {"connector": connector.name, "task": 0}, "config": config})
    return JSONResponse(found)


def task_status(request: Request) -> Response:
    name, task = name_of(request), request.path_params["task"]
    missing = f"No status found for task {name}-{task}"
    found = find_connector(deployment_of(request), name, missing=missing.replace("{", "{{").replace("}", "}}"))
    shown = found.status()["tasks"]
    if task != "0" or not shown:
        raise Refusal(404, missing)
    return JSONResponse(shown[0])


def restart_task(request: Request) -> Response:
    name, task = name_of(request), request.path_params["task"]
    connector = find_connector(deployment_of(request), name, missing="Unknown connector: {}")
    if task != "0" or not connector.has_task:
        raise Refusal(404, f"Unknown task: {name}-{task}")
    _restart(request, connector)
    return Response(status_code=204)


def _rest(request: Request, kind: Literal["pause", "stop"], answer: int) -> Response:
    deployment, name = deployment_of(request), name_of(request)
    find_connector(deployment, name, missing="Unknown connector {}")
    deployment.changefeeds.pause(name, asked_by(request, kind), kind)
    return Response(status_code=answer)


def _restart(request: Request, connector: Connector) -> None:
    deployment_of(request).changefeeds.restart(connector.name, asked_by(request, "a restart"))
