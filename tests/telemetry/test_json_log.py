"""Log records as lines of JSON."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from contextvars import copy_context
from typing import Any

import pytest

from cdc_core.masking import MaskingFilter
from cdc_core.telemetry.logs import JsonFormatter, NamingFormatter, logged_as


class Lines(logging.Handler):
    """Keeps what would be printed, masked."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonFormatter())
        self.addFilter(MaskingFilter(["hunter2"]))
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))


@pytest.fixture(autouse=True)
def nothing_worked_on() -> Iterator[None]:
    """A reader that another test has left in the middle of a slice is not this thread's work."""
    with logged_as(""):
        yield


@pytest.fixture
def lines() -> Lines:
    return Lines()


@pytest.fixture
def log(lines: Lines) -> Any:
    logger = logging.Logger("cdc_core.engine.run")
    logger.addHandler(lines)
    return logger


def test_a_line_is_one_object_with_its_changefeed_and_event(lines: Lines, log: logging.Logger) -> None:
    log.warning("changefeed '%s': refused:\n%s", "orders", 'a "quoted" text ü', extra={"changefeed": "orders"})
    [text] = lines.texts
    assert "\n" not in text
    found = json.loads(text)
    assert found.pop("time").endswith("+00:00")
    assert found == {
        "level": "warning",
        "changefeed": "orders",
        "event": "engine.run.test_a_line_is_one_object_with_its_changefeed_and_event",
        "message": "changefeed 'orders': refused:\na \"quoted\" text ü",
    }


def test_a_line_names_its_changefeed_and_no_value_forges_one_or_controls_a_terminal(lines: Lines) -> None:
    def work() -> None:
        with logged_as("orders"):
            plugin.warning("the server is slow")
            inner = threading.Thread(target=copy_context().run, args=[plugin.warning, "in a thread of a plugin"])
            inner.start()
            inner.join()
            plugin.warning("job 'users' is named", extra={"changefeed": "users"})
        plugin.warning("of nothing in %s", "particular\nERROR \x1b]0;x\a\x1b[2J\r\x9b2J\x1b[1;31m!")
        plugin.warning("of an error", exc_info=(ValueError, ValueError("bad\nERROR forged"), None))

    plugin = logging.Logger("some_plugin")
    plugin.addHandler(lines)
    thread = threading.Thread(target=work, name="any")
    thread.start()
    thread.join()
    assert [json.loads(text)["changefeed"] for text in lines.texts] == ["orders", "orders", "users", None, None]
    assert "\x9b" not in lines.texts[3]
    assert "\x9b2J" in json.loads(lines.texts[3])["message"]
    lines.setFormatter(NamingFormatter("%(levelname)s %(message)s"))
    work()
    assert lines.texts[5:] == [
        "WARNING changefeed 'orders': the server is slow",
        "WARNING changefeed 'orders': in a thread of a plugin",
        "WARNING job 'users' is named",
        "WARNING of nothing in particular\n  ERROR \\u001b]0;x\\u0007\\u001b[2J\\u000d\\u009b2J\\u001b[1;31m!",
        "WARNING of an error\n  ValueError: bad\n  ERROR forged",
    ]


def test_an_event_may_be_given(lines: Lines, log: logging.Logger) -> None:
    log.info("%s", "of a child", extra={"event": "engine.run.wait"})
    assert json.loads(lines.texts[0])["event"] == "engine.run.wait"


def test_secrets_are_masked_in_texts_and_tracebacks(lines: Lines, log: logging.Logger) -> None:
    try:
        raise ValueError("password hunter2")
    except ValueError:
        log.exception("no access with %s", "hunter2")
    assert "hunter2" not in lines.texts[0]
    assert json.loads(lines.texts[0])["traceback"].endswith("ValueError: password ***")
