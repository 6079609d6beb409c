"""mq-bridge beside us: from the log of a table to a file of JSON lines, by its Rust core."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.peer import PeerRun, peer_run
from benchmarks.workload import connect

_PACKAGE = "mq-bridge==1.2.0"
_PROGRAM = Path(__file__).with_name("mq_bridge_route.py")
_BATCH = 32768
"""The fastest of 512, 2048, 8192 and 32768."""


class MqBridge:
    """One route with a slot and a publication of its own, on the table *table* of *uri*, for what changes from now on.

    The slot goes with the database that it is in.
    """

    def __init__(self, directory: Path, uri: str, *, table: str) -> None:
        self._directory = directory
        self._uri = uri
        self._table = table
        self._name = f"bench_{uuid.uuid4().hex[:8]}"
        self._work = directory / self._name

    def __enter__(self) -> Self:
        self._work.mkdir(parents=True)
        with connect(self._uri) as connection:
            connection.execute(f"CREATE PUBLICATION {self._name} FOR TABLE {self._table}".encode())
            connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (self._name,))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            shutil.rmtree(self._work)

    def run(self, *, expect: int, timeout_s: float = 600.0) -> PeerRun:
        """Let the route write *expect* changes to its file, which is new for each run."""
        Path(self._path).unlink(missing_ok=True)
        task = {"route": self._route(), "expect": expect, "timeout_s": timeout_s, "path": self._path}
        return peer_run(self._directory, self._work, package=_PACKAGE, program=_PROGRAM, task=task)

    @property
    def _path(self) -> str:
        return str(self._work / "changes.jsonl")

    def _route(self) -> dict[str, Any]:
        source = {
            "url": self._uri,
            "publication": self._name,
            "slot_name": self._name,
            "create_slot": False,
            "checkpoint_store": str(self._work / "checkpoint"),
        }
        return {
            "input": {"postgres_cdc": source},
            "output": {"file": {"path": self._path, "format": "raw"}},
            "batch_size": _BATCH,
        }
