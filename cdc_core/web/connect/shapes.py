"""The shapes of Kafka Connect's JSON."""

from __future__ import annotations

from cdc_core.web.endpoint import TEXT, Body, Schema, array, by_name, choice, record, ref

CONFIG_VALUES: Schema = {
    **by_name({"type": ["string", "number", "boolean", "null"]}),
    "description": "Names and values. Numbers and booleans are treated as strings.",
}
WHOLE_CONFIG = Body(CONFIG_VALUES, "The whole configuration.")
_STATE = choice(["UNASSIGNED", "RUNNING", "PAUSED", "FAILED", "RESTARTING", "STOPPED"])
_CONNECTOR_TYPE = choice(["source", "sink", "unknown"])
_KEY_TYPE = choice(["BOOLEAN", "CLASS", "DOUBLE", "INT", "LIST", "LONG", "PASSWORD", "SHORT", "STRING"])

SHAPES: dict[str, Schema] = {
    "Server": record("version commit kafka_cluster_id cdc_version"),
    "Health": record("status message", status=choice(["healthy", "starting", "unhealthy"])),
    "Config": by_name(TEXT),
    "NewConnector": record("name config initial_state?", config=CONFIG_VALUES, required=["config"], closed=True),
    "TaskId": record("connector task:integer"),
    "Connector": record("name config:Config tasks:[TaskId] type", type=_CONNECTOR_TYPE),
    "ConnectorState": record("state worker_id version trace", state=_STATE, required=["state", "worker_id", "version"]),
    "TaskState": record(
        "id:integer state worker_id version trace", state=_STATE, required=["id", "state", "worker_id", "version"]
    ),
    "Status": record("name connector:ConnectorState tasks:[TaskState] type", type=_CONNECTOR_TYPE),
    "Expanded": by_name(record("status:Status info:Connector", required=[])),
    "Task": record("id:TaskId config:Config"),
    "Topics": by_name(record("topics:[string]")),
    "Offset": record("partition:object offset:object?"),
    "Offsets": record("offsets:[Offset]"),
    "Message": record("message"),
    "Plugin": record("class type version", required=["class", "type"]),
    "ConfigKey": record(
        "name type required:boolean default_value? importance documentation group order_in_group:integer order:integer"
        " width display_name dependents:[string]",
        type=_KEY_TYPE,
        importance=choice(["HIGH", "MEDIUM", "LOW"]),
        width=choice(["NONE", "SHORT", "MEDIUM", "LONG"]),
    ),
    "ConfigValue": record("name value? recommended_values:[string] errors:[string] visible:boolean"),
    "Validation": record(
        "name error_count:integer groups:[string] configs",
        configs=array(
            record("definition value:ConfigValue", definition={"anyOf": [ref("ConfigKey"), {"type": "null"}]})
        ),
    ),
    "Logger": record("level last_modified:integer?"),
    "Loggers": by_name(ref("Logger")),
}
