"""One changefeed: its strip from source to sink, charts, spans, history, definition and dead letters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cdc_core.masking import MASK, is_secret_name, masked_uri
from cdc_core.span import Span
from cdc_core.store.event_values import Event
from cdc_core.store.reports import Report
from cdc_core.store.traced_change import STAGES
from cdc_core.store.traces import TraceRecord
from cdc_core.store.values import DeadLetter
from cdc_core.telemetry import metrics
from cdc_core.telemetry.stages import ENCODE, SINK, SOURCE
from cdc_core.timestamp import Timestamp
from cdc_core.web.page.history import Measurement
from cdc_core.web.page.texts import (
    FOR_ADMINS,
    UNKNOWN,
    Tone,
    actions_of,
    age_text,
    bytes_text,
    moment_text,
    number_text,
    rate_text,
    share_text,
)

EVENTS = 50
"""How many events are shown."""
LETTERS = 50
"""How many dead letters are shown."""
_ORDER = ("source", "tables", "query", "functions", "table", "sink", "format", "options", "spark")
_NOT_WRITTEN = ("literal_secrets", "plugins", "written")
_SELECTING = ("query", "selections")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A name and what belongs to it."""

    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Station:
    """A stage on the way of a row. `waits` says what is waited for there; mostly it is empty."""

    stage: str
    title: str
    place: str
    share: str
    waits: str
    tone: Tone


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a chart shows, as of now: readable without the chart."""

    chart: str
    title: str
    value: str
    detail: str
    keys: Sequence[Fact] = ()
    """The lines of a chart that has several: the color by its name, and what the line is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangefeedView:
    """What the page of one changefeed shows: its report, first dead letters, latest events and traces. Holds no secret.

    Of events, the last one is last; of traces, it is first.
    """

    report: Report
    measured: Measurement
    letters: Sequence[DeadLetter]
    events: Sequence[Event]
    traces: Sequence[TraceRecord]
    for_admins: Sequence[str] = FOR_ADMINS
    trace_stages: Sequence[str] = STAGES

    @property
    def name(self) -> str:
        return self.report.known.name

    @property
    def doing(self) -> str:
        """What is done for a job, or what it waits for; empty while it runs, as the strip says more then."""
        text = self.report.running_status
        return "" if text.startswith(("running", "retrying")) else text

    @property
    def is_evaluated(self) -> bool:
        """Whether a query, or sections of tables, select what is delivered."""
        return any(self.report.known.definition.get(name) for name in _SELECTING)

    @property
    def actions(self) -> Sequence[str]:
        return actions_of(self.report)

    @property
    def stations(self) -> Sequence[Station]:
        return _stations(self.report, self.measured)

    @property
    def readings(self) -> Sequence[Reading]:
        return _readings(self.report, self.measured)

    @property
    def facts(self) -> Sequence[Fact]:
        return list(_facts(self.report))

    @property
    def spans(self) -> Sequence[tuple[Span, Timestamp]]:
        """The spans and what is resolved of each, those that are furthest behind first."""
        found = () if self.report.progress is None else self.report.progress.frontier
        return sorted(found, key=lambda entry: (entry[1], entry[0]))

    @property
    def retries(self) -> Sequence[tuple[str, int]]:
        """How often what was retried, by cause."""
        status = {} if self.report.status is None else self.report.status.values
        return sorted(status.get("retries", {}).items())

    @property
    def definition(self) -> Sequence[Fact]:
        return list(_definition(self.report.known.definition))


def _stations(report: Report, measured: Measurement) -> list[Station]:
    status: Mapping[str, Any] = {} if report.status is None or not report.is_alive else report.status.values
    definition, waits = report.known.definition, {}
    waiting_on, waiting_for = str(status.get("waiting_on") or ""), str(status.get("waiting_for") or "")
    if waiting_on or waiting_for:
        waits[_stage_of(waiting_on)] = ": ".join(filter(None, (waiting_on, waiting_for)))
    stations = []
    for stage, place in (
        (SOURCE, ", ".join(masked_uri(source) for source in report.known.sources)),
        (ENCODE, str(definition.get("format") or "")),
        (SINK, masked_uri(str(definition.get("sink") or "")) or "none"),
    ):
        waiting = waits.get(stage, "")
        stations.append(
            Station(
                stage=stage,
                title={ENCODE: "encoder"}.get(stage, stage),
                place=place,
                share=share_text(measured.shares[stage]) if stage in measured.shares else UNKNOWN,
                waits=waiting,
                tone="warn" if waiting and waiting_for else "good" if status and report.retrying is None else "rest",
            )
        )
    return stations


def _stage_of(waiting_on: str) -> str:
    """Return the stage that a status waits at; what it does not name is the source's, as `changes` are."""
    return next((stage for stage, word in ((SINK, "sink"), (ENCODE, "encoder")) if waiting_on.startswith(word)), SOURCE)


def _readings(report: Report, measured: Measurement) -> list[Reading]:
    half, most, nearly_all = map(age_text, measured.latencies_s)
    rows = report.tally.value(metrics.ROWS)
    return [
        Reading(chart="lag", title="Lag", value=age_text(measured.lag_s), detail="behind the clock, end to end"),
        Reading(
            chart="rate",
            title="Rate",
            value=f"{rate_text(measured.rows_per_s)} rows/s",
            detail=f"{number_text(rows)} rows in all",
        ),
        Reading(
            chart="latency",
            title="Latency from commit, 95%",
            value=most,
            detail="",
            keys=(
                Fact(name="sink", value=f"50% {half}"),
                Fact(name="source", value=f"95% {most}"),
                Fact(name="encode", value=f"99% {nearly_all}"),
            ),
        ),
        Reading(
            chart="retained",
            title="Retained log",
            value=bytes_text(measured.retained_bytes),
            detail=_retained_detail(report),
        ),
    ]


def _retained_detail(report: Report) -> str:
    """Return what the size is of, and how old it is when it could not be measured now."""
    age_s = report.stale_gauges_age_s
    return "kept at the source for this changefeed" if age_s is None else f"as measured {age_text(age_s)} ago"


def _facts(report: Report) -> Iterator[Fact]:
    tally, known = report.tally, report.known
    job = report.job
    status = {} if report.status is None else report.status.values
    if job is not None:
        yield Fact(name="node", value=job.node or UNKNOWN)
        yield Fact(name="owner", value=job.owner)
        yield Fact(name="locality", value=str(job.locality) or "any")
    elif status:
        yield Fact(name="process", value=f"{status.get('host')}, {status.get('pid')}")
    yield Fact(name="epoch", value=number_text(known.epoch))
    yield Fact(name="steps", value=number_text(tally.value(metrics.STEPS)))
    yield Fact(name="rows", value=number_text(tally.value(metrics.ROWS)))
    yield Fact(name="repeated", value=number_text(tally.value(metrics.ROWS_REPEATED)))
    yield Fact(name="bytes", value=bytes_text(tally.value(metrics.BYTES)))
    if files := tally.value(metrics.FILES):
        yield Fact(name="files", value=number_text(files))
    if scan := status.get("scan"):
        yield Fact(name="scan", value=f"{scan['done']:,} of {scan['total']:,} {scan['unit']}")
    yield Fact(name="saved", value=moment_text(known.saved_at))
    yield Fact(name="created", value=moment_text(known.created))


def _definition(definition: Mapping[str, Any]) -> Iterator[Fact]:
    """Yield what the user wrote, in its order; references such as ${PASSWORD} are shown as they are."""
    written = definition.get("written")
    if written is None:
        written = {name: value for name, value in definition.items() if name not in _NOT_WRITTEN}
    ordered = {name: written[name] for name in _ORDER if name in written}
    yield from _flattened("", {**ordered, **written})


def _flattened(prefix: str, value: Any) -> Iterator[Fact]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _flattened(f"{prefix}.{name}" if prefix else str(name), inner)
    elif isinstance(value, list | tuple):
        if value:
            yield Fact(name=prefix, value="\n".join(shown_value(prefix, each) for each in value))
    elif value is not None and value != "":
        yield Fact(name=prefix, value=shown_value(prefix, value))


def shown_value(name: str, value: Any) -> str:
    """Return a value as text. The store holds no secret; one that an old version left there is masked all the same."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if "://" in text and "${" not in text:
        return masked_uri(text)
    return text if "${" in text or not is_secret_name(name.rpartition(".")[2]) else MASK
