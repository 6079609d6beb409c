"""Another user of this host, who knows no secret."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable

import psutil

NOBODY = 65534
_BECOME = f"import os, socket, struct, sys\nos.geteuid() or os.setuid({NOBODY})\n"
"""That user may have no Python: this one loads what is needed."""


def as_stranger(code: str, *words: str) -> bytes:
    """Return what *code* prints when another user runs it with *words*; this user, who is not root, in its place."""
    command = [sys.executable, "-P", "-S", "-c", _BECOME + code, *words]
    return subprocess.run(command, capture_output=True, check=True, timeout=120).stdout


def listening(processes: Iterable[psutil.Process]) -> dict[int, str]:
    """Return the TCP ports at which *processes* listen, with their addresses."""
    found = {}
    for process in processes:
        try:
            sockets = process.net_connections("tcp")
        except psutil.NoSuchProcess:
            continue
        found |= {each.laddr.port: each.laddr.ip for each in sockets if each.status == psutil.CONN_LISTEN}
    return found
