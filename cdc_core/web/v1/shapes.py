"""The shapes of what is under /v1."""

from __future__ import annotations

from cdc_core.changefeeds.tracing import MAX_CHANGES
from cdc_core.store.job_values import FOLLOWING
from cdc_core.web.endpoint import Schema
from cdc_core.web.shapes import array, choice, record

SHAPES: dict[str, Schema] = {
    "Event": record(
        "number:integer at event changefeed? node? message? details:object times:integer last_at",
        doc="docs/debugging.md explains each kind of event.",
    ),
    "JobReport": record(
        "name state tables:[string] sink format high_water? behind_s:number? gauges:object gauges_at? retrying:object?"
        " dead_letters:integer epoch:integer job:object",
        state=choice([*FOLLOWING, "retrying"]),
        doc="What `cdc show --json` prints of a job; docs/operations.md explains each value.",
    ),
    "Node": record(
        "name node_id state locality? host pid:integer version jobs:[string] max_jobs:integer started expires"
        " owners:[string] address? leads:boolean cores:integer cores_used:integer aggregates:[string] problems:object",
        state=choice(["alive", "draining", "dead"]),
    ),
    "DeadLetter": record("number:integer refused_at? table key updated stage error"),
    "Replayed": record("sent:integer kept missing:integer given_up:integer", kept=array(record("row stage reason"))),
    "Previewed": record("topic key? value? headers:object? decoded:boolean error?"),
    "Trace": record("number:integer table? key:array? rows:integer until active:boolean changes:[TracedChange]"),
    "TracedChange": record(
        "table key:array op updated committed_at position? step:integer stages:object place:object dead_letter?"
        " left_out:boolean complete:boolean",
        doc="docs/trace.md explains each value.",
    ),
    "NewTrace": record(
        "table? key rows timeout",
        key={"type": ["array", "null"], "items": {"type": ["string", "number", "boolean"]}, "minItems": 1},
        rows={"type": "integer", "minimum": 1, "maximum": MAX_CHANGES},
        required=[],
        closed=True,
    ),
    "Reason": record("reason", required=[], closed=True),
    "GiveUp": record("give_up:[integer]", required=[], closed=True),
}
