"""Who emitted what of one job, and when: no two nodes may emit for a job at once.

A node frozen inside one call of a client is the exception that docs/guarantees.md names: the call ends when the node is
thawed, after another one may have taken over.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cdc_sink_cloudstorage.names import DataFile, ResolvedFile, parse_name
from cdc_testing.kafka_reading import Message

from cdc_core import Timestamp
from cdc_core.store.job_values import JobEvent

HEADER = "node"
"""The header that names the node which produced a message."""
_LAST_CALL_S = 5.0
"""How long after a thaw the call in which the node was frozen may still be heard of."""


@dataclass(frozen=True, slots=True)
class Freeze:
    """When a node was frozen and thawed, in seconds since 1970."""

    node: str
    since: float
    until: float


@dataclass(slots=True)
class Late:
    """What arrived from a node that another one had replaced: `wrong`, in words; `after_a_thaw` is excused."""

    wrong: list[str] = field(default_factory=list)
    after_a_thaw: int = 0

    def note(self, what: str, at: float, thaws: Iterable[Freeze]) -> None:
        if any(freeze.until <= at <= freeze.until + _LAST_CALL_S for freeze in thaws):
            self.after_a_thaw += 1
        else:
            self.wrong.append(what)


def late_messages(messages: Iterable[Message], history: Iterable[JobEvent], freezes: Sequence[Freeze]) -> Late:
    """Return the messages that the broker appended (LogAppendTime) while another node than their producer had the job.

    *history* is that of the job. Its times and those of the messages come from the clock of one machine.
    """
    claims = [(event.at, event.node) for event in history if event.reason == "adopted"]
    late, at_claim = Late(), -1
    for message in sorted(messages, key=lambda message: message.timestamp_ms):
        at = message.timestamp_ms / 1000
        while at_claim + 1 < len(claims) and claims[at_claim + 1][0] <= at:
            at_claim += 1
        producer = (dict(message.headers).get(HEADER) or b"").decode()
        since, node = claims[at_claim] if at_claim >= 0 else (0.0, None)
        if producer != node:
            what = (
                f"{message.topic}/{message.partition}@{message.offset} came from node '{producer}' {at - since:.3f} s"
            )
            frozen = [freeze for freeze in freezes if freeze.node == producer and freeze.since <= since <= freeze.until]
            late.note(f"{what} after node '{node}' had adopted the job", at, frozen)
    return late


def late_files(directory: Path, freezes: Sequence[Freeze]) -> Late:
    """Return the files that an earlier epoch published behind those of a later one, and marks that went back.

    A file of the step that a later epoch repeats has the name that the earlier one gave it, and is no fault.
    """
    late, mark = Late(), Timestamp()
    lowest: dict[int, tuple[Timestamp, Timestamp]] = {}
    """For each epoch the least and the greatest timestamp of its files so far."""
    found = ((path.stat().st_ctime, path) for path in directory.rglob("*") if path.is_file())
    for at, path in sorted(found):
        name = parse_name(path.name)
        if isinstance(name, ResolvedFile):
            if name.timestamp < mark:
                late.note(f"the mark {path.name} was written after that of {mark}", at, freezes)
            mark = max(mark, name.timestamp)
        elif isinstance(name, DataFile):
            later = [epoch for epoch, ends in lowest.items() if epoch > name.epoch and ends != (name.timestamp,) * 2]
            if later:
                late.note(f"{path.name} was written after files of epoch {max(later)}", at, freezes)
            least, greatest = lowest.get(name.epoch, (name.timestamp, name.timestamp))
            lowest[name.epoch] = min(least, name.timestamp), max(greatest, name.timestamp)
    return late
