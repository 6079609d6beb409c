"""The endpoints of Kafka Connect's dialect."""

from __future__ import annotations

from typing import Any

from cdc_core.web.connect import connectors, lifecycle, offsets, plugins, worker
from cdc_core.web.connect.shapes import CONFIG_VALUES
from cdc_core.web.endpoint import Answer, Body, Endpoint, Parameter, Role, Schema
from cdc_core.web.shapes import TEXT, array, record, ref

__all__ = ["CONNECT_ENDPOINTS"]


def _of_path(name: str, doc: str, example: str) -> Parameter:
    return Parameter(name=name, place="path", doc=doc, required=True, example=example)


_NAME = _of_path("name", "Name of the connector.", "orders")
_TASK = _of_path("task", "Number of the task: 0.", "0")
_PLUGIN = _of_path("plugin", "Class of the plugin, such as `cdc.Changefeed`.", "cdc.Changefeed")
_LOGGER = _of_path("logger", "Name of the logger, `root` for all.", "root")
_CHECK = Parameter(
    name="check",
    doc="With `false`, source and sink are not asked whether the definition fits them. Not in Kafka Connect.",
    schema={"type": "string", "enum": ["true", "false"]},
)
_EXPAND = Parameter(
    name="expand",
    doc="`status`, `info`, or both: the answer is an object then.",
    schema=array({"type": "string", "enum": ["status", "info"]}),
)
_CONFIG = Body(schema=CONFIG_VALUES, doc="The whole configuration.")
_LOCATION = {"Location": "Where the connector is."}


def _flag(name: str, doc: str) -> Parameter:
    return Parameter(name=name, doc=doc, schema={"type": "string", "enum": ["true", "false"]})


def _json(doc: str, schema: Schema, *, status: int = 200, **more: Any) -> Answer:
    return Answer(status=status, doc=doc, schema=schema, **more)


def _endpoint(method: str, path: str, role: Role, handle: Any, summary: str, *answers: Answer, **more: Any) -> Endpoint:
    return Endpoint(method=method, path=path, role=role, handle=handle, summary=summary, answers=answers, **more)


_OF_CONNECTOR: dict[str, Any] = {"parameters": [_NAME], "errors": [404]}
_CHANGES: dict[str, Any] = {"parameters": [_NAME], "errors": [404, 409]}

CONNECT_ENDPOINTS: tuple[Endpoint, ...] = (
    _endpoint(
        "GET",
        "/",
        Role.VIEW,
        worker.root,
        "Versions of the server. A browser is sent to the page.",
        _json("The versions.", ref("Server")),
        Answer(status=303, doc="A browser is sent to the page."),
    ),
    _endpoint(
        "GET",
        "/health",
        Role.VIEW,
        worker.health,
        "Whether the server can do its work.",
        _json("It can.", ref("Health")),
        _json("It cannot: the store is out of reach.", ref("Health"), status=500),
    ),
    _endpoint(
        "GET",
        "/connectors",
        Role.VIEW,
        connectors.listed,
        "All connectors.",
        _json("Their names, or what was asked for by name.", {"anyOf": [array(TEXT), ref("Expanded")]}),
        parameters=[_EXPAND],
    ),
    _endpoint(
        "POST",
        "/connectors",
        Role.ADMIN,
        connectors.create,
        "Create a connector.",
        _json("The connector.", ref("Connector"), status=201, headers=_LOCATION),
        parameters=[_CHECK],
        body=Body(schema=ref("NewConnector"), doc="`initial_state` is RUNNING, PAUSED or STOPPED."),
        errors=[400, 409, 415],
    ),
    _endpoint(
        "GET",
        "/connectors/{name}",
        Role.VIEW,
        connectors.get,
        "A connector with its configuration.",
        _json("The connector.", ref("Connector")),
        **_OF_CONNECTOR,
    ),
    _endpoint(
        "DELETE",
        "/connectors/{name}",
        Role.ADMIN,
        connectors.delete,
        "Delete a connector and what it holds at its source.",
        Answer(status=204, doc="It is deleted, or will be by a node."),
        **_CHANGES,
    ),
    _endpoint(
        "GET",
        "/connectors/{name}/config",
        Role.VIEW,
        connectors.get_config,
        "The configuration of a connector.",
        _json("The configuration.", ref("Config")),
        **_OF_CONNECTOR,
    ),
    _endpoint(
        "PUT",
        "/connectors/{name}/config",
        Role.ADMIN,
        connectors.put_config,
        "Create or configure a connector.",
        _json("The connector, which has this configuration.", ref("Connector")),
        _json("The connector, which is new.", ref("Connector"), status=201, headers=_LOCATION),
        parameters=[_NAME, _CHECK],
        body=_CONFIG,
        errors=[400, 409, 415],
    ),
    _endpoint(
        "PATCH",
        "/connectors/{name}/config",
        Role.ADMIN,
        connectors.patch_config,
        "Change some keys of a connector's configuration.",
        _json("The connector.", ref("Connector")),
        parameters=[_NAME, _CHECK],
        body=Body(schema=CONFIG_VALUES, doc="The keys to change; null removes a key."),
        errors=[400, 404, 409, 415],
    ),
    _endpoint(
        "GET",
        "/connectors/{name}/status",
        Role.VIEW,
        lifecycle.status,
        "What a connector does now.",
        _json("Its state and that of its task.", ref("Status")),
        **_OF_CONNECTOR,
    ),
    _endpoint(
        "POST",
        "/connectors/{name}/restart",
        Role.OPERATE,
        lifecycle.restart,
        "Restart a connector.",
        _json("It is restarted, if that is what the parameters say.", ref("Status"), status=202),
        Answer(status=204, doc="It is restarted."),
        parameters=[
            _NAME,
            _flag("includeTasks", "Answer with what is restarted. The task is restarted in any case."),
            _flag("onlyFailed", "Only if it has failed."),
        ],
        errors=[404, 409],
    ),
    _endpoint(
        "PUT",
        "/connectors/{name}/pause",
        Role.OPERATE,
        lifecycle.pause,
        "Pause a connector.",
        Answer(status=202, doc="Its node finishes the running step, and pauses it."),
        **_CHANGES,
    ),
    _endpoint(
        "PUT",
        "/connectors/{name}/resume",
        Role.OPERATE,
        lifecycle.resume,
        "Resume a connector that is paused, stopped, or paused by an error.",
        Answer(status=202, doc="A node will run it."),
        **_CHANGES,
    ),
    _endpoint(
        "PUT",
        "/connectors/{name}/stop",
        Role.OPERATE,
        lifecycle.stop,
        "Stop a connector: it has no task, and its offsets may be reset.",
        Answer(status=204, doc="Its node finishes the running step, and stops it."),
        **_CHANGES,
    ),
    _endpoint(
        "GET",
        "/connectors/{name}/tasks",
        Role.VIEW,
        lifecycle.tasks,
        "The task of a connector.",
        _json("One task, none of a stopped connector.", array(ref("Task"))),
        **_OF_CONNECTOR,
    ),
    _endpoint(
        "GET",
        "/connectors/{name}/tasks/{task}/status",
        Role.VIEW,
        lifecycle.task_status,
        "What a task does now.",
        _json("Its state.", ref("TaskState")),
        parameters=[_NAME, _TASK],
        errors=[404],
    ),
    _endpoint(
        "POST",
        "/connectors/{name}/tasks/{task}/restart",
        Role.OPERATE,
        lifecycle.restart_task,
        "Restart a task, and so the connector.",
        Answer(status=204, doc="It is restarted."),
        parameters=[_NAME, _TASK],
        errors=[404, 409],
    ),
    _endpoint(
        "GET",
        "/connectors/{name}/topics",
        Role.VIEW,
        offsets.topics,
        "The topics of a connector, as far as they are known. An unknown connector has none.",
        _json("The topics by the connector's name.", ref("Topics")),
        parameters=[_NAME],
    ),
    _endpoint(
        "PUT",
        "/connectors/{name}/topics/reset",
        Role.OPERATE,
        offsets.reset_topics,
        "Refused: resolved marks go to every topic, so none of them is forgotten.",
        parameters=[_NAME],
        errors=[403],
    ),
    _endpoint(
        "GET",
        "/connectors/{name}/offsets",
        Role.VIEW,
        offsets.get_offsets,
        "How far each source of a connector is read.",
        _json("Position and resolved timestamp of each source.", ref("Offsets")),
        **_OF_CONNECTOR,
    ),
    _endpoint(
        "PATCH",
        "/connectors/{name}/offsets",
        Role.ADMIN,
        offsets.alter_offsets,
        "Have a stopped connector begin anew, by the offset null.",
        _json("Done.", ref("Message")),
        parameters=[_NAME],
        body=Body(schema=record({"offsets": array(ref("Offset"))}), doc="As they are read."),
        errors=[400, 404, 409, 415],
    ),
    _endpoint(
        "DELETE",
        "/connectors/{name}/offsets",
        Role.ADMIN,
        offsets.reset_offsets,
        "Have a stopped connector begin anew, with all rows of all tables.",
        _json("Done.", ref("Message")),
        parameters=[_NAME],
        errors=[400, 404, 409],
    ),
    _endpoint(
        "GET",
        "/connector-plugins",
        Role.VIEW,
        plugins.plugins,
        "The plugins.",
        _json("The one connector; or also the rangefeeds, encoders, sinks and functions.", array(ref("Plugin"))),
        parameters=[_flag("connectorsOnly", "With `false`, also what a connector is made of.")],
    ),
    _endpoint(
        "GET",
        "/connector-plugins/{plugin}/config",
        Role.VIEW,
        plugins.plugin_config,
        "The keys of a plugin's configuration.",
        _json("The keys.", array(ref("ConfigKey"))),
        parameters=[_PLUGIN],
        errors=[404],
    ),
    _endpoint(
        "PUT",
        "/connector-plugins/{plugin}/config/validate",
        Role.ADMIN,
        plugins.validate_config,
        "Check a configuration without connecting to anything.",
        _json("Every key with its value and what is wrong with it.", ref("Validation")),
        parameters=[_PLUGIN],
        body=_CONFIG,
        errors=[400, 415],
    ),
    _endpoint(
        "GET",
        "/admin/loggers",
        Role.VIEW,
        worker.loggers,
        "The loggers of this process that have a level of their own.",
        _json("Their levels by name.", ref("Loggers")),
    ),
    _endpoint(
        "GET",
        "/admin/loggers/{logger}",
        Role.VIEW,
        worker.logger,
        "The level of a logger of this process.",
        _json("The level.", ref("Logger")),
        parameters=[_LOGGER],
        errors=[404],
    ),
    _endpoint(
        "PUT",
        "/admin/loggers/{logger}",
        Role.ADMIN,
        worker.set_logger,
        "Set the level of a logger of this process, and of those below it.",
        _json("The names of the loggers whose level is set.", array(TEXT)),
        parameters=[
            _LOGGER,
            Parameter(name="scope", doc="`worker`, which is the default.", schema={"type": "string"}),
        ],
        body=Body(schema=record({"level": TEXT}), doc="TRACE, DEBUG, INFO, WARN, ERROR, FATAL or OFF."),
        errors=[400, 404, 415],
    ),
)
