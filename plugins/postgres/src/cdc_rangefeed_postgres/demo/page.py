"""The page of a demo, served from the progress store of its changefeed."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cdc_rangefeed_postgres.demo.saying import say

__all__ = ["watched"]


@contextmanager
def watched(state: Path) -> Iterator[None]:
    """Serve the page inside the block, and print its address. Does nothing without the extra `serve` of cdc-core."""
    if importlib.util.find_spec("starlette") is None or importlib.util.find_spec("uvicorn") is None:
        yield
        return
    address = f"127.0.0.1:{_free_port()}"
    command = [sys.executable, "-P", "-m", "cdc_core", "serve", "--store", str(state), "--listen", address]
    server = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
    say(f"Watch it at http://{address}/ui")
    try:
        yield
    finally:
        server.terminate()
        server.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
