"""mq-bridge beside us: from the log of a table to a file of JSON lines, by its Rust core."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.peer import PeerRun, SlotPeer, peer_run

_PACKAGE = "mq-bridge==1.2.0"
_PROGRAM = Path(__file__).with_name("mq_bridge_route.py")
_BATCH = 32768
"""The fastest of 512, 2048, 8192 and 32768."""


class MqBridge(SlotPeer):
    """One route."""

    def run(self, *, expect: int, timeout_s: float = 600.0) -> PeerRun:
        """Let the route write *expect* changes to its file, which is new for each run."""
        Path(self._path).unlink(missing_ok=True)
        task = {"route": self._route(), "expect": expect, "timeout_s": timeout_s, "path": self._path}
        return peer_run(self.directory, self.work, package=_PACKAGE, program=_PROGRAM, task=task)

    @property
    def _path(self) -> str:
        return str(self.work / "changes.jsonl")

    def _route(self) -> dict[str, Any]:
        source = {
            "url": self.uri,
            "publication": self.name,
            "slot_name": self.name,
            "create_slot": False,
            "checkpoint_store": str(self.work / "checkpoint"),
        }
        return {
            "input": {"postgres_cdc": source},
            "output": {"file": {"path": self._path, "format": "raw"}},
            "batch_size": _BATCH,
        }
