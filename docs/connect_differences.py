"""How the answers of the server differ from those of Apache Kafka Connect, and why.

`generate_rest.py` makes the table of docs/kafka-connect.md from it. tests/web/connect/test_kafka_connect.py sends
the same requests to both, and fails when another difference is found, or one of these is not.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What is at *place* in the answers to all *requests*, where it is there at all. These are patterns as of files.

    *shown* names the requests to readers. *theirs* and *here* are what is there, or `none`; `any` is whatever it is.
    """

    shown: str
    requests: tuple[str, ...]
    place: str = "status"
    theirs: str
    here: str
    why: str


DIFFERENCES = (
    Difference(
        shown="any with a body that is not JSON, or does not have the expected form",
        requests=(
            "* with broken JSON",
            "* with an empty body",
            "* with a list as body",
            "* with a text as body",
            "* with no list",
            "* with an unknown field",
            "* with an object as a value",
            "* with a wrong initial_state",
            "* with initial_offsets",
            "* without a configuration",
            "* with the configuration null",
            "* of an unknown partition",
        ),
        theirs="500",
        here="400",
        why="the client made the mistake, not the server",
    ),
    Difference(
        shown="`PUT …/config/validate` without a class, or with an unknown one",
        requests=("`PUT /connector-plugins/CLASS/config/validate` without a class", "`PUT /connector-plugins/nope/*"),
        theirs="500",
        here="400",
        why="the same as for creating such a connector",
    ),
    Difference(
        shown="any with a wrong path, method or Content-Type",
        requests=(
            "`PATCH /connectors`",
            "`DELETE /connectors`",
            "`POST /connectors/orders`",
            "`GET /connectors/orders/pause`",
            "`GET /connectors/orders/restart`",
            "`POST /connector-plugins`",
            "* /nonsense`",
            "*/orders/nonsense`",
            "* with text/plain",
        ),
        place="Content-Type",
        theirs="none",
        here="application/json",
        why="the body is JSON",
    ),
    Difference(
        shown="any with a wrong Content-Type",
        requests=("* with text/plain", "* without Content-Type"),
        place="body.message",
        theirs="HTTP 415 Unsupported Media T …",
        here="the body must be JSON, and t …",
        why="the message names the remedy",
    ),
    Difference(
        shown="`POST /connectors` and `PUT …/config` without a class",
        requests=("`POST /connectors` with an empty configuration", "`PUT /connectors/orders/config` without a class"),
        place="body.message",
        theirs="Connector config {name=order …",
        here="Connector config contains no …",
        why="a configuration in a message could reveal secrets",
    ),
    Difference(
        shown="`GET …/tasks/x/status`, where `x` is not a number",
        requests=("*/tasks/x/status`",),
        place="body.message",
        theirs="HTTP 404 Not Found …",
        here="No status found for task ord …",
        why="the same as for any other unknown task",
    ),
    Difference(
        shown="`POST …/tasks/x/restart`",
        requests=("*/tasks/x/restart`",),
        place="body.message",
        theirs="HTTP 404 Not Found …",
        here="Unknown task: orders-x …",
        why="the same as for any other unknown task",
    ),
    Difference(
        shown="any with a wrong method",
        requests=("*",),
        place="Allow",
        theirs="none",
        here="any",
        why="HTTP requires it",
    ),
    Difference(
        shown="`OPTIONS` of any path",
        requests=("`OPTIONS /connectors`",),
        theirs="200",
        here="405",
        why="so that browsers do not send changes for pages of other sites",
    ),
    Difference(
        shown="any that does not accept JSON",
        requests=("* that accepts only XML",),
        theirs="406",
        here="200",
        why="the response is JSON; the header `Accept` is read only for `GET /`",
    ),
    Difference(
        shown="`GET /` of a browser",
        requests=("`GET /` of a browser",),
        theirs="200",
        here="303",
        why="a browser is redirected to the page",
    ),
    Difference(
        shown="`GET /`",
        requests=("`GET /`",),
        place="body.cdc_version",
        theirs="none",
        here="text",
        why="`version` is the version of Kafka Connect",
    ),
    Difference(
        shown="`POST /connectors` with an unknown key",
        requests=("`POST /connectors` with an unknown key",),
        theirs="201",
        here="400",
        why="an ignored option would hide a mistake",
    ),
    Difference(
        shown="`PUT …/config/validate` with an unknown key",
        requests=("`PUT /connector-plugins/CLASS/config/validate` with an unknown key",),
        place="*.value.errors",
        theirs="empty list",
        here="empty list or list",
        why="the unknown key has an error",
    ),
    Difference(
        shown="`PATCH …/config` with another name",
        requests=("`PATCH /connectors/orders/config` with another name",),
        theirs="200",
        here="400",
        why="a connector has the name of its job, as for `PUT`",
    ),
    Difference(
        shown="`PATCH …/offsets` without a partition",
        requests=("`PATCH /connectors/orders/offsets` without a partition",),
        theirs="200",
        here="400",
        why="the request does not say what to change",
    ),
    Difference(
        shown="`PUT …/topics/reset`",
        requests=("*/topics/reset`",),
        theirs="202",
        here="403",
        why="every topic gets resolved timestamps, so none is forgotten",
    ),
    Difference(
        shown="`GET …/status` of a failed connector",
        requests=("`GET /connectors/broken/status` *",),
        place="body.connector.state",
        theirs="RUNNING",
        here="FAILED",
        why="the connector and its task are one run",
    ),
    Difference(
        shown="`POST …/restart?includeTasks=true&onlyFailed=true` of a failed connector",
        requests=("`POST /connectors/broken/restart*",),
        place="body.connector.state",
        theirs="RUNNING",
        here="RESTARTING",
        why="the connector and its task are one run",
    ),
    Difference(
        shown="`GET …/status` and `POST …/restart?includeTasks=true&onlyFailed=true` of a failed connector",
        requests=("*/broken/*",),
        place="body.connector.trace",
        theirs="none",
        here="text",
        why="some clients read it there",
    ),
    *(
        Difference(
            shown=f"`POST …/restart?includeTasks=true` of a {state} connector",
            requests=(f"`POST /connectors/orders/restart?includeTasks=true` of one that is {state}",),
            place="*.state",
            theirs="RESTARTING",
            here=state,
            why="nothing is running that could be restarted",
        )
        for state in ("PAUSED", "STOPPED")
    ),
    Difference(
        shown="`POST …/tasks/0/restart` of a stopped connector",
        requests=("`POST /connectors/orders/tasks/0/restart` of one that is STOPPED",),
        theirs="409",
        here="404",
        why="it has no task",
    ),
    Difference(
        shown="`GET …/config` and `PUT …/config/validate` of a plugin",
        requests=("*",),
        place="*.order",
        theirs="none",
        here="number",
        why="`order_in_group` had this name up to Kafka 4.1, and clients read it",
    ),
    Difference(
        shown="`GET …/config` of a converter; here of a rangefeed, encoder or sink",
        requests=("`GET /connector-plugins/PART/config`",),
        place="*.group",
        theirs="null",
        here="text",
        why="the group names the plugin",
    ),
    Difference(
        shown="`PUT /admin/loggers/{name}?scope=cluster`",
        requests=("*?scope=cluster`",),
        theirs="204",
        here="400",
        why="each server has its own levels",
    ),
    Difference(
        shown="`PUT /admin/loggers/{name}` of a logger that does not exist",
        requests=("`PUT /admin/loggers/nope`",),
        theirs="200",
        here="404",
        why="the name may be misspelled",
    ),
)
