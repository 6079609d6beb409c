"""`cdc check` on a Kafka that cannot be used: one clear sentence in seconds, exit status 2, no secret, nothing made."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from cdc_sink_kafka.demo.servers import KafkaBroker, admin_client
from cdc_testing.kafka_fixtures import KAFKA_PASSWORD, KAFKA_USER, Kafka
from cdc_testing.runs import Feed

WRONG = "wrong+pass/word %41"
LIMIT_S = 30.0
"""A few seconds on an idle machine; this is for a busy one."""

Complaint = Callable[..., str]


@pytest.fixture
def complaint(database: str, tmp_path: Path) -> Complaint:
    """Returns the one sentence that `cdc check` says about a sink."""
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, note text)")

    def check(sink: str, options: Mapping[str, object] | None = None) -> str:
        feed = Feed(tmp_path, database, ["orders"], sink=sink, options=options)
        started = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "cdc_core", "check", str(feed.toml)], capture_output=True, text=True, timeout=60
        )
        assert time.monotonic() - started < LIMIT_S
        assert done.returncode == 2
        said = done.stdout + done.stderr
        for secret in (KAFKA_PASSWORD, WRONG):
            assert secret not in said
            assert quote(secret, safe="") not in said
        if not done.stdout:  # the options do not even say what to look at
            (line,) = done.stderr.splitlines()
            return line
        assert done.stderr == ""
        *others, line = done.stdout.splitlines()
        assert [other for other in others if other.startswith("  encoder") and not other.endswith("ok")] == []
        assert line.startswith("  sink ")
        assert not feed.state.exists()
        with psycopg.connect(database) as connection:
            slots = "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
            assert connection.execute(slots).fetchall() == []
        return line.partition(" … ")[2]

    return check


def test_a_broker_out_of_reach_is_named(complaint: Complaint) -> None:
    said = complaint("kafka://127.0.0.1:1")
    assert said.startswith("sink 'kafka' cannot connect to 127.0.0.1:1: ")
    assert "Connection refused; check the address" in said


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_wrong_password_is_refused_without_telling_it(
    secured_broker: KafkaBroker, complaint: Complaint, tmp_path: Path, mechanism: str
) -> None:
    address = secured_broker.address("SASL_PLAINTEXT")
    said = complaint(
        f"kafka://{address}?sasl_enabled=true&sasl_mechanism={mechanism}&sasl_user={KAFKA_USER}"
        f"&sasl_password={quote(WRONG, safe='')}"
    )
    assert said.startswith(f"sink 'kafka' cannot connect to {address}: ")
    assert "uthentication" in said
    assert said.endswith("; check the sasl options")
    run = [sys.executable, "-m", "cdc_core", "run", str(tmp_path / "feed.toml"), "--state", str(tmp_path / "state")]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == f"error: {said}"
    kept = [path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file()]
    for form in (WRONG, quote(WRONG, safe=""), quote(WRONG)):
        assert form not in done.stdout + done.stderr
        assert not [content for content in kept if form.encode() in content]


def test_a_topic_that_is_missing_where_none_is_created_is_named(
    kafka_broker: Kafka, complaint: Complaint, topic_prefix: str
) -> None:
    options = {"create_kafka_topics": "off", "topic_prefix": topic_prefix}
    said = complaint(f"kafka://{kafka_broker.bootstrap_servers}", options)
    assert said == (
        f"topic '{topic_prefix}orders' does not exist, and create_kafka_topics is off: create it, or choose explicit"
    )
    with admin_client(kafka_broker.bootstrap_servers) as admin:
        assert f"{topic_prefix}orders" not in admin.list_topics(timeout=10).topics


def test_an_unknown_entry_of_kafka_sink_config_is_refused_with_the_likely_one(complaint: Complaint) -> None:
    said = complaint("kafka://127.0.0.1:1", {"kafka_sink_config": {"Flush": {"Mesages": 5}, "RequiredAcks": "ALL"}})
    assert "option 'kafka_sink_config' does not know option 'Mesages'; did you mean 'Messages'?" in said
    said = complaint("kafka://127.0.0.1:1", {"kafka_sink_config": {"Compresion": "GZIP"}})
    assert "did you mean 'Compression'?" in said
