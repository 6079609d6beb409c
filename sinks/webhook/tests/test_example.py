"""The example receiver in the documentation accepts our requests and refuses forged ones."""

from __future__ import annotations

import base64
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cdc_testing.webhook_rig import WebhookRig, flush, rows

from cdc_core import Timestamp

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "receive_webhook.py"
OLD, NEW, FOREIGN = ("whsec_" + base64.b64encode(bytes([number] * 32)).decode() for number in range(3))


@pytest.fixture
def open_request() -> Callable[..., Any]:
    spec = importlib.util.spec_from_file_location("receive_webhook", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function: Callable[..., Any] = module.open_request
    return function


@pytest.fixture
def sent(hook: WebhookRig) -> list[tuple[dict[str, str], bytes]]:
    """Headers and bodies of a request with rows, a request that is retried, and a resolved mark."""
    options = {**flush(Messages=2), "webhook_signing_secret": f"{NEW} {OLD}"}
    sink = hook.sink(options)
    sink.emit(rows([1, 2]))
    sink.flush()
    hook.server.faults([{"reset": "after"}])
    sink.emit(rows([3]))
    sink.flush()
    hook.resolved_sink(options).emit_resolved(Timestamp(9))
    return [(request["headers"], base64.b64decode(request["body"])) for request in hook.server.requests(hook.path)]


def test_each_request_is_opened_once(open_request: Callable[..., Any], sent: list[Any]) -> None:
    done: set[str] = set()
    opened = []
    for headers, body in sent:
        opened.append(open_request(headers, body, secrets=[NEW], done=done))
        done.add(headers["webhook-id"])
    rows, row, repeat, mark = opened
    assert [message["key"] for message in rows] == [[1], [2]]
    assert [message["key"] for message in row] == [[3]]
    assert repeat is None
    assert mark == "9.0000000000"


def test_the_old_and_the_new_secret_are_both_accepted(open_request: Callable[..., Any], sent: list[Any]) -> None:
    for secret in (OLD, NEW):
        assert open_request(*sent[0], secrets=[FOREIGN, secret], done=())


def test_forged_and_old_requests_are_refused(open_request: Callable[..., Any], sent: list[Any]) -> None:
    headers, body = sent[0]
    forged = [
        (headers, body.replace(b"1", b"2")),
        ({**headers, "webhook-id": "another"}, body),
        ({**headers, "webhook-timestamp": str(int(headers["webhook-timestamp"]) + 1)}, body),
    ]
    for request in forged:
        with pytest.raises(PermissionError, match="no valid signature"):
            open_request(*request, secrets=[OLD, NEW], done=())
    with pytest.raises(PermissionError, match="no valid signature"):
        open_request(headers, body, secrets=[FOREIGN], done=())
    with pytest.raises(PermissionError, match="too old"):
        open_request({**headers, "webhook-timestamp": "1700000000"}, body, secrets=[NEW], done=())
