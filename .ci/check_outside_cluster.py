"""Run a changefeed on a cluster whose worker has Spark and a Python without packages, by `cdc pack`.

check_outside.py starts this, in the directory for its files.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pyspark
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres, free_port

CDC = Path(sys.executable).with_name("cdc")
BARE_PYTHON = Path(sys.base_prefix) / "bin" / f"python{sysconfig.get_python_version()}"
TIMEOUT_S = 300.0


def main() -> int:
    told = subprocess.run([CDC, "pack", "environment.tar.gz"], stdout=subprocess.PIPE, text=True, check=True).stdout
    settings = told[told.index("[changefeed.NAME.spark]") :].replace("NAME", "orders")
    with cluster() as master, EmbeddedPostgres() as server:
        with psycopg.connect(server.uri(), autocommit=True) as database:
            database.execute(
                "CREATE TABLE orders AS SELECT id, 'order ' || id AS note FROM generate_series(1, 1000) id"
            )
            database.execute("ALTER TABLE orders ADD PRIMARY KEY (id)")
        own = {
            "master": master,
            "spark.pyspark.python": str(BARE_PYTHON),
            "spark.cores.max": "1",
            "spark.authenticate": "false",
        }
        own_settings = "".join(f'"{name}" = "{value}"\n' for name, value in own.items())
        sink = Path("out").absolute().as_uri()
        feed = f'[changefeed.orders]\nsource = "{server.uri()}"\ntables = ["orders"]\nsink = "{sink}"\n'
        refused = run(f"{feed}[changefeed.orders.spark]\n{own_settings}", status=2)
        assert "has no Python module cdc_core" in refused, refused
        run(f"{feed}{settings}{own_settings}", status=0)
    rows = [json.loads(line) for file in Path("out").rglob("*.ndjson") for line in file.read_text().splitlines()]
    assert sorted(row["after"]["id"] for row in rows) == list(range(1, 1001)), len(rows)
    return 0


def run(toml: str, *, status: int) -> str:
    """Run the changefeed that *toml* defines, and return what it says."""
    Path("feeds.toml").write_text(toml)
    done = subprocess.run([CDC, "run", "feeds.toml", "--once"], stderr=subprocess.PIPE, text=True)
    assert done.returncode == status, done.stderr
    return done.stderr


@contextmanager
def cluster() -> Iterator[str]:
    """Yield the URL of a master with one worker."""
    home = Path(pyspark.__file__).parent
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    environment |= {"SPARK_HOME": str(home), "SPARK_DAEMON_MEMORY": "256m"}
    environment["SPARK_MASTER_OPTS"] = "-Dspark.master.rest.enabled=false"  # other masters of this host are asked too
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    here = ["--host", "127.0.0.1", "--webui-port", "0"]
    commands = (
        ["org.apache.spark.deploy.master.Master", *here, "--port", str(port)],
        ["org.apache.spark.deploy.worker.Worker", *here, "--cores", "1", "--memory", "1g", "--work-dir", "work", url],
    )
    running: list[subprocess.Popen[bytes]] = []
    try:
        with open("cluster.log", "wb") as log:
            for command in commands:
                running.append(subprocess.Popen([home / "bin" / "spark-class", *command], env=environment, stderr=log))
                await_listening(port)
        yield url
    finally:
        for process in reversed(running):
            process.kill()
            process.wait()


def await_listening(port: int) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main())
