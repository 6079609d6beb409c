"""The Python that Spark starts on the driver's host: has `python_server` fork the process that was asked for.

A program of its own, which loads nothing but a few modules of the standard library. Its arguments are the server's
socket, the real Python, and what Spark would give that. It ends when the process does, with its status. Where there is
no server any more, or another thing than a module is to run, it becomes the real Python.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress

__all__ = ["launch"]

_FAILED = 1


def launch(place: str, python: str, arguments: Sequence[str]) -> int:
    """Return the status of the process that the server at *place* has forked for *arguments*."""
    with socket.socket(socket.AF_UNIX) as server:
        pid = _forked(server, place, arguments) if arguments[:1] == ["-m"] else None
        if pid is None:
            os.execv(python, [python, *arguments])

        def end(number: int, _frame: object) -> None:
            """End the process too: Spark knows only this one."""
            with suppress(ProcessLookupError):
                os.kill(pid, number)
            os._exit(128 + number)

        signal.signal(signal.SIGTERM, end)
        try:
            status = server.recv(1)
        except OSError:
            status = b""
        return status[0] if status else _FAILED  # a process that was killed says nothing


def _forked(server: socket.socket, place: str, arguments: Sequence[str]) -> int | None:
    """Return the id of the process that the server has forked, None if it forks none."""
    asked = {"arguments": list(arguments), "environment": dict(os.environ), "directory": os.getcwd()}
    request = json.dumps(asked).encode()
    try:
        server.connect(place)
        socket.send_fds(server, [len(request).to_bytes(4, "big")], [0, 1, 2])
        server.sendall(request)
        answer = server.recv(4)
    except OSError:
        return None
    return int.from_bytes(answer, "big") if answer else None


if __name__ == "__main__":
    sys.exit(launch(sys.argv[1], sys.argv[2], sys.argv[3:]))
