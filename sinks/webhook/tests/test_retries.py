"""What the status of a changefeed shows while the sink retries requests."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from cdc_sink_webhook.destination import WebhookDestination
from cdc_sink_webhook.sink import WebhookSink
from cdc_testing.runs import eventually
from cdc_testing.webhook_rig import WebhookRig, context, flush, rows

from cdc_core import RowBatch
from cdc_core.engine.fencing import FencedSink
from cdc_core.errors import FencedError
from cdc_core.telemetry.stages import SINK, Repeat, Stages


class Task(threading.Thread):
    """Writes rows to a sink as a task does. `repeats` are the ones that the status would show."""

    def __init__(self, sink: WebhookSink, rows: RowBatch) -> None:
        super().__init__(daemon=True)
        self.repeats: list[Repeat | None] = []
        self._sink = sink
        self._rows = rows

    def run(self) -> None:
        stages = Stages(SINK, changed=lambda stages: self.repeats.append(stages.repeat))
        with self._sink.context.calls.observed_by(stages):
            self._sink.emit(self._rows)
            self._sink.flush()


def test_the_reason_and_the_time_of_a_retry_are_reported_while_a_call_waits(hook: WebhookRig) -> None:
    hook.server.faults(random=[{"share": 1.0, "status": 500, "text": "out of order"}])
    task = Task(hook.sink(flush(retry={"Max": "inf", "Backoff": "200ms"})), rows([1]))
    task.start()
    eventually("a second retry", lambda: len([repeat for repeat in task.repeats if repeat]) > 1)
    now = time.time()
    first, second = [repeat for repeat in task.repeats if repeat][:2]
    request = f"request to https://localhost:{hook.server.port}"
    assert first.reason == f"{request} failed: response 500: out of order"
    assert second.reason == f"{request} failed 2 times: response 500: out of order"
    assert second.next_at - first.next_at > 0.1
    assert second.next_at < now + 1
    hook.server.faults()
    task.join(300)
    assert not task.is_alive()
    assert task.repeats[-1] is None


def test_a_call_that_waits_for_the_endpoint_ends_when_a_newer_attempt_has_begun(hook: WebhookRig) -> None:
    hook.server.faults(random=[{"share": 1.0, "status": 500, "text": "out of order"}])
    sink, asked = hook.sink(flush(retry={"Max": "inf", "Backoff": "10ms"})), 0

    def may_continue() -> None:
        nonlocal asked
        asked += 1
        if asked == 4:
            raise FencedError("another attempt began")

    fenced = FencedSink(sink, may_continue)
    fenced.emit(rows([1]))
    with pytest.raises(FencedError):
        fenced.flush()


@pytest.mark.parametrize(("options", "seconds"), [({}, 84.0), ({"webhook_client_timeout": "10s"}, 112.0)])
def test_the_longest_call_does_not_depend_on_the_number_of_retries(options: dict[str, Any], seconds: float) -> None:
    given = context("webhook-https://localhost:1/", {**flush(retry={"Max": "inf"}), **options})
    assert WebhookDestination(given).longest_call_s() == seconds
