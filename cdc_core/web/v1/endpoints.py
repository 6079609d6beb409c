"""The endpoints under /v1."""

from __future__ import annotations

from typing import Any

from cdc_core.web.endpoint import Answer, Body, Endpoint, Parameter, Role, Schema
from cdc_core.web.previews import preview
from cdc_core.web.shapes import array, ref
from cdc_core.web.v1 import dead_letters, jobs, traces

__all__ = ["V1_ENDPOINTS"]

_JOB = Parameter(name="name", place="path", doc="Name of the job.", required=True, example="orders")
_TRACE = Parameter(name="number", place="path", doc="Number of the trace.", required=True, example="1")
_NODE = Parameter(name="name", place="path", doc="Name of the node.", required=True, example="one")


def _number(name: str, doc: str, least: int, most: int) -> Parameter:
    return Parameter(name=name, doc=doc, schema={"type": "integer", "minimum": least, "maximum": most})


def _endpoint(
    method: str,
    path: str,
    role: Role,
    handle: Any,
    summary: str,
    schema: Schema | None,
    *,
    status: int = 200,
    **more: Any,
) -> Endpoint:
    answer = Answer(status=status, doc=summary, schema=schema)
    return Endpoint(
        method=method, path=f"/v1{path}", role=role, handle=handle, summary=summary, answers=[answer], **more
    )


_OF_EVENTS = (
    Parameter(name="kind", doc="Only events of this kind. May be repeated.", schema=array({"type": "string"})),
    _number("after", "Only those with a greater number.", 0, 2**62),
    _number("limit", "At most so many of the latest. Default: 100.", 1, 1000),
)

V1_ENDPOINTS: tuple[Endpoint, ...] = (
    _endpoint("GET", "/jobs", Role.VIEW, jobs.jobs, "All jobs, without their histories.", array(ref("JobReport"))),
    _endpoint(
        "GET",
        "/jobs/{name}",
        Role.VIEW,
        jobs.job,
        "A job with its history.",
        ref("JobReport"),
        parameters=[_JOB],
        errors=[404],
    ),
    _endpoint(
        "GET",
        "/jobs/{name}/events",
        Role.VIEW,
        jobs.job_events,
        "The latest events of a job, the first one first.",
        array(ref("Event")),
        parameters=[_JOB, *_OF_EVENTS],
        errors=[400, 404],
    ),
    _endpoint(
        "GET",
        "/events",
        Role.VIEW,
        jobs.events,
        "The latest events of all jobs and nodes, the first one first.",
        array(ref("Event")),
        parameters=_OF_EVENTS,
        errors=[400],
    ),
    _endpoint(
        "POST",
        "/jobs/{name}/cancel",
        Role.ADMIN,
        jobs.cancel,
        "End a job for good. It stays listed.",
        ref("JobReport"),
        status=202,
        parameters=[_JOB],
        body=Body(schema=ref("Reason"), required=False, doc="Why, for the history of the job."),
        errors=[400, 404, 409, 415],
    ),
    _endpoint(
        "GET",
        "/jobs/{name}/dead-letters",
        Role.VIEW,
        dead_letters.dead_letters,
        "The dead letters that were not replayed.",
        array(ref("DeadLetter")),
        parameters=[
            _JOB,
            _number("limit", "At most so many. Default: 100.", 1, 1000),
            _number("after", "Only those with a greater number.", 0, 2**62),
        ],
        errors=[400, 404],
    ),
    _endpoint(
        "POST",
        "/jobs/{name}/dead-letters/replay",
        Role.OPERATE,
        dead_letters.replay_dead_letters,
        "Send the dead letters of a paused job to its sink again.",
        ref("Replayed"),
        parameters=[_JOB],
        body=Body(schema=ref("GiveUp"), required=False, doc="Numbers of dead letters to discard instead."),
        errors=[400, 404, 409, 415],
    ),
    _endpoint(
        "GET",
        "/jobs/{name}/preview",
        Role.OPERATE,
        preview,
        "The messages that a job would send for rows that its tables hold.",
        array(ref("Previewed")),
        parameters=[_JOB, _number("rows", "Of so many rows. Default: 20.", 1, 100)],
        errors=[400, 404, 409],
        costly=True,
    ),
    _endpoint(
        "GET",
        "/jobs/{name}/traces",
        Role.VIEW,
        traces.traces,
        "The traces of a job that are active, or are over for at most an hour.",
        array(ref("Trace")),
        parameters=[_JOB],
        errors=[404],
    ),
    _endpoint(
        "POST",
        "/jobs/{name}/traces",
        Role.OPERATE,
        traces.begin_trace,
        "Follow the next changes of a job, a table or a key to the sink.",
        ref("Trace"),
        status=201,
        parameters=[_JOB],
        body=Body(schema=ref("NewTrace"), required=False, doc="Which changes, how many, and for how long."),
        errors=[400, 404, 409, 415],
    ),
    _endpoint(
        "GET",
        "/jobs/{name}/traces/{number}",
        Role.VIEW,
        traces.trace,
        "A trace, with what became of each change until now.",
        ref("Trace"),
        parameters=[_JOB, _TRACE],
        errors=[404],
    ),
    _endpoint(
        "DELETE",
        "/jobs/{name}/traces/{number}",
        Role.OPERATE,
        traces.end_trace,
        "End a trace and forget what it found.",
        None,
        status=204,
        parameters=[_JOB, _TRACE],
        errors=[404],
    ),
    _endpoint(
        "GET", "/nodes", Role.VIEW, jobs.nodes, "All nodes, those that died within a day too.", array(ref("Node"))
    ),
    _endpoint("GET", "/nodes/{name}", Role.VIEW, jobs.node, "A node.", ref("Node"), parameters=[_NODE], errors=[404]),
    _endpoint(
        "POST",
        "/nodes/{name}/drain",
        Role.ADMIN,
        jobs.drain,
        "Have a node hand over its jobs and end.",
        ref("Node"),
        status=202,
        parameters=[_NODE],
        errors=[404, 409],
    ),
)
