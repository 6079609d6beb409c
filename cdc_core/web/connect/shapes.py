"""The shapes of Kafka Connect's JSON."""

from __future__ import annotations

from cdc_core.web.endpoint import Body, Schema
from cdc_core.web.shapes import TEXT, any_object, array, nullable, record, ref

__all__ = ["CONFIG_VALUES", "SHAPES", "WHOLE_CONFIG"]

CONFIG_VALUES: Schema = {
    "type": "object",
    "additionalProperties": {"type": ["string", "number", "boolean", "null"]},
    "description": "Names and values. Numbers and booleans are taken as texts.",
}
WHOLE_CONFIG = Body(CONFIG_VALUES, "The whole configuration.")
_STATES = ["UNASSIGNED", "RUNNING", "PAUSED", "FAILED", "RESTARTING", "STOPPED"]
_STATE = {"state": {"type": "string", "enum": _STATES}, "worker_id": TEXT, "version": TEXT, "trace": TEXT}
_TYPES = ["BOOLEAN", "CLASS", "DOUBLE", "INT", "LIST", "LONG", "PASSWORD", "SHORT", "STRING"]

SHAPES: dict[str, Schema] = {
    "Server": record({"version": TEXT, "commit": TEXT, "kafka_cluster_id": TEXT, "cdc_version": TEXT}),
    "Health": record({"status": {"type": "string", "enum": ["healthy", "starting", "unhealthy"]}, "message": TEXT}),
    "Config": {"type": "object", "additionalProperties": TEXT},
    "NewConnector": record(
        {"name": TEXT, "config": CONFIG_VALUES, "initial_state": nullable("string")}, required=["config"], closed=True
    ),
    "TaskId": record({"connector": TEXT, "task": {"type": "integer"}}),
    "Connector": record(
        {
            "name": TEXT,
            "config": ref("Config"),
            "tasks": array(ref("TaskId")),
            "type": {"type": "string", "enum": ["source", "sink", "unknown"]},
        }
    ),
    "ConnectorState": record(_STATE, required=["state", "worker_id", "version"]),
    "TaskState": record({"id": {"type": "integer"}, **_STATE}, required=["id", "state", "worker_id", "version"]),
    "Status": record(
        {
            "name": TEXT,
            "connector": ref("ConnectorState"),
            "tasks": array(ref("TaskState")),
            "type": {"type": "string", "enum": ["source", "sink", "unknown"]},
        }
    ),
    "Expanded": {
        "type": "object",
        "additionalProperties": record({"status": ref("Status"), "info": ref("Connector")}, required=[]),
    },
    "Task": record({"id": ref("TaskId"), "config": ref("Config")}),
    "Topics": {"type": "object", "additionalProperties": record({"topics": array(TEXT)})},
    "Offset": record(
        {"partition": any_object(), "offset": nullable("object")},
    ),
    "Offsets": record({"offsets": array(ref("Offset"))}),
    "Message": record({"message": TEXT}),
    "Plugin": record({"class": TEXT, "type": TEXT, "version": TEXT}, required=["class", "type"]),
    "ConfigKey": record(
        {
            "name": TEXT,
            "type": {"type": "string", "enum": _TYPES},
            "required": {"type": "boolean"},
            "default_value": nullable("string"),
            "importance": {"type": "string", "enum": ["HIGH", "MEDIUM", "LOW"]},
            "documentation": TEXT,
            "group": TEXT,
            "order_in_group": {"type": "integer"},
            "order": {"type": "integer"},
            "width": {"type": "string", "enum": ["NONE", "SHORT", "MEDIUM", "LONG"]},
            "display_name": TEXT,
            "dependents": array(TEXT),
        }
    ),
    "ConfigValue": record(
        {
            "name": TEXT,
            "value": nullable("string"),
            "recommended_values": array(TEXT),
            "errors": array(TEXT),
            "visible": {"type": "boolean"},
        }
    ),
    "Validation": record(
        {
            "name": TEXT,
            "error_count": {"type": "integer"},
            "groups": array(TEXT),
            "configs": array(
                record({"definition": {"anyOf": [ref("ConfigKey"), {"type": "null"}]}, "value": ref("ConfigValue")})
            ),
        }
    ),
    "Logger": record({"level": TEXT, "last_modified": nullable("integer")}),
    "Loggers": {"type": "object", "additionalProperties": ref("Logger")},
}
