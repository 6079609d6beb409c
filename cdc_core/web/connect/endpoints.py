"""The endpoints of Kafka Connect's dialect."""

from __future__ import annotations

from cdc_core.web.connect import connectors, plugins, worker
from cdc_core.web.connect.connector_endpoints import CONNECTOR_ENDPOINTS
from cdc_core.web.connect.endpoint_parts import CHECK, CONFIG, LOCATION, answer, endpoint, flag, of_path
from cdc_core.web.endpoint import Answer, Body, Endpoint, Parameter, Role
from cdc_core.web.shapes import TEXT, array, record, ref

__all__ = ["CONNECT_ENDPOINTS"]

_PLUGIN = of_path("plugin", "Class of the plugin, such as `cdc.Changefeed`.", "cdc.Changefeed")
_LOGGER = of_path("logger", "Name of the logger, `root` for all.", "root")
_EXPAND = Parameter(
    name="expand",
    doc="`status`, `info`, or both: the answer is an object then.",
    schema=array({"type": "string", "enum": ["status", "info"]}),
)

CONNECT_ENDPOINTS: tuple[Endpoint, ...] = (
    endpoint(
        "GET",
        "/",
        Role.VIEW,
        worker.root,
        "Versions of the server. A browser is sent to the page.",
        answer("The versions.", ref("Server")),
        Answer(status=303, doc="A browser is sent to the page."),
    ),
    endpoint(
        "GET",
        "/health",
        Role.VIEW,
        worker.health,
        "Whether the server can do its work.",
        answer("It can.", ref("Health")),
        answer("It cannot: the store is out of reach.", ref("Health"), status=500),
    ),
    endpoint(
        "GET",
        "/connectors",
        Role.VIEW,
        connectors.listed,
        "All connectors.",
        answer("Their names, or what was asked for by name.", {"anyOf": [array(TEXT), ref("Expanded")]}),
        parameters=[_EXPAND],
    ),
    endpoint(
        "POST",
        "/connectors",
        Role.ADMIN,
        connectors.create,
        "Create a connector.",
        answer("The connector.", ref("Connector"), status=201, headers=LOCATION),
        parameters=[CHECK],
        body=Body(schema=ref("NewConnector"), doc="`initial_state` is RUNNING, PAUSED or STOPPED."),
        errors=[400, 409, 415],
    ),
    *CONNECTOR_ENDPOINTS,
    endpoint(
        "GET",
        "/connector-plugins",
        Role.VIEW,
        plugins.plugins,
        "The plugins.",
        answer("The one connector; or also the rangefeeds, encoders, sinks and functions.", array(ref("Plugin"))),
        parameters=[flag("connectorsOnly", "With `false`, also what a connector is made of.")],
    ),
    endpoint(
        "GET",
        "/connector-plugins/{plugin}/config",
        Role.VIEW,
        plugins.plugin_config,
        "The keys of a plugin's configuration.",
        answer("The keys.", array(ref("ConfigKey"))),
        parameters=[_PLUGIN],
        errors=[404],
    ),
    endpoint(
        "PUT",
        "/connector-plugins/{plugin}/config/validate",
        Role.ADMIN,
        plugins.validate_config,
        "Check a configuration without connecting to anything.",
        answer("Every key with its value and what is wrong with it.", ref("Validation")),
        parameters=[_PLUGIN],
        body=CONFIG,
        errors=[400, 415],
    ),
    endpoint(
        "GET",
        "/admin/loggers",
        Role.VIEW,
        worker.loggers,
        "The loggers of this process that have a level of their own.",
        answer("Their levels by name.", ref("Loggers")),
    ),
    endpoint(
        "GET",
        "/admin/loggers/{logger}",
        Role.VIEW,
        worker.logger,
        "The level of a logger of this process.",
        answer("The level.", ref("Logger")),
        parameters=[_LOGGER],
        errors=[404],
    ),
    endpoint(
        "PUT",
        "/admin/loggers/{logger}",
        Role.ADMIN,
        worker.set_logger,
        "Set the level of a logger of this process, and of those below it.",
        answer("The names of the loggers whose level is set.", array(TEXT)),
        parameters=[
            _LOGGER,
            Parameter(name="scope", doc="`worker`, which is the default.", schema={"type": "string"}),
        ],
        body=Body(schema=record({"level": TEXT}), doc="TRACE, DEBUG, INFO, WARN, ERROR, FATAL or OFF."),
        errors=[400, 404, 415],
    ),
)
