"""The servers that other tests use work as documented."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from cdc_sink_kafka.demo.servers import KafkaBroker, SchemaRegistry
from cdc_testing.kafka_fixtures import (
    QUICK_RETURN,
    ClusterFactory,
)
from cdc_testing.kafka_reading import read_topics
from confluent_kafka import KafkaError, Message, Producer

from cdc_core import ConfigError

pytestmark = pytest.mark.slow

_quiet = logging.getLogger("quiet")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False

LIMIT_S = 600.0
"""Ends only waits that would never end."""


def send(
    bootstrap_servers: str, topic: str, *, partition: int = -1, limit_s: float = LIMIT_S, **settings: Any
) -> str | None:
    """Send one message. Return None when it was acknowledged, else the error that it has after *limit_s* seconds."""
    outcome: list[str | None] = []
    configuration = {name.replace("_", "."): value for name, value in settings.items()}
    base = {"bootstrap.servers": bootstrap_servers, "message.timeout.ms": int(LIMIT_S * 1000)}
    producer = Producer({**base, **configuration}, logger=_quiet)

    def note(error: KafkaError | None, _: Message) -> None:
        outcome.append(None if error is None else str(error))

    producer.produce(topic, b"x", partition=partition, on_delivery=note)
    producer.flush(limit_s)
    producer.purge()
    producer.flush(5)
    return outcome[0]


def test_a_killed_broker_starts_again_with_its_data(tmp_path: Path) -> None:
    with KafkaBroker(tmp_path, settings={**QUICK_RETURN, "num.partitions": "5"}) as broker:
        assert send(broker.bootstrap_servers, "a") is None
        broker.kill()
        assert not broker.running
        starter = threading.Thread(target=broker.start)
        starter.start()
        starter.join()
        assert broker.running, "the broker must outlive the thread that started it"
        assert len(list((tmp_path / "data").glob("a-[0-4]/*.log"))) == 5
        assert send(broker.bootstrap_servers, "a") is None
    with KafkaBroker(tmp_path) as successor:
        assert [message.value for message in read_topics(successor.bootstrap_servers, ["a"])] == [b"x", b"x"]


def test_a_paused_broker_does_not_answer_until_it_is_resumed_and_a_quota_slows_a_client_down(
    kafka_cluster: ClusterFactory,
) -> None:
    (broker,) = kafka_cluster(nodes=1).brokers
    assert send(broker.bootstrap_servers, "a") is None
    broker.pause()
    assert send(broker.bootstrap_servers, "a", limit_s=0.5) is not None
    broker.resume()
    assert send(broker.bootstrap_servers, "a") is None
    require_quota(broker)
    broker.pause()
    broker.stop()
    assert not broker.running


def require_quota(broker: KafkaBroker) -> None:
    broker.change_configs("--entity-type", "clients", "--entity-default", "--add-config", "producer_byte_rate=10000")
    waits: list[float] = []
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "throttle_cb": lambda event: waits.append(event.throttle_time),
    }
    producer = Producer(settings, logger=_quiet)
    for _ in range(20):
        producer.produce("a", bytes(5000))
        producer.poll(0)
    producer.flush(0.2)
    deadline = time.monotonic() + LIMIT_S
    while not waits and time.monotonic() < deadline:
        producer.poll(0.1)
    producer.purge()
    producer.flush(5)
    assert max(waits) > 0


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
    _, alive = psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], timeout=LIMIT_S)
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
