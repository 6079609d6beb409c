"""`cdc check` with an unusable Kafka: one sentence within seconds, exit status 2, no secrets, no changes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from cdc_sink_kafka.demo.servers import admin_client
from cdc_testing.kafka_fixtures import KAFKA_PASSWORD, KAFKA_USER, Kafka
from cdc_testing.runs import Feed
from cdc_testing.shared_servers import SecuredKafka

pytestmark = pytest.mark.slow

WRONG = "wrong+pass/word %41"
LIMIT_S = 180.0
"""An idle machine needs a few seconds. This is for a busy one."""

Complaint = Callable[..., str]


@pytest.fixture
def complaint(database: str, tmp_path: Path) -> Complaint:
    """Return the sentence that `cdc check` prints about a sink."""
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, note text)")

    def check(sink: str, options: Mapping[str, object] | None = None) -> str:
        feed = Feed(tmp_path, database, ["orders"], sink=sink, options=options)
        started = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "cdc_core", "check", str(feed.toml)], capture_output=True, text=True
        )
        assert time.monotonic() - started < LIMIT_S
        assert done.returncode == 2
        said = done.stdout + done.stderr
        for secret in (KAFKA_PASSWORD, WRONG):
            assert secret not in said
            assert quote(secret, safe="") not in said
        if not done.stdout:  # the options are wrong, so nothing was checked
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


def test_an_unreachable_broker_is_named(complaint: Complaint) -> None:
    said = complaint("kafka://127.0.0.1:1")
    assert said.startswith("sink 'kafka' cannot connect to 127.0.0.1:1: ")
    assert "Connection refused; check the address" in said


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_wrong_password_is_reported_without_the_password(
    secured_broker: SecuredKafka, complaint: Complaint, tmp_path: Path, mechanism: str
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
    done = subprocess.run(run, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == f"error: {said}"
    kept = [path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file()]
    for form in (WRONG, quote(WRONG, safe=""), quote(WRONG)):
        assert form not in done.stdout + done.stderr
        assert not [content for content in kept if form.encode() in content]


def test_a_missing_topic_is_named_if_the_options_create_none(
    kafka_broker: Kafka, complaint: Complaint, topic_prefix: str
) -> None:
    options = {"create_kafka_topics": "off", "topic_prefix": topic_prefix}
    said = complaint(f"kafka://{kafka_broker.bootstrap_servers}", options)
    assert said == (
        f"topic '{topic_prefix}orders' does not exist, and create_kafka_topics is off; create it, or set"
        " create_kafka_topics to explicit"
    )
    with admin_client(kafka_broker.bootstrap_servers) as admin:
        assert f"{topic_prefix}orders" not in admin.list_topics(timeout=60).topics


def test_an_unknown_entry_of_kafka_sink_config_is_refused_with_a_suggestion(complaint: Complaint) -> None:
    said = complaint("kafka://127.0.0.1:1", {"kafka_sink_config": {"Flush": {"Mesages": 5}, "RequiredAcks": "ALL"}})
    assert "option 'kafka_sink_config' does not know option 'Mesages'; did you mean 'Messages'?" in said
    said = complaint("kafka://127.0.0.1:1", {"kafka_sink_config": {"Compresion": "GZIP"}})
    assert "did you mean 'Compression'?" in said
