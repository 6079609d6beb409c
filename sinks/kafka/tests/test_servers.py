"""The servers that other tests use work as documented."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from cdc_sink_kafka.demo.servers import KafkaBroker, SchemaRegistry

from cdc_core import ConfigError

pytestmark = pytest.mark.slow


def test_servers_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    code = (
        "import os, sys, pathlib\n"
        "from cdc_sink_kafka.demo.servers import SchemaRegistry\n"
        "registry = SchemaRegistry(pathlib.Path(sys.argv[1]))\n"
        "registry.start()\n"
        "print(registry.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    run = subprocess.run([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert run.returncode == -9
    pid = int(run.stdout)
    _, alive = psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], timeout=600)
    assert alive == []


def test_a_registry_that_cannot_start_gives_the_reason(tmp_path: Path) -> None:
    with SchemaRegistry(tmp_path / "first") as first:
        second = SchemaRegistry(tmp_path / "second")
        second.port = first.port
        second._answers = lambda: False  # type: ignore[method-assign]
        with pytest.raises(RuntimeError, match=r"ended while starting: (.|\n)*in use by another process"):
            second.start()


def test_the_error_without_java_or_maven_names_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    broker = KafkaBroker(tmp_path / "broker")
    with pytest.raises(ConfigError, match="apt-get install maven"):
        broker.start()
    (tmp_path / "mvn").write_text(f"#!{os.path.realpath('/bin/sh')}\necho no such thing\nexit 1\n")
    (tmp_path / "mvn").chmod(0o755)
    with pytest.raises(ConfigError, match="mvn could not download Apache Kafka: no such thing"):
        broker.start()
    monkeypatch.delenv("XDG_CACHE_HOME")
    (tmp_path / "setpriv").symlink_to("/usr/bin/setpriv")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ConfigError, match="default-jre-headless"):
        broker.start()
