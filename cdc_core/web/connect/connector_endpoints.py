"""The endpoints of one connector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cdc_core.web.connect import connectors, lifecycle, offsets
from cdc_core.web.connect.endpoint_parts import CHECK, CONFIG, LOCATION, answer, endpoint, flag, of_path
from cdc_core.web.connect.shapes import CONFIG_VALUES
from cdc_core.web.endpoint import Answer, Body, Endpoint, Parameter, Role
from cdc_core.web.shapes import array, record, ref

__all__ = ["CONNECTOR_ENDPOINTS"]

_NAME = of_path("name", "Name of the connector.", "orders")
_TASK = of_path("task", "Number of the task: 0.", "0")
_CONNECTOR = answer("The connector.", ref("Connector"))


def _of_connector(
    method: str,
    path: str,
    role: Role,
    handle: Any,
    summary: str,
    *answers: Answer,
    parameters: Sequence[Parameter] = (),
    **more: Any,
) -> Endpoint:
    place = f"/connectors/{{name}}{path}"
    return endpoint(method, place, role, handle, summary, *answers, parameters=[_NAME, *parameters], **more)


def _read(path: str, handle: Any, summary: str, found: Answer, *, parameters: Sequence[Parameter] = ()) -> Endpoint:
    return _of_connector("GET", path, Role.VIEW, handle, summary, found, parameters=parameters, errors=[404])


def _order(
    method: str, path: str, handle: Any, summary: str, *answers: Answer, parameters: Sequence[Parameter] = ()
) -> Endpoint:
    return _of_connector(
        method, path, Role.OPERATE, handle, summary, *answers, parameters=parameters, errors=[404, 409]
    )


CONNECTOR_ENDPOINTS: tuple[Endpoint, ...] = (
    _read("", connectors.get, "A connector with its configuration.", _CONNECTOR),
    _of_connector(
        "DELETE",
        "",
        Role.ADMIN,
        connectors.delete,
        "Delete a connector and what it holds at its source.",
        Answer(status=204, doc="It is deleted, or will be by a node."),
        errors=[404, 409],
    ),
    _read(
        "/config",
        connectors.get_config,
        "The configuration of a connector.",
        answer("The configuration.", ref("Config")),
    ),
    _of_connector(
        "PUT",
        "/config",
        Role.ADMIN,
        connectors.put_config,
        "Create or configure a connector.",
        answer("The connector, which has this configuration.", ref("Connector")),
        answer("The connector, which is new.", ref("Connector"), status=201, headers=LOCATION),
        parameters=[CHECK],
        body=CONFIG,
        errors=[400, 409, 415],
    ),
    _of_connector(
        "PATCH",
        "/config",
        Role.ADMIN,
        connectors.patch_config,
        "Change some keys of a connector's configuration.",
        _CONNECTOR,
        parameters=[CHECK],
        body=Body(schema=CONFIG_VALUES, doc="The keys to change; null removes a key."),
        errors=[400, 404, 409, 415],
    ),
    _read(
        "/status",
        lifecycle.status,
        "What a connector does now.",
        answer("Its state and that of its task.", ref("Status")),
    ),
    _order(
        "POST",
        "/restart",
        lifecycle.restart,
        "Restart a connector.",
        answer("It is restarted, if that is what the parameters say.", ref("Status"), status=202),
        Answer(status=204, doc="It is restarted."),
        parameters=[
            flag("includeTasks", "Answer with what is restarted. The task is restarted in any case."),
            flag("onlyFailed", "Only if it has failed."),
        ],
    ),
    _order(
        "PUT",
        "/pause",
        lifecycle.pause,
        "Pause a connector.",
        Answer(status=202, doc="Its node finishes the running step, and pauses it."),
    ),
    _order(
        "PUT",
        "/resume",
        lifecycle.resume,
        "Resume a connector that is paused, stopped, or paused by an error.",
        Answer(status=202, doc="A node will run it."),
    ),
    _order(
        "PUT",
        "/stop",
        lifecycle.stop,
        "Stop a connector: it has no task, and its offsets may be changed.",
        Answer(status=204, doc="Its node finishes the running step, and stops it."),
    ),
    _read(
        "/tasks",
        lifecycle.tasks,
        "The task of a connector.",
        answer("One task, none of a stopped connector.", array(ref("Task"))),
    ),
    _read(
        "/tasks/{task}/status",
        lifecycle.task_status,
        "What a task does now.",
        answer("Its state.", ref("TaskState")),
        parameters=[_TASK],
    ),
    _order(
        "POST",
        "/tasks/{task}/restart",
        lifecycle.restart_task,
        "Restart a task, and so the connector.",
        Answer(status=204, doc="It is restarted."),
        parameters=[_TASK],
    ),
    _of_connector(
        "GET",
        "/topics",
        Role.VIEW,
        offsets.topics,
        "The topics of a connector, as far as they are known. An unknown connector has none.",
        answer("The topics by the connector's name.", ref("Topics")),
    ),
    _of_connector(
        "PUT",
        "/topics/reset",
        Role.OPERATE,
        offsets.reset_topics,
        "Refused: resolved marks go to every topic, so none of them is forgotten.",
        errors=[403],
    ),
    _read(
        "/offsets",
        offsets.get_offsets,
        "How far each source of a connector is read.",
        answer("Position and resolved timestamp of each source.", ref("Offsets")),
    ),
    _of_connector(
        "PATCH",
        "/offsets",
        Role.ADMIN,
        offsets.alter_offsets,
        "Move a stopped connector to another position, or have it begin anew by the offset null.",
        answer("Done.", ref("Message")),
        body=Body(
            schema=record({"offsets": array(ref("Offset"))}),
            doc="As they are read, or with `to` as the only field of an offset.",
        ),
        errors=[400, 404, 409, 415],
    ),
    _of_connector(
        "DELETE",
        "/offsets",
        Role.ADMIN,
        offsets.reset_offsets,
        "Have a stopped connector begin anew, with all rows of all tables.",
        answer("Done.", ref("Message")),
        errors=[400, 404, 409],
    ),
)
