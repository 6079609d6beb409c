"""What every benchmark is given: servers, a fresh database in it, a directory, and how much to do."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from benchmarks.workload import TRANSACTION_ROWS, connect
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_sink_kafka.demo.broker import KafkaBroker
from cdc_sink_kafka.demo.client import admin_client

_SETTINGS = {"max_wal_size": "16GB", "checkpoint_timeout": "1h", "shared_buffers": "256MB", "autovacuum": "off"}
_SETTINGS |= {"max_connections": "600", "max_replication_slots": "100", "max_wal_senders": "100"}
"""A server that is busy with changefeeds only, and as durable as one comes. The same for the peer."""
_BROKER_JAVA = ("-XX:TieredStopAtLevel=4", "-Xms384m")
"""A broker that runs fast: Java's compiler as it is by default."""
_MIN_ROWS = 100_000
_MIN_LATENCY_S = 8.0
_MIN_KILLS = 3


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much each benchmark does. All counts of changes are multiples of a transaction's rows."""

    part_rows: int = 500_000
    log_changes: int = 2_000_000
    log_rounds: int = 5
    scan_rows: int = 2_000_000
    latency_s: float = 25.0
    held_changes: int = 3_000_000
    backlog_changes: int = 5_000_000
    transaction_rows: int = 2_000_000
    backfill_rows: int = 5_000_000
    audit_rows: int = 2_000_000
    metrics_changes: int = 1_000_000
    kills: int = 20

    @classmethod
    def scaled(cls, share: float) -> Sizes:
        """Return *share* of the full sizes, at least enough to see something."""
        full = cls()
        return cls(
            log_rounds=max(1, round(full.log_rounds * min(share, 1.0))),
            latency_s=max(_MIN_LATENCY_S, full.latency_s * share),
            kills=max(_MIN_KILLS, round(full.kills * share)),
            **{
                name: max(_MIN_ROWS, round(getattr(full, name) * share / TRANSACTION_ROWS) * TRANSACTION_ROWS)
                for name in (
                    "part_rows",
                    "log_changes",
                    "held_changes",
                    "scan_rows",
                    "backlog_changes",
                    "transaction_rows",
                    "backfill_rows",
                    "audit_rows",
                    "metrics_changes",
                )
            },
        )


class Bench:
    """One run of the benchmarks. *directory* keeps what may be used again (the peer's environment), nothing else."""

    def __init__(self, directory: Path, sizes: Sizes) -> None:
        self.directory = directory
        self.sizes = sizes
        self._stack = ExitStack()
        self._server: EmbeddedPostgres | None = None
        self._broker: KafkaBroker | None = None

    def __enter__(self) -> Self:
        self.directory.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def server(self) -> EmbeddedPostgres:
        """The one PostgreSQL server of the run, started when first asked for."""
        if self._server is None:
            self._server = self._stack.enter_context(EmbeddedPostgres(settings=_SETTINGS))
        return self._server

    @property
    def broker(self) -> KafkaBroker:
        """The one Kafka broker of the run, started when first asked for."""
        if self._broker is None:
            self._broker = self._stack.enter_context(KafkaBroker(java_options=_BROKER_JAVA))
        return self._broker

    def delete_topics(self, *names: str) -> None:
        """Return when the broker knows topics *names* no more; their space comes back a little later."""
        with admin_client(self.broker.bootstrap_servers) as admin:
            for deleted in admin.delete_topics(list(names)).values():
                deleted.result()

    @contextmanager
    def database(self, name: str) -> Iterator[str]:
        """Yield the URI of a new database; afterwards it is gone with all of its slots."""
        admin = self.server.uri()
        with connect(admin) as connection:
            connection.execute(f'CREATE DATABASE "{name}"'.encode())
        try:
            yield self.server.uri(name)
        finally:
            with connect(admin) as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots"
                    " WHERE database = %s AND active_pid IS NOT NULL",
                    (name,),
                )
                connection.execute(
                    "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s", (name,)
                )
                connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())
                connection.execute("CHECKPOINT")

    @contextmanager
    def scratch(self, name: str) -> Iterator[Path]:
        """Yield an empty directory; afterwards it is gone, unless the benchmark failed."""
        path = self.directory / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        yield path
        shutil.rmtree(path, ignore_errors=True)
