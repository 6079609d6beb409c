"""The Python that Spark starts on the driver's host: has `python_forkserver` fork the process that was asked for.

A program of its own, which loads nothing but a few modules of the standard library. Its arguments are the directory of
the server's socket, the real Python, and what Spark would give that. It ends when the process does, with its status,
and the process when it does. Where there is no server anymore, or another thing than a module is to run, it becomes
the real Python.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_FAILED = 1


@contextmanager
def reached(directory: str) -> Iterator[str]:
    """Yield a path of the socket in *directory* that is as short as it must be. Raises: OSError without /proc."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{descriptor}/socket"
    finally:
        os.close(descriptor)


def launch(directory: str, python: str, arguments: Sequence[str]) -> int:
    """Return the status of the process that the server in *directory* has forked for *arguments*."""
    with socket.socket(socket.AF_UNIX) as server:
        if arguments[:1] != ["-m"] or not _forked(server, directory, arguments):
            os.execv(python, [python, *arguments])
        try:
            status = server.recv(1)
        except OSError:
            status = b""
        return status[0] if status else _FAILED  # a process that was killed says nothing


def _forked(server: socket.socket, directory: str, arguments: Sequence[str]) -> bool:
    """Return whether the server has forked a process."""
    here = {"environment": dict(os.environ), "directory": os.getcwd(), "process": os.getpid()}
    request = json.dumps({"arguments": list(arguments), **here}).encode()
    try:
        with reached(directory) as place:
            server.connect(place)
        socket.send_fds(server, [len(request).to_bytes(4, "big")], [0, 1, 2])
        server.sendall(request)
        return bool(server.recv(1))
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(launch(sys.argv[1], sys.argv[2], sys.argv[3:]))
