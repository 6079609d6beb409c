"""Events: what happened to changefeeds and nodes, as values, as rows and as log lines."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from cdc_core.store.values import moment_of, record_of

log = logging.getLogger(__name__)

KINDS: Mapping[str, str] = {
    "create_changefeed": "the changefeed was added to the store",
    "alter_changefeed": "the changefeed's definition was changed; `changed` lists the parts",
    "drop_changefeed": "the changefeed was removed from the store",
    "create_job": "the changefeed became a job, which nodes run",
    "alter_owner": "the owner of the job was changed",
    "changefeed_moved": "the changefeed was moved `from` one position `to` another: if `forward`, the changes in"
    " between are skipped; if `back`, they are delivered again",
    "rescan_requested": "a rescan was requested, which reads tables again",
    "trace_requested": "changes to a table, or to one key, are traced for a few minutes",
    "pause_requested": "a pause was requested",
    "resume_requested": "a resume was requested while the job was still pausing",
    "cancel_requested": "a cancellation was requested",
    "changefeed_started": "a run has begun to deliver",
    "changefeed_retried": "an attempt has failed, and another one follows; `cause` says what failed",
    "changefeed_paused": "the changefeed was paused, by request or because of an error",
    "changefeed_resumed": "the changefeed was resumed",
    "changefeed_stopped": "the run was stopped; the next run continues",
    "changefeed_succeeded": "the changefeed has delivered everything",
    "changefeed_failed": "the run or the job has failed",
    "changefeed_fenced": "the run ended because a newer attempt took over",
    "changefeed_adopted": "a node has claimed the job; `failover` is true if the previous node had not released it",
    "changefeed_released": "the node has released the job for another node",
    "changefeed_unmatched": "no live node matches the job, so it waits for such a node",
    "history_expired": "nodes cancel the job: it has retained history for longer than `gc_protect_expires_after`",
    "changefeed_reverting": "what the job created at its source is being dropped",
    "changefeed_canceled": "the job was canceled, or the progress of a run was handed over to a job",
    "changefeed_revert_failed": "the job has ended, but something that it created at its source may remain",
    "changefeed_emitted_bytes": "what the changefeed delivered since the previous event of this kind; logged once an"
    " hour, and when it ends",
    "dead_letters_replayed": "`count` dead letters were replayed, and `discarded` were discarded",
    "node_joined": "a node has joined the store",
    "cluster_led": "the node now runs the master of the nodes' cluster",
    "node_draining": "the node was asked to hand over its jobs",
    "node_left": "the node has left",
    "node_session_lost": "the node could not renew its session, and has stopped its jobs",
}
"""Every kind of event, and what it says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened, at `at` by the clock of the host that wrote it. `kind` is one of `KINDS`.

    `changefeed` and `node` are what it is about, `message` the reason, `details` JSON values of this kind. An event
    that happens again and again is one: it happened `times`, the last time at `last_at`. Holds no secret. `number`
    grows from event to event, and is 0 before the event is kept.
    """

    kind: str
    at: datetime
    changefeed: str | None = None
    node: str | None = None
    message: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    number: int = 0
    times: int = 1
    last_at: datetime | None = None

    def __post_init__(self) -> None:
        assert self.kind in KINDS, self.kind

    def to_json(self) -> dict[str, Any]:
        """Return the event as JSON values; docs/debugging.md explains each."""
        return {
            "number": self.number,
            "at": self.at.isoformat(timespec="milliseconds"),
            "event": self.kind,
            "changefeed": self.changefeed,
            "node": self.node,
            "message": self.message,
            "details": dict(self.details),
            "times": self.times,
            "last_at": (self.last_at or self.at).isoformat(timespec="milliseconds"),
        }


def event_of(row: Any) -> Event:
    """Return a row of the events' table as a value."""
    at = moment_of(row.at)
    assert at is not None
    given = {"at": at, "last_at": moment_of(row.last_at), "details": json.loads(row.details)}
    return record_of(Event, row, changefeed=row.name, number=row.id, **given)


def log_event(event: Event) -> None:
    """Log *event*, for logs in JSON: text logs say the same in other words, and leave it out."""
    about = f"node '{event.node}'" if event.changefeed is None else f"changefeed '{event.changefeed}'"
    text = event.kind if event.message is None else f"{event.kind}: {event.message}"
    extra = {"changefeed": event.changefeed, "event": event.kind, "details": {"node": event.node, **event.details}}
    log.info("%s: %s", about, text, extra=extra)
