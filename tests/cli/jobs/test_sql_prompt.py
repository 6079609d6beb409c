"""The prompt of `cdc sql`, on a pseudo-terminal."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import select
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest
from cdc_testing.command import Cdc
from cdc_testing.job_commands import created

from cdc_core.statements.reading import is_complete
from cdc_core.statements.secrets import holds_secret
from cdc_core.store.progress import ProgressStore


class Terminal:
    """A terminal on which `cdc sql` runs."""

    def __init__(self, state: Path, store: str) -> None:
        self._master, slave = pty.openpty()
        environ = {**os.environ, "XDG_STATE_HOME": str(state), "CDC_STORE": store, "TERM": "dumb"}
        command = [sys.executable, "-m", "cdc_core", "sql"]
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=environ, preexec_fn=_take_terminal
        )
        os.close(slave)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def until(self, wanted: str) -> str:
        """Return what was printed, up to and with *wanted*."""
        seen = ""
        while wanted not in seen:
            assert select.select([self._master], [], [], 120)[0], f"{wanted!r} does not come after {seen!r}"
            try:
                seen += os.read(self._master, 1).decode(errors="replace")
            except OSError:  # the process has ended
                raise AssertionError(f"{wanted!r} is not in {seen!r}") from None
        return re.sub(r"\x1b\[\?2004[hl]", "", seen)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)


def _take_terminal() -> None:
    """Have Ctrl-C on the terminal interrupt this process."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.fixture
def terminal(store: ProgressStore, tmp_path: Path) -> Iterator[Terminal]:
    created(store)
    opened = Terminal(tmp_path / "state", store.url)
    yield opened
    opened.close()


@pytest.mark.slow
def test_statements_are_typed_one_after_the_other_and_kept_in_the_history(
    terminal: Terminal, store: ProgressStore, tmp_path: Path
) -> None:
    terminal.until("cdc> ")
    terminal.type("PAUSE JOB 'orders\n")
    terminal.until("  -> ")
    terminal.type("\x03")  # Ctrl-C
    terminal.until("cdc> ")
    terminal.type("SHOW JBOS;\n")
    assert "error: statement, line 1, column 6: JOBS is missing" in terminal.until("cdc> ")
    terminal.type("PAUSE JOB orders\n")
    terminal.until("  -> ")
    terminal.type("  WITH REASON = 'a test';\n")
    assert "orders | pause-requested" in terminal.until("cdc> ")
    assert store.jobs.events("orders")[-1].reason == "a test"
    terminal.type("CREATE CHANGEFEED FOR t INTO 'kafka://user:hunter2@host';\n")
    terminal.until("name it with --source URI")
    terminal.until("cdc> ")
    terminal.type("\\q\n")
    assert terminal.process.wait(60) == 0
    kept = (tmp_path / "state" / "cdc" / "sql_history").read_text()
    assert kept.splitlines()[-2:] == ["SHOW JBOS;", "PAUSE JOB orders   WITH REASON = 'a test';"]
    assert "hunter2" not in kept


def test_without_a_terminal_the_statements_are_read_from_the_standard_input(
    store: ProgressStore, cdc: Cdc, monkeypatch: pytest.MonkeyPatch
) -> None:
    created(store)
    monkeypatch.setattr(sys, "stdin", io.StringIO("PAUSE JOB orders;\n"))
    assert "orders | pause-requested" in cdc("sql").out


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("SHOW JOBS;", True),
        ("SHOW JOBS; -- done", True),
        ("SHOW JOBS", False),
        ("PAUSE JOB 'a;", False),
        ("PAUSE JOB 'a\n';", True),
        ("SHOW JOBS; PAUSE", False),
        ("-- ;", False),
        ("", False),
    ],
)
def test_a_statement_goes_on_until_a_semicolon_ends_it(text: str, complete: bool) -> None:
    assert is_complete(text) is complete


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("CREATE CHANGEFEED FOR t INTO 'kafka://host:9092?topic_prefix=a'", False),
        ("CREATE CHANGEFEED FOR t INTO 'kafka://host' WITH sasl_password = '${PASSWORD}'", False),
        ("CREATE CHANGEFEED FOR t INTO 'kafka://user:${PASSWORD}@host'", False),
        ("CREATE CHANGEFEED FOR t INTO 'kafka://user:hunter2@host'", True),
        ("CREATE CHANGEFEED FOR t INTO 's3://b?AWS_SECRET_ACCESS_KEY=hunter2'", True),
        ("CREATE CHANGEFEED FOR t INTO 'webhook-https://host/hooks/hunter2'", True),
        ("CREATE CHANGEFEED FOR t INTO 'kafka://host' WITH sasl_password = 'hunter2'", True),
        ("CREATE CHANGEFEED FOR t INTO 'kafka://host' WITH resolved = '10s', format = json", False),
        ("PAUSE JOB 'a-b' WITH REASON = 'a test'", False),
        ("SHOW JBOS;", False),
        ("CREATE CHANGEFEED FOR t INTO 'kafka://host' WITH sasl_password = '${PASSWORD}hunter2'", True),
        ("CREATE CHANGEFEED FOR t INTO 'kafka://host' WITH sasl_password = '$${hunter2}'", True),
        ("CREATE CHANGEFEED FOR t INTO 'kafka://host' WITH sasl_password = hunter2", True),
        ("CREATE CHANGEFEED FOR t INTO 'kafka://host' WITH sasl_password /**/ = \"hunter2\"", True),
        ("CREATE CHANGEFEED FOR t INTO 'kafka://host' WITH extra_headers = '{\"X\": \"hunter2\"}'", True),
        ("CREATE CHANGEFEED FOR t INTO 'HTTPS://host/hooks/hunter2'", True),
        ("CREATE CHANGEFEED FOR t INTO 'WEBHOOK-HTTPS://host/hooks/hunter2'", True),
        ("CREATE CHANGEFEED FOR t INTO 's3://b?AWS_SECRET_ACCESS_KEY=${X}hunter2'", True),
        ("SHOW JOBS; -- hunter2", True),
        ("PAUSE JOB 'hunter2", True),
    ],
)
def test_what_may_hold_a_secret_is_not_for_the_history(text: str, secret: bool) -> None:
    assert holds_secret(text) is secret
