"""Connectors and their tasks while they run: status, restart, pause, resume, stop; offsets; topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cdc_core.changefeeds.moving import target_of, written_target
from cdc_core.errors import CdcError, ConfigError
from cdc_core.rangefeed_values import Token
from cdc_core.web.connect.connector import Connector, connector_of, is_deleted
from cdc_core.web.endpoint import Answer, Body, Endpoints, Handler, Refusal, Role, array, flag_parameter, record, ref
from cdc_core.web.requests import Deployment, asked_by, deployment_of, flag, json_object, name_of

ENDPOINTS = Endpoints()


def _order(request: str, doc: str, *, status: int = 204) -> Callable[[Handler], Handler]:
    return ENDPOINTS.add(request, Role.OPERATE, Answer(None, doc, status=status), errors=[404, 409])


@ENDPOINTS.add(
    "GET /connectors/{name}/status",
    Role.VIEW,
    Answer(ref("Status"), "State of the connector and of its task."),
    errors=[404],
)
def status(request: Request) -> Response:
    """The state of a connector and its task."""
    found = connector_of(request, missing="No status found for connector {}")
    return JSONResponse(found.status())


@ENDPOINTS.add(
    "POST /connectors/{name}/restart",
    Role.OPERATE,
    Answer(ref("Status"), "Restarted, if the parameters select it.", status=202),
    Answer(None, "It is restarted.", status=204),
    parameters=[
        flag_parameter("includeTasks", "Return what is restarted. The task is always restarted."),
        flag_parameter("onlyFailed", "Restart it only if it has failed."),
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


@_order("PUT /connectors/{name}/pause", "Its node finishes the running step and pauses the connector.", status=202)
def pause(request: Request) -> Response:
    """Pause a connector."""
    return _rest(request, "pause", 202)


@_order("PUT /connectors/{name}/stop", "Its node finishes the running step and stops the connector.")
def stop(request: Request) -> Response:
    """Stop a connector: it has no task, and its offsets may be changed."""
    return _rest(request, "stop", 204)


@_order("PUT /connectors/{name}/resume", "A node will run the connector.", status=202)
def resume(request: Request) -> Response:
    """Resume a connector that is paused, stopped, or paused by an error."""
    connector = connector_of(request, missing="Unknown connector {}")
    deployment_of(request).changefeeds.resume(connector.name, asked_by(request, "resume"))
    return Response(status_code=202)


@ENDPOINTS.add(
    "GET /connectors/{name}/tasks",
    Role.VIEW,
    Answer(array(ref("Task")), "One task, or none if the connector is stopped."),
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
    """The state of a task."""
    task = name_of(request, "task")
    connector = connector_of(request, missing=f"No status found for task {{}}-{task}")
    shown = connector.status()["tasks"]
    if task != "0" or not shown:
        raise Refusal(404, f"No status found for task {connector.name}-{task}")
    return JSONResponse(shown[0])


@_order("POST /connectors/{name}/tasks/{task}/restart", "It is restarted.")
def restart_task(request: Request) -> Response:
    """Restart a task, and therefore its connector."""
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


@ENDPOINTS.add(
    "GET /connectors/{name}/offsets",
    Role.VIEW,
    Answer(ref("Offsets"), "Position and resolved timestamp of each source."),
    errors=[404],
)
def get_offsets(request: Request) -> Response:
    """The position of each source of a connector."""
    return JSONResponse({"offsets": _offsets(deployment_of(request), connector_of(request))})


@ENDPOINTS.add(
    "PATCH /connectors/{name}/offsets",
    Role.ADMIN,
    Answer(ref("Message"), "Done."),
    body=Body(
        record("offsets:[Offset]", closed=True),
        "Offsets as returned by GET, or objects with a single field `to`.",
    ),
    errors=[400, 404, 409, 415],
)
def alter_offsets(request: Request) -> Response:
    """Move a stopped connector to another position, or start it over with the offset null.

    The source says what positions there are.
    """
    deployment, name = deployment_of(request), name_of(request)
    wanted = json_object(request, ["offsets"]).get("offsets")
    connector = connector_of(request)
    if not isinstance(wanted, list) or not wanted:
        raise Refusal(400, "Partitions / offsets need to be provided for an alter offsets request")
    _require_stopped(connector)
    present = _offsets(deployment, connector)
    known = {_key(each["partition"]): (index, each["offset"]) for index, each in enumerate(present)}
    reset, targets = set(), dict[int, str | Token]()
    for each in wanted:
        partition = each.get("partition") if isinstance(each, dict) else None
        if not isinstance(partition, dict) or "offset" not in each:
            raise Refusal(400, "each of the 'offsets' needs a 'partition', which is an object, and an 'offset'")
        if _key(partition) not in known:
            raise Refusal(
                400,
                f"connector {name} has read nothing from the partition {partition}; see GET /connectors/{name}/offsets",
            )
        if each["offset"] is None:
            reset.add(_key(partition))
        else:
            index, offset = known[_key(partition)]
            target = _target(each["offset"])
            if target != offset["token"]:
                targets[index] = target
    if reset and reset != known.keys():
        raise Refusal(
            400, f"connector {name} can only start over with all of its sources; set 'offset' to null for each of them"
        )
    if reset:
        _begin_anew(deployment, connector)
    elif targets:
        _move(deployment, connector, targets, why=asked_by(request, "a move"))
    return JSONResponse({"message": "The offsets for this connector have been altered successfully"})


@ENDPOINTS.add("DELETE /connectors/{name}/offsets", Role.ADMIN, Answer(ref("Message"), "Done."), errors=[400, 404, 409])
def reset_offsets(request: Request) -> Response:
    """Start a stopped connector over, with all rows of all tables."""
    connector = connector_of(request)
    _require_stopped(connector)
    _begin_anew(deployment_of(request), connector)
    return JSONResponse({"message": "The offsets for this connector have been reset successfully"})


@ENDPOINTS.add(
    "GET /connectors/{name}/topics", Role.VIEW, Answer(ref("Topics"), "The connector's topics, under its name.")
)
def topics(request: Request) -> Response:
    """The known topics of a connector. An unknown connector has none.

    These are the topics by the definition, and those that a query has given to rows.
    """
    changefeeds, name = deployment_of(request).changefeeds, name_of(request)
    job = changefeeds.find_job(name)
    found = [] if job is None or is_deleted(job) else changefeeds.topics(name)
    return JSONResponse({name: {"topics": found}})


@ENDPOINTS.add("PUT /connectors/{name}/topics/reset", Role.OPERATE, errors=[403])
def reset_topics(request: Request) -> Response:  # noqa: ARG001
    """Refused, because resolved marks go to every topic, so no topic can be forgotten."""
    raise Refusal(403, "Topic tracking reset is disabled.")


def _offsets(deployment: Deployment, connector: Connector) -> list[dict[str, Any]]:
    """Return source and position, once for each source."""
    return [
        {
            "partition": {"source": each.source},
            "offset": {"resolved": str(each.resolved) if each.resolved else None, "token": each.token},
        }
        for each in deployment.changefeeds.positions(connector.name)
    ]


def _key(partition: Mapping[str, Any]) -> str:
    return repr(sorted(partition.items(), key=repr))


def _require_stopped(connector: Connector) -> None:
    if connector.job.state != "paused" or connector.job.paused_for != "stop":
        raise Refusal(
            400,
            "Connectors must be in the STOPPED state before their offsets can be modified. This can be done for the"
            f" specified connector by issuing a 'PUT' request to the '/connectors/{connector.name}/stop' endpoint",
        )


def _target(offset: object) -> str | Token:
    """Return where *offset* is: one as `_offsets` gives it, of which `resolved` is not set, or words in `to`."""
    if isinstance(offset, dict) and offset.keys() == {"to"} and isinstance(offset["to"], str):
        return written_target(offset["to"])
    if isinstance(offset, dict) and offset.keys() <= {"token", "resolved"} and isinstance(offset.get("token"), dict):
        token: Token = offset["token"]
        return token
    raise Refusal(
        400,
        '\'offset\' must be null (start over), an offset returned by GET, or {"to": "now" | TIME | POSITION}',
    )


def _move(deployment: Deployment, connector: Connector, targets: Mapping[int, str | Token], *, why: str) -> None:
    changefeeds = deployment.changefeeds
    with _refused(deployment):
        feed = changefeeds.feed(connector.name, connector.definition)
        changefeeds.move(changefeeds.plan_move(feed, target_of(connector.report.known, targets)), why)


def _begin_anew(deployment: Deployment, connector: Connector) -> None:
    changefeeds, name = deployment.changefeeds, connector.name
    if changefeeds.positions(name):
        with _refused(deployment):
            changefeeds.begin_anew(changefeeds.feed(name, connector.definition))


@contextmanager
def _refused(deployment: Deployment) -> Iterator[None]:
    """Turn errors into refusals: also those for which another request would get 409, 500 or 503."""
    try:
        yield
    except CdcError as error:
        status = 400 if isinstance(error, ConfigError) else 409
        raise Refusal(status, deployment.masked(str(error))) from error
