"""What the status of a changefeed shows while the sink retries requests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from cdc_sink_webhook.sink import WebhookSink
from cdc_testing.engine import eventually
from cdc_testing.webhook_server import WebhookServer

from cdc_core import RowBatch
from cdc_core.telemetry.stages import SINK, Repeat, Stages


class Task(threading.Thread):
    """Writes rows to a sink as a task does. `repeats` are the ones that the status would show."""

    def __init__(self, sink: WebhookSink, rows: RowBatch) -> None:
        super().__init__(daemon=True)
        self.repeats: list[Repeat | None] = []
        self._sink = sink
        self._rows = rows

    def run(self) -> None:
        with Stages(SINK, changed=lambda stages: self.repeats.append(stages.repeat)).measured():
            self._sink.emit(self._rows)
            self._sink.flush()


def test_the_reason_and_the_time_of_a_retry_are_reported_while_a_call_waits(
    open_sink: Callable[..., WebhookSink],
    rows: Callable[..., RowBatch],
    flush: Callable[..., dict[str, Any]],
    server: WebhookServer,
) -> None:
    server.faults(random=[{"share": 1.0, "status": 401, "text": "wrong token"}])
    task = Task(open_sink(flush(retry={"Max": "inf", "Backoff": "200ms"})), rows([1]))
    task.start()
    eventually(lambda: len([repeat for repeat in task.repeats if repeat]) > 1, what="a second retry")
    now = time.time()
    first, second = [repeat for repeat in task.repeats if repeat][:2]
    request = f"request to https://localhost:{server.port}"
    assert first.reason == f"{request} failed: answer 401: wrong token"
    assert second.reason == f"{request} failed 2 times: answer 401: wrong token"
    assert second.next_at - first.next_at > 0.1
    assert second.next_at < now + 1
    server.faults()
    task.join(30)
    assert not task.is_alive()
    assert task.repeats[-1] is None
