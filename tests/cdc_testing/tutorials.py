"""A tutorial, followed as its reader does: its files written, its commands typed, what they print compared."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from cdc_testing.imports import ROOT
from cdc_testing.runs import eventually

_LIMIT_S = 300.0
_BLOCK = re.compile(r"```(console|toml|python)\n(.*?)```", re.DOTALL)
_INSTALLS = ("python3 -m venv", "pip install")
"""What .ci/check_outside.py does."""
_SERVERS = ("cdc demo", "weed")
_LOOKS = ("cat", "tail", "cdc show", "python l")
"""What a reader repeats until the changefeed has come so far."""
_VARYING = (
    (r"\d{19}\.\d{10}", "T"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME"),
    (r"on \S+ \(process \d+\)", "on HOST"),
    (r"\d+(\.\d+)? (s|rows/s|B|KB|MB)\b", r"N \2"),
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
        self._environment = {
            **os.environ,
            "PATH": path,
            "HOME": str(self._home),
            "PYTHONUNBUFFERED": "1",
            **environment,
        }
        self._terminal = self._bash()
        self._servers: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in (self._terminal, *self._servers):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def follow(self) -> None:
        """Do all that the page says, from its first block to Ctrl-C at the end, and see that it is as it says."""
        for language, text in self._blocks:
            if language != "console":
                name = text.partition("\n")[0].removeprefix("# ")
                self._type(f"cat > {name} <<'END'\n{text}END")
            elif any(command.startswith(_SERVERS) for command, _ in commands(text)):
                self._serve(text)
            else:
                for command, printed in commands(text):
                    if not command.startswith(_INSTALLS):
                        self._see(command, printed)
        for server in self._servers:
            os.killpg(server.pid, signal.SIGINT)
            status = server.wait(_LIMIT_S)
            assert status == 0 or "cdc demo" not in str(server.args), f"{server.args!r} ended with {status}"

    def _see(self, command: str, printed: str) -> None:
        found = ""

        def seen() -> bool:
            nonlocal found
            found = self._type(command)
            return comparable(found) == comparable(printed)

        if command.startswith(_LOOKS) and printed:
            try:
                eventually(command, seen, limit_s=60)
            except AssertionError as error:
                raise AssertionError(f"{error}; the last time it printed:\n{found}") from None
        else:
            assert seen() or not printed, f"{command} printed:\n{found}"

    def _serve(self, text: str) -> None:
        """Type a block in a terminal of its own, and return when what runs there has printed what the page shows."""
        *before, (command, shown) = commands(text)
        server = self._bash("-c", "\n".join(["set -e", *(each for each, _ in before), f"exec {command}"]))
        self._servers.append(server)
        assert server.stdout is not None
        read = ""
        with _limited(server):
            while shown not in read:
                line = server.stdout.readline()
                assert line, f"{command} ended:\n{read}"
                read += line
        threading.Thread(target=server.stdout.read, daemon=True).start()

    def _type(self, command: str) -> str:
        """Return what *command* prints. Raises: AssertionError when it fails."""
        terminal = self._terminal
        assert terminal.stdin is not None
        assert terminal.stdout is not None
        terminal.stdin.write(f'{{\n{command}\n}} < /dev/null; echo "--- $?"\n')
        terminal.stdin.flush()
        printed = ""
        with _limited(terminal):
            while (line := terminal.stdout.readline()) and not line.startswith("--- "):
                printed += line
        assert line == "--- 0\n", f"{command} ended with {line or 'the terminal'}:\n{printed}"
        return printed

    def _bash(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", *arguments],
            cwd=self._home,
            env=self._environment,
            stdin=subprocess.DEVNULL if arguments else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )


@contextmanager
def _limited(process: subprocess.Popen[str]) -> Iterator[None]:
    """Kill *process* with all that it started when the block takes too long."""
    timer = threading.Timer(_LIMIT_S, os.killpg, (process.pid, signal.SIGKILL))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def commands(text: str) -> list[tuple[str, str]]:
    """Return the commands of a block, each with what it prints."""
    return [(command, printed) for command, printed in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE)]


def comparable(text: str) -> str:
    """Return *text* without what differs from one time to another."""
    for pattern, name in _VARYING:
        text = re.sub(pattern, name, text)
    return text
