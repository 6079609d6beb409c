"""The tutorials, each followed from beginning to end with real servers: its commands print what it shows."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Self

import pytest
from cdc_sink_kafka.demo.java_process import free_port
from cdc_testing.imports import ROOT
from cdc_testing.kafka_fixtures import Kafka
from cdc_testing.object_stores import free_ports
from cdc_testing.runs import eventually

_LIMIT_S = 300.0
_BLOCK = re.compile(r"```(console|toml|python)\n(.*?)```", re.DOTALL)
_COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
_INSTALLS = ("python3 -m venv", "pip ")
"""What .ci/check_outside.py does."""
_SERVERS = ("cdc demo", "weed")
_LOOKS = ("cat", "tail", "cdc show", "python l")
"""What a reader repeats until the changefeed has come so far."""
_VARYING = (
    (r"\d{19}\.\d{10}", "T"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME"),
    (r"(?m)^bash: line \d+: .* Killed .*\n", ""),
    (r"on \S+ \(process \d+\)", "on HOST"),
    (r"\d+(\.\d+)? (s|rows/s|files?)\b", r"N \2"),
    (r"127\.0\.0\.1:\d+", "SERVER"),
)


class Tutorial:
    """The page *name* of docs/tutorials, followed below *directory*; leaving the context ends what it started.

    *replaced* are texts of the page that stand for others in this test, such as ports.
    """

    def __init__(self, name: str, directory: Path, replaced: Mapping[str, str], **environment: str) -> None:
        text = (ROOT / "docs" / "tutorials" / f"{name}.md").read_text()
        for old, new in {"/tmp/": f"{directory}/", **replaced}.items():
            assert old in text, f"{name} has no {old}"
            text = text.replace(old, new)
        self._blocks = [(match[1], match[2]) for match in _BLOCK.finditer(text)]
        self._home = directory / "home"
        self._home.mkdir()
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        own = {"PATH": path, "HOME": str(self._home), "PYTHONUNBUFFERED": "1"}
        self._environment = {**os.environ, **own, **environment}
        self._terminal = self._bash(output=subprocess.PIPE, typed=subprocess.PIPE)
        self._servers: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in (self._terminal, *self._servers):
            with process:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)

    def follow(self) -> None:
        """Do all that the page says, from its first block to Ctrl-C at the end, and see that it is as it says."""
        for language, text in self._blocks:
            typed = _COMMAND.findall(text)
            if language != "console":
                name = text.partition("\n")[0].removeprefix("# ")
                self._type(f"cat > {name} <<'END'\n{text}END")
            elif any(command.startswith(_SERVERS) for command, _ in typed):
                self._serve(typed)
            else:
                for command, shown in typed:
                    if not command.startswith(_INSTALLS):
                        self._see(command, shown)
        for server in self._servers:
            os.killpg(server.pid, signal.SIGINT)
            status = server.wait(_LIMIT_S)
            assert status == 0 or "cdc demo" not in str(server.args), f"{server.args!r} ended with {status}"

    def _see(self, command: str, shown: str) -> None:
        """Type *command*, and see that it succeeds and prints what is *shown*, if anything is."""
        found = ""

        def seen() -> bool:
            nonlocal found
            status, found = self._type(command)
            return status == 0 and (not shown or shows(found, shown))

        try:
            eventually(command, seen, limit_s=_LIMIT_S if command.startswith(_LOOKS) else 0, look_s=0.5)
        except AssertionError as error:
            raise AssertionError(f"{error}; it printed\n{found}") from None

    def _serve(self, typed: list[tuple[str, str]]) -> None:
        """Type a block in a terminal of its own, and return when what runs there has printed what the page shows."""
        *before, (command, shown) = typed
        path = self._home / f"server-{len(self._servers)}.log"
        with path.open("w") as log:
            script = "\n".join(["set -e", *(each for each, _ in before), f"exec {command}"])
            self._servers.append(self._bash("-c", script, output=log))
        eventually(command, lambda: shows(path.read_text(), shown), limit_s=_LIMIT_S)

    def _type(self, command: str) -> tuple[int, str]:
        """Return the status of *command* and what it printed."""
        terminal = self._terminal
        assert terminal.stdin is not None
        assert terminal.stdout is not None
        terminal.stdin.write(f'{{\n{command}\n}} < /dev/null; echo "--- $?"\n')
        terminal.stdin.flush()
        timer = threading.Timer(_LIMIT_S, os.killpg, (terminal.pid, signal.SIGKILL))
        timer.start()
        printed = ""
        while (line := terminal.stdout.readline()) and not line.startswith("--- "):
            printed += line
        timer.cancel()
        timer.join()
        assert line, f"{command} ended the terminal:\n{printed}"
        return int(line.removeprefix("--- ")), printed

    def _bash(self, *arguments: str, output: IO[str] | int, typed: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", *arguments],
            cwd=self._home,
            env=self._environment,
            stdin=typed,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )


def shows(found: str, shown: str) -> bool:
    """Return whether *found* is what the page shows, except for what differs from one time to another.

    An ellipsis on the page stands for any text.
    """
    for pattern, name in _VARYING:
        found, shown = re.sub(pattern, name, found), re.sub(pattern, name, shown)
    return re.fullmatch(".*".join(map(re.escape, shown.strip().split("…"))), found.strip(), re.DOTALL) is not None


pytestmark = pytest.mark.slow


def test_the_quickstart(tmp_path: Path) -> None:
    with Tutorial("quickstart", tmp_path, {}) as tutorial:
        tutorial.follow()


def test_postgresql_to_kafka(tmp_path: Path, kafka_broker: Kafka, topic_prefix: str) -> None:
    """The broker is that of all tests; the registry, which the page does not use, is nowhere."""
    servers = {"KAFKA_BOOTSTRAP_SERVERS": kafka_broker.bootstrap_servers, "SCHEMA_REGISTRY_URL": "http://localhost:9"}
    with Tutorial("postgres-to-kafka", tmp_path, {"customers": f"{topic_prefix}customers"}, **servers) as tutorial:
        tutorial.follow()


def test_postgresql_to_s3_and_duckdb(tmp_path: Path) -> None:
    s3 = free_ports()
    names = ("master.port", "volume.port", "filer.port", "admin.port")
    ports = f"-bucket=changefeeds -s3.port={s3} " + " ".join(f"-{name}={free_ports()}" for name in names)
    own = f"{ports} -webdav=false -s3.port.iceberg=0 -s3.port.lance=0"
    with Tutorial("postgres-to-s3-duckdb", tmp_path, {"-bucket=changefeeds": own, ":8333": f":{s3}"}) as tutorial:
        tutorial.follow()


def test_postgresql_to_a_webhook(tmp_path: Path) -> None:
    with Tutorial("postgres-to-webhook", tmp_path, {"8088": str(free_port())}) as tutorial:
        tutorial.follow()
