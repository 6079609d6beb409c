"""Every metric: the one list behind `cdc show`, the metrics endpoint and its documentation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]
_ENDINGS = {"counter": "_total"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric, as it is exposed and documented.

    `unit` is a base unit, or what is counted. `labels` are its own; those of all changefeeds come first. `buckets` are
    the upper bounds of a histogram, without infinity. `saved_as` is the name under which a changefeed's saved progress
    keeps it: for good, as totals outlive versions. Other metrics are computed when somebody asks.
    """

    name: str
    kind: Kind
    unit: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    saved_as: str | None = None
    bucket_keys: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """Where the saved progress keeps the count of each bucket, the last being those above all bounds."""

    def __post_init__(self) -> None:
        if not self.name.endswith(_ENDINGS.get(self.kind, "")) or bool(self.buckets) != (self.kind == "histogram"):
            raise ValueError(f"metric {self.name} is not a {self.kind}")
        keys = [f"{self.saved_as}/{bound:g}" for bound in (*self.buckets, float("inf"))]
        object.__setattr__(self, "bucket_keys", tuple(keys))

    @property
    def sum_key(self) -> str:
        """Where the saved progress keeps the sum of a histogram."""
        return f"{self.saved_as}/sum"

    def key(self, *labels: str) -> str:
        """Return the name of its value with these *labels* in the saved progress."""
        if self.saved_as is None or len(labels) != len(self.labels):
            raise ValueError(f"metric {self.name} is not saved with the labels {labels}")
        return ".".join((self.saved_as, *labels))


@dataclass(frozen=True, slots=True)
class Sample:
    """A value of a metric that is a counter or a gauge; of a histogram the count by bucket, the last being those above
    all bounds, and the sum.

    `since` is when a total began at 0; None: with the process.
    """

    metric: Metric
    value: float
    labels: tuple[str, ...] = ()
    counts: Sequence[float] = ()
    since: datetime | None = None


CHANGEFEED_LABELS = ("changefeed", "label")
"""Labels of every metric of a changefeed: its name, and its option metrics_label, which may be empty."""

_COMMIT_LATENCY_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
_DURATION_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_ROWS = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
_BYTES = tuple(64 * 4**power for power in range(11))


def _feed(
    name: str,
    kind: Kind,
    unit: str,
    help: str,  # noqa: A002
    *labels: str,
    buckets: tuple[float, ...] = (),
    saved_as: str | None = None,
) -> Metric:
    name = f"cdc_changefeed_{name}"
    return Metric(name=name, kind=kind, unit=unit, help=help, labels=labels, buckets=buckets, saved_as=saved_as)


def _process(name: str, kind: Kind, unit: str, help: str, *labels: str) -> Metric:  # noqa: A002
    return Metric(name=f"cdc_{name}", kind=kind, unit=unit, help=help, labels=labels)


# What tasks and the coordinator count: saved with the progress.

STEPS = _feed("steps_total", "counter", "steps", "Steps whose progress was saved.", saved_as="steps")
ROWS = _feed(
    "emitted_rows_total", "counter", "rows", "Rows that are durable at the sink or are dead letters.", saved_as="rows"
)
ROWS_REPEATED = _feed(
    "repeated_rows_total",
    "counter",
    "rows",
    "Emitted rows of repeated steps, which the sink may have twice.",
    saved_as="rows_repeated",
)
MESSAGES = _feed(
    "emitted_messages_total", "counter", "messages", "Messages that are durable at the sink.", saved_as="messages"
)
BYTES = _feed(
    "emitted_bytes_total",
    "counter",
    "bytes",
    "Bytes that are durable at the sink, after compression.",
    saved_as="bytes",
)
FILES = _feed("emitted_files_total", "counter", "files", "Files that are durable at the sink.", saved_as="files")
DEAD_LETTERS = _feed("dead_letters_total", "counter", "rows", "Rows that became dead letters.", saved_as="dead_letters")
STAGE_SECONDS = _feed(
    "stage_seconds_total",
    "counter",
    "seconds",
    "Time that tasks spend in each stage: waiting for the source, in the encoder, in the sink.",
    "stage",
    saved_as="seconds",
)
COMMIT_LATENCY = _feed(
    "commit_latency_seconds",
    "histogram",
    "seconds",
    "Time from the commit of a row until it is durable at the sink, by this host's clock. Every row of a"
    " batch is measured from the oldest commit in the batch. Scanned rows are not counted.",
    buckets=_COMMIT_LATENCY_S,
    saved_as="commit_latency",
)
FLUSH_SECONDS = _feed(
    "flush_seconds",
    "histogram",
    "seconds",
    "Duration of sink flushes; the count is the number of flushes.",
    buckets=_DURATION_S,
    saved_as="flush",
)
STEP_SECONDS = _feed(
    "step_seconds",
    "histogram",
    "seconds",
    "Duration of each step's slowest slice.",
    buckets=_DURATION_S,
    saved_as="step",
)
CHECKPOINT_SECONDS = _feed(
    "checkpoint_seconds",
    "histogram",
    "seconds",
    "Time to save the progress of a step.",
    buckets=_DURATION_S,
    saved_as="checkpoint",
)
BATCH_ROWS = _feed(
    "batch_rows", "histogram", "rows", "Rows per batch given to the sink.", buckets=_ROWS, saved_as="batch_rows"
)
MESSAGE_BYTES = _feed(
    "message_bytes",
    "histogram",
    "bytes",
    "Size of encoded message values, except in files.",
    buckets=_BYTES,
    saved_as="message_bytes",
)
RELEASE_FAILURES = _feed(
    "release_failures_total",
    "counter",
    "steps",
    "Steps after which the source did not release its history.",
    saved_as="release_failures",
)
UNRELEASED_STEPS = _feed(
    "unreleased_steps",
    "gauge",
    "steps",
    "Consecutive steps, up to the latest, after which the source did not release its history.",
    saved_as="releases_failed",
)

# What the source says of its history: saved under the source's own name of each gauge.

SOURCE_BYTES = _feed(
    "source_bytes",
    "gauge",
    "bytes",
    "Sizes that the source reports about its history, such as gauge=`retained`: the log that it retains for the"
    " changefeed.",
    "gauge",
)
SOURCE_SECONDS = _feed(
    "source_seconds", "gauge", "seconds", "Times that the source reports about its history, such as an age.", "gauge"
)
SOURCE_VALUE = _feed(
    "source_value", "gauge", "", "Values without a known unit that the source reports about its history.", "gauge"
)
SOURCE_AGE = _feed(
    "source_age_seconds",
    "gauge",
    "seconds",
    "Age of the values that the source reports. If no run asks the source, nodes and servers ask it once a minute.",
)

# What is computed when somebody asks.

LAG = _feed(
    "lag_seconds",
    "gauge",
    "seconds",
    "End-to-end lag: how far the high-water mark is behind the clock; before the first mark, the age of the"
    " changefeed. The lag grows while the changefeed is paused, has failed, or is not running.",
)
SOURCE_LAG = _feed(
    "source_lag_seconds",
    "gauge",
    "seconds",
    "The source's part of the lag: how long the changefeed has waited for a response from the source; 0 while the"
    " source responds.",
)
DELIVERY_LAG = _feed("delivery_lag_seconds", "gauge", "seconds", "The rest of the lag.")
HIGH_WATER = _feed(
    "high_water_timestamp_seconds",
    "gauge",
    "seconds",
    "The high-water mark, in seconds since 1970; 0 before the first mark.",
)
RESOLVED_AGE = _feed(
    "resolved_age_seconds", "gauge", "seconds", "Age of the last emitted resolved mark, if there is one."
)
PROTECTED_AGE = _feed(
    "protected_age_seconds",
    "gauge",
    "seconds",
    "How long the source has retained history for the changefeed, including while the changefeed is paused.",
)
CHECKPOINT_AGE = _feed("checkpoint_age_seconds", "gauge", "seconds", "How long ago progress was saved.")
DEAD_LETTERS_WAITING = _feed("dead_letters_waiting", "gauge", "rows", "Dead letters that have not been replayed.")
RETRIES = _feed(
    "retries_total",
    "counter",
    "attempts",
    "Failed attempts that were retried, by origin of the error: source, sink, spark, other.",
    "cause",
)
ATTEMPTS = _feed(
    "attempts_total",
    "counter",
    "attempts",
    "The epoch: the number of attempts, claims by nodes, and other takeovers.",
)
UP = _feed("up", "gauge", "", "1 while a run is alive: it has saved its status within 30 seconds. Otherwise 0.")
RETRYING = _feed(
    "retrying", "gauge", "", "1 from a failure until the next step is saved, even while an attempt runs. Otherwise 0."
)
STATE = _feed("state", "gauge", "", "1 for the state that the changefeed is in, 0 for the others.", "state")
SCAN_DONE = _feed("scan_done", "gauge", "", "How much of the running scan is done, in the unit of the label.", "unit")
SCAN_SIZE = _feed("scan_size", "gauge", "", "Total size of the running scan, in the unit of the label.", "unit")

STORE_UP = _process(
    "store_up",
    "gauge",
    "",
    "1 when the progress store could be read; otherwise 0, and all other values are out of date.",
)
STORE_READ_SECONDS = _process("store_read_seconds", "gauge", "seconds", "How long reading the progress store took.")

NODE_INFO = _process("node_info", "gauge", "", "Always 1; the labels identify the node.", "node", "version", "locality")
NODE_JOINED = _process("node_joined", "gauge", "", "1 while the node has a session in the store. Otherwise 0.")
NODE_DRAINING = _process("node_draining", "gauge", "", "1 while the node hands over its jobs. Otherwise 0.")
NODE_JOBS = _process("node_jobs", "gauge", "jobs", "Jobs that the node runs.")
NODE_LEADS = _process("node_leads", "gauge", "", "1 while the cluster's master runs on this node. Otherwise 0.")
NODE_CORES = _process("node_cores", "gauge", "cores", "Cores that the node offers to jobs of all nodes: `--cores`.")
NODE_ADOPTIONS = _process("node_adopted_jobs_total", "counter", "jobs", "Jobs that the node has adopted.")
NODE_FAILOVERS = _process(
    "node_failovers_total",
    "counter",
    "jobs",
    "Adopted jobs that the previous node did not hand over because it died or lost its session.",
)
NODE_SESSIONS_LOST = _process(
    "node_lost_sessions_total", "counter", "sessions", "Sessions that expired before the node left."
)
NODE_EXPIRED = _process(
    "node_expired_jobs_total",
    "counter",
    "jobs",
    "Jobs that the node has canceled because they retained history for longer than gc_protect_expires_after.",
)
JOBS = _process("jobs", "gauge", "jobs", "Jobs in the store by state; every node reports the same number.", "state")
NODES = _process("nodes", "gauge", "nodes", "Live nodes of the store; every node reports the same number.")

METRICS = tuple(metric for metric in list(vars().values()) if isinstance(metric, Metric))
CHANGEFEED_METRICS = tuple(metric for metric in METRICS if "_changefeed_" in metric.name)
"""Of one changefeed."""
PROCESS_METRICS = (STORE_UP, STORE_READ_SECONDS)
"""Of the process that exposes them."""
NODE_METRICS = tuple(metric for metric in METRICS if metric not in CHANGEFEED_METRICS + PROCESS_METRICS)
"""Of a node, and of the jobs of its store."""
_OF_CHANGEFEEDS = frozenset(metric.name for metric in CHANGEFEED_METRICS)


def labels_of(metric: Metric) -> tuple[str, ...]:
    """Return the names of all labels of *metric*, in the order of `Sample.labels`."""
    return (*CHANGEFEED_LABELS, *metric.labels) if metric.name in _OF_CHANGEFEEDS else metric.labels
