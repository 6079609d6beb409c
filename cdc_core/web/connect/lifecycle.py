"""Connectors and their tasks while they run: status, restart, pause, resume, stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cdc_core.web.connect.connector import Connector, connector_of
from cdc_core.web.endpoint import Answer, Endpoints, Handler, Refusal, Role, array, flag_parameter, ref
from cdc_core.web.requests import asked_by, deployment_of, flag, name_of

ENDPOINTS = Endpoints()


def _order(request: str, doc: str, *, status: int = 204) -> Callable[[Handler], Handler]:
    return ENDPOINTS.add(request, Role.OPERATE, Answer(None, doc, status=status), errors=[404, 409])


@ENDPOINTS.add(
    "GET /connectors/{name}/status", Role.VIEW, Answer(ref("Status"), "Its state and that of its task."), errors=[404]
)
def status(request: Request) -> Response:
    """What a connector does now."""
    found = connector_of(request, missing="No status found for connector {}")
    return JSONResponse(found.status())


@ENDPOINTS.add(
    "POST /connectors/{name}/restart",
    Role.OPERATE,
    Answer(ref("Status"), "It is restarted, if that is what the parameters say.", status=202),
    Answer(None, "It is restarted.", status=204),
    parameters=[
        flag_parameter("includeTasks", "Answer with what is restarted. The task is restarted in any case."),
        flag_parameter("onlyFailed", "Only if it has failed."),
    ],
    errors=[404, 409],
)
def restart(request: Request) -> Response:
    """Restart a connector.

    Its task is the same run, and restarts with it.
    """
    connector = connector_of(request, missing="Unknown connector: {}")
    with_tasks, only_failed = flag(request, "includeTasks"), flag(request, "onlyFailed")
    failed = connector.state == "FAILED"
    if failed or not only_failed:
        _restart(request, connector)
    if not with_tasks and not only_failed:
        return Response(status_code=204)
    running = connector.state in ("RUNNING", "RESTARTING")
    shown = "RESTARTING" if failed or (running and not only_failed) else None
    return JSONResponse(connector.status(connector=shown, task=shown if with_tasks else None), status_code=202)


@_order("PUT /connectors/{name}/pause", "Its node finishes the running step, and pauses it.", status=202)
def pause(request: Request) -> Response:
    """Pause a connector."""
    return _rest(request, "pause", 202)


@_order("PUT /connectors/{name}/stop", "Its node finishes the running step, and stops it.")
def stop(request: Request) -> Response:
    """Stop a connector: it has no task, and its offsets may be changed."""
    return _rest(request, "stop", 204)


@_order("PUT /connectors/{name}/resume", "A node will run it.", status=202)
def resume(request: Request) -> Response:
    """Resume a connector that is paused, stopped, or paused by an error."""
    connector = connector_of(request, missing="Unknown connector {}")
    deployment_of(request).changefeeds.resume(connector.name)
    return Response(status_code=202)


@ENDPOINTS.add(
    "GET /connectors/{name}/tasks",
    Role.VIEW,
    Answer(array(ref("Task")), "One task, none of a stopped connector."),
    errors=[404],
)
def tasks(request: Request) -> Response:
    """The task of a connector."""
    connector = connector_of(request)
    config = {"task.class": connector.config["connector.class"], **connector.config}
    found: list[dict[str, Any]] = []
    if connector.has_task:
        found.append({"id": {"connector": connector.name, "task": 0}, "config": config})
    return JSONResponse(found)


@ENDPOINTS.add(
    "GET /connectors/{name}/tasks/{task}/status", Role.VIEW, Answer(ref("TaskState"), "Its state."), errors=[404]
)
def task_status(request: Request) -> Response:
    """What a task does now."""
    task = name_of(request, "task")
    connector = connector_of(request, missing=f"No status found for task {{}}-{task}")
    shown = connector.status()["tasks"]
    if task != "0" or not shown:
        raise Refusal(404, f"No status found for task {connector.name}-{task}")
    return JSONResponse(shown[0])


@_order("POST /connectors/{name}/tasks/{task}/restart", "It is restarted.")
def restart_task(request: Request) -> Response:
    """Restart a task, and so the connector."""
    task, connector = name_of(request, "task"), connector_of(request, missing="Unknown connector: {}")
    if task != "0" or not connector.has_task:
        raise Refusal(404, f"Unknown task: {connector.name}-{task}")
    _restart(request, connector)
    return Response(status_code=204)


def _rest(request: Request, kind: Literal["pause", "stop"], answer: int) -> Response:
    connector = connector_of(request, missing="Unknown connector {}")
    deployment_of(request).changefeeds.pause(connector.name, asked_by(request, kind), kind)
    return Response(status_code=answer)


def _restart(request: Request, connector: Connector) -> None:
    deployment_of(request).changefeeds.restart(connector.name, asked_by(request, "a restart"))
