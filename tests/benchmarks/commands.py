"""Peers that are one command: they read a slot to the end of the log, into one file, and end."""

from __future__ import annotations

import os
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peer import PeerRun, SlotPeer, environment
from benchmarks.workload import connect

_RIVET = "rivet-cli==0.32.2"
_POLL_INTERVAL_S = 0.01


class CommandPeer(SlotPeer, ABC):
    """A command."""

    @abstractmethod
    def command(self) -> Sequence[str]:
        """Return the command, which writes to its standard output what is committed now."""

    def run(self, *, expect: int, timeout_s: float = 600.0) -> PeerRun:
        """Let the command write *expect* changes. Its rate counts from its start to its end: it has little to start.

        Raises: RuntimeError when it fails, or writes less than a line for each change.
        """
        output = self.work / "changes"
        launched = time.time()
        with output.open("wb") as file, (self.work / "log").open("ab") as log:
            process = subprocess.Popen(self.command(), cwd=self.work, stdout=file, stderr=log)
            try:
                while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
                    if time.time() - launched > timeout_s:
                        raise RuntimeError(f"{self.command()[0]} did not end in {timeout_s:.0f} s")
                    time.sleep(_POLL_INTERVAL_S)
            except BaseException:
                process.kill()
                raise
        last_s = time.time() - launched
        _, status, usage = ended
        process.returncode = os.waitstatus_to_exitcode(status)
        with output.open("rb") as file:
            lines = sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
            file.seek(0)
            sample = file.read(300).partition(b"\n")[0].decode(errors="replace")
        if process.returncode or lines < expect:
            raise RuntimeError(f"{self.command()[0]}: status {process.returncode}, {lines} lines, see {self.work}")
        return PeerRun(
            launch_s=0.0,
            events=expect,
            first_batch=0,
            first_s=0.0,
            last_s=last_s,
            sample=sample,
            peak_rss=usage.ru_maxrss * 1024,
        )


class Rivet(CommandPeer):
    """rivet, a program in Rust: one JSON object for each change."""

    plugin = "test_decoding"

    def command(self) -> Sequence[str]:
        program = environment(self.directory, _RIVET).with_name("rivet")
        arguments = ("--slot", self.name, "--table", self.table.rpartition(".")[2], "--checkpoint", "checkpoint")
        return [str(program), "cdc", "--source", self.uri, *arguments]


class RecvLogical(CommandPeer):
    """PostgreSQL's own client, from *binaries*. It decodes nothing: no other reader of a walsender is faster."""

    def __init__(self, directory: Path, uri: str, *, table: str, binaries: Path) -> None:
        super().__init__(directory, uri, table=table)
        self._program = binaries / "pg_recvlogical"

    def command(self) -> Sequence[str]:
        with connect(self.uri) as connection:
            end = connection.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
        assert end is not None
        options = ("proto_version=1", f"publication_names={self.name}", "binary=true")
        return [
            str(self._program),
            f"--dbname={self.uri}",
            f"--slot={self.name}",
            "--start",
            "--no-loop",
            f"--endpos={end[0]}",
            "--file=-",
            *(part for option in options for part in ("--option", option)),
        ]
