"""The shapes of what is under /v1."""

from __future__ import annotations

from cdc_core.changefeeds.tracing import MAX_CHANGES
from cdc_core.store.job_values import FOLLOWING
from cdc_core.web.endpoint import Schema
from cdc_core.web.shapes import TEXT, any_object, array, nullable, record, ref

__all__ = ["SHAPES"]

_JOB_STATES = [*FOLLOWING, "retrying"]
SHAPES: dict[str, Schema] = {
    "Event": {
        **record(
            {
                "number": {"type": "integer"},
                "at": TEXT,
                "event": TEXT,
                "changefeed": nullable("string"),
                "node": nullable("string"),
                "message": nullable("string"),
                "details": any_object(),
                "times": {"type": "integer"},
                "last_at": TEXT,
            }
        ),
        "description": "docs/debugging.md explains each kind of event.",
    },
    "JobReport": {
        **record(
            {
                "name": TEXT,
                "state": {"type": "string", "enum": _JOB_STATES},
                "tables": array(TEXT),
                "sink": TEXT,
                "format": TEXT,
                "high_water": nullable("string"),
                "behind_s": nullable("number"),
                "gauges": any_object(),
                "gauges_at": nullable("string"),
                "retrying": nullable("object"),
                "dead_letters": {"type": "integer"},
                "epoch": {"type": "integer"},
                "job": any_object(),
            }
        ),
        "description": "What `cdc show --json` prints of a job; docs/operations.md explains each value.",
    },
    "Node": record(
        {
            "name": TEXT,
            "node_id": TEXT,
            "state": {"type": "string", "enum": ["alive", "draining", "dead"]},
            "locality": nullable("string"),
            "host": TEXT,
            "pid": {"type": "integer"},
            "version": TEXT,
            "jobs": array(TEXT),
            "max_jobs": {"type": "integer"},
            "started": TEXT,
            "expires": TEXT,
            "owners": array(TEXT),
            "problems": any_object(),
        }
    ),
    "DeadLetter": record(
        {
            "number": {"type": "integer"},
            "refused_at": nullable("string"),
            "table": TEXT,
            "key": TEXT,
            "updated": TEXT,
            "stage": TEXT,
            "error": TEXT,
        }
    ),
    "Replayed": record(
        {
            "sent": {"type": "integer"},
            "kept": array(record({"row": TEXT, "stage": TEXT, "reason": TEXT})),
            "missing": {"type": "integer"},
            "given_up": {"type": "integer"},
        }
    ),
    "Previewed": record(
        {
            "topic": TEXT,
            "key": nullable("string"),
            "value": nullable("string"),
            "headers": nullable("object"),
            "decoded": {"type": "boolean"},
            "error": nullable("string"),
        }
    ),
    "Trace": record(
        {
            "number": {"type": "integer"},
            "table": nullable("string"),
            "key": nullable("array"),
            "rows": {"type": "integer"},
            "until": TEXT,
            "active": {"type": "boolean"},
            "changes": array(ref("TracedChange")),
        }
    ),
    "TracedChange": {
        **record(
            {
                "table": TEXT,
                "key": {"type": "array"},
                "op": TEXT,
                "updated": TEXT,
                "committed_at": TEXT,
                "position": nullable("string"),
                "step": {"type": "integer"},
                "stages": any_object(),
                "place": any_object(),
                "dead_letter": nullable("string"),
                "left_out": {"type": "boolean"},
                "complete": {"type": "boolean"},
            }
        ),
        "description": "docs/trace.md explains each value.",
    },
    "NewTrace": record(
        {
            "table": nullable("string"),
            "key": {"type": ["array", "null"], "items": {"type": ["string", "number", "boolean"]}, "minItems": 1},
            "rows": {"type": "integer", "minimum": 1, "maximum": MAX_CHANGES},
            "timeout": TEXT,
        },
        required=[],
        closed=True,
    ),
    "Reason": record({"reason": TEXT}, required=[], closed=True),
    "GiveUp": record({"give_up": array({"type": "integer"})}, required=[], closed=True),
}
