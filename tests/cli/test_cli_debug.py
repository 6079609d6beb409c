"""`cdc debug`: the archive has what it promises, no secret, and says what could not be collected."""

from __future__ import annotations

import json
import tarfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cdc_testing.command import Cdc
from cdc_testing.stored import node, progress

from cdc_core.cli import debug as debug_module
from cdc_core.cli import debug_parts
from cdc_core.cli.debug import DebugArchive
from cdc_core.cli.debug_parts import environment_secrets, masked_text, referred_secrets
from cdc_core.cli.main import main
from cdc_core.store.progress import ProgressStore, store_url

Capture = pytest.CaptureFixture[str]
SECRETS = ("hunter2", "s3cr3t-of-env", "quoted secret", "in-a-login", "bearer.of.log", "nested-quote", "of/the+store")
PEM = (
    "-----BEGIN RSA PRIVATE KEY-----\nDEK-Info: AES-256-CBC,9F\n\n"
    + "MIIEowIBA+/\n" * 9
    + "A==\n-----END RSA PRIVATE KEY-----"
)


def members(path: Path) -> dict[str, str]:
    with tarfile.open(path) as tar:
        found = {}
        for member in tar.getmembers():
            file = tar.extractfile(member)
            assert file is not None
            assert member.mode == 0o600
            found[member.name.partition("/")[2]] = file.read().decode()
        return found


@pytest.fixture
def store(file: Path, monkeypatch: pytest.MonkeyPatch) -> ProgressStore:
    monkeypatch.setenv("CDC_TEST_TOKEN", "s3cr3t-of-env")
    store = ProgressStore(store_url(file.parent / ".cdc"))
    definition = {
        "source": "paper://user:***@desk/db",
        "tables": ["public.counter"],
        "sink": "shelf://room",
        "format": "json",
        "written": {"source": "paper://user:${PASSWORD}@desk/db"},
        "literal_secrets": [],
    }
    store.changefeeds.register("orders", definition)
    epoch = store.changefeeds.begin_attempt("orders")
    store.progress.save("orders", epoch, progress())
    store.statuses.save("orders", epoch, {"phase": "failed", "error": "password='quoted secret' is wrong for hunter2"})
    store.events.note("changefeed_failed", "orders", message="postgresql://u:in-a-login@h/d refused s3cr3t-of-env")
    (file.parent / ".cdc" / "orders.spark.log").write_text(
        "Authorization: Bearer bearer.of.log\n"
        'jaas: "org.X required password=\\"nested-quote\\";"\n'
        "client_secret=of/the+store&x=1\n"
        '{"token": {"lsn": 5}, "max_retries": 7, "password": "${PASSWORD}"}\n'
    )
    return store


def collected(file: Path, capsys: Capture, *arguments: str) -> tuple[dict[str, str], str]:
    path = file.parent / "out.tar.gz"
    assert main(["debug", str(file), "orders", "-o", str(path), *arguments]) == 0
    assert path.stat().st_mode & 0o077 == 0
    return members(path), capsys.readouterr().out


def test_the_archive_has_what_is_known_of_the_changefeed(file: Path, store: ProgressStore, capsys: Capture) -> None:
    other = file.parent / "program.log"
    other.write_text("a line\n")
    store.nodes.join(node("one"), lease_s=600)
    found, printed = collected(file, capsys, "--log", str(other))
    outcomes = json.loads(found["parts.json"])
    assert set(outcomes) == {
        *("configuration.json", "progress.json", "versions.json", "machine.json", "events.jsonl", "nodes.json"),
        *("source.json", "sink.json", "explain.txt", "logs/1-orders.spark.log", "logs/2-program.log"),
    }
    failed = {name for name, outcome in outcomes.items() if outcome != "ok"}
    assert printed.splitlines()[1:] == [
        f"  without {name}: see {name}.error in the archive" for name in outcomes if name in failed
    ]
    assert failed <= {"source.json", "sink.json"}, outcomes
    versions = json.loads(found["versions.json"])
    assert "cdc-core" in versions["distributions"]
    assert json.loads(found["configuration.json"])["options"]["envelope"] == "wrapped"
    assert json.loads(found["progress.json"])["progress"]["token"] == {"lsn": 1}
    events = [json.loads(line)["event"] for line in found["events.jsonl"].splitlines()]
    assert events == ["create_changefeed", "changefeed_failed"]
    assert [each["name"] for each in json.loads(found["nodes.json"])] == ["one"]
    assert found["logs/2-program.log"] == "a line\n"
    assert '"token": {"lsn": 5}, "max_retries": 7, "password": "${PASSWORD}"' in found["logs/1-orders.spark.log"]


def test_no_secret_is_in_the_archive_wherever_it_was(file: Path, store: ProgressStore, capsys: Capture) -> None:
    found, _ = collected(file, capsys)
    texts = "\n".join(found.values())
    assert [secret for secret in SECRETS if secret in texts] == []
    assert texts.count("***") >= len(SECRETS)


def test_a_definition_that_cannot_be_read_leaves_the_rest_and_hides_every_variable_it_names(
    file: Path, store: ProgressStore, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHO", "of-any-name")
    file.write_text(file.read_text().replace("hunter2", "${WHO}").replace("[changefeed.orders.options]", "nothing = 1"))
    store.events.note("changefeed_failed", "orders", message="no route to of-any-name")
    found, printed = collected(file, capsys)
    assert "configuration.json" in printed
    assert "configuration.json.error" in found
    assert {"progress.json", "versions.json", "events.jsonl"} <= found.keys()
    assert "source.json" not in json.loads(found["parts.json"])
    assert "of-any-name" not in "\n".join(found.values())


def test_a_definition_that_takes_too_long_hides_every_variable_that_the_file_names(
    file: Path, store: ProgressStore, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()
    monkeypatch.setattr("cdc_core.cli.located.resolved", lambda *_: over.wait())
    monkeypatch.setattr(debug_module, "DebugArchive", partial(DebugArchive, limit_s=5))
    monkeypatch.setenv("WHO", "of-any-name")
    file.write_text(file.read_text().replace("hunter2", "${WHO}"))
    store.events.note("changefeed_failed", "orders", message="no route to of-any-name")
    found, _ = collected(file, capsys, "--no-connect")
    over.set()
    assert "took longer" in found["configuration.json.error"]
    assert "no route to ***" in found["events.jsonl"]
    assert "of-any-name" not in "\n".join(found.values())


def test_the_logs_are_those_of_the_changefeed_also_the_rotated_one(
    file: Path, store: ProgressStore, capsys: Capture
) -> None:
    for other in ("orders.spark.log.1", "orders_of_bob.spark.log", "orders2.spark.log", "orders.log"):
        (file.parent / ".cdc" / other).write_text("a line\n")
    found, _ = collected(file, capsys, "--no-connect")
    assert {name for name in found if name.startswith("logs/")} == {
        "logs/1-orders.spark.log",
        "logs/2-orders.spark.log.1",
    }


def test_a_part_that_fails_or_hangs_is_told_and_the_others_follow(tmp_path: Path) -> None:
    def fail() -> Any:
        raise ValueError("the password is hunter2")

    path = tmp_path / "a.tar.gz"
    hide: Callable[[str], str] = lambda text: masked_text(text, ["hunter2"])  # noqa: E731
    with DebugArchive(path, name="top", masked=hide, limit_s=2) as archive:
        archive.add("fails", fail)
        archive.add("hangs", lambda: time.sleep(60))
        archive.add("works", lambda: "fine hunter2")
    assert archive.failed == ["fails", "hangs"]
    found = members(path)
    assert found["fails.error"] == "ValueError: the password is ***\n"
    assert "took longer" in found["hangs.error"]
    assert found["works"] == "fine ***\n"


def test_nothing_is_overwritten_and_a_log_must_exist(file: Path, store: ProgressStore, cdc: Cdc) -> None:
    path = file.parent / "out.tar.gz"
    path.write_text("mine")
    assert "cannot be written: File exists" in cdc.refused("debug", file, "-o", path, "--no-connect")
    assert path.read_text() == "mine"
    assert "the file 'nowhere.log' does not exist" in cdc.refused("debug", file, "--log", "nowhere.log")


def test_with_no_connect_neither_source_nor_sink_is_asked(file: Path, store: ProgressStore, capsys: Capture) -> None:
    found, _ = collected(file, capsys, "--no-connect")
    assert "configuration.json" in found
    assert {"source.json", "sink.json", "explain.txt"} & json.loads(found["parts.json"]).keys() == set()


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("kafka://u:p%40ss@h:9/?sasl_password=xy%7Az&acks=all", "kafka://u:***@h:9/?sasl_password=***&acks=all"),
        ("password = 'a b', user=c", "password = '***', user=c"),
        ('"api_key": "a\\"b", "n": 1', '"api_key": "***", "n": 1'),
        ("token=12", "token=12"),
        ("password=${P} token: true", "password=${P} token: true"),
        ("Authorization: Basic dXNlcjpwYXNz", "Authorization: ***"),
        ("author=me, monkey=1", "author=me, monkey=1"),
        ("DB_PASS=hunter2 bypass=abc", "DB_PASS=*** bypass=abc"),
        ("pg://u:p@ss@h/d and pg://u:a@b@c@h/d?x=1", "pg://u:***@h/d and pg://u:***@h/d?x=1"),
        ("cdc run --password hunter2 --verbose x", "cdc run --password *** --verbose x"),
        ("--token abc,def --secret-mode --other x", "--token *** --secret-mode --other x"),
        ("['--password', 'hunter2', '--rows', '3']", "['--password', '***', '--rows', '3']"),
        ('["--token","hunter2","--rows","3"]', '["--token","***","--rows","3"]'),
        ("password=a,b user=c", "password=*** user=c"),
        ("password=(abc)def user=c", "password=*** user=c"),
        ("password={abc}[def]g&x=1", "password=***&x=1"),
        ("Login(user=c, password=hunter2)", "Login(user=c, password=***)"),
        ('{"token":{"lsn":5},"password":12345}', '{"token":{"lsn":5},"password":***}'),
        (f"key:\n{PEM}\nand more", "key:\n***\nand more"),
        (f"ssl_key={PEM} x=1", "ssl_key=*** x=1"),
        (json.dumps({"pem": PEM, "n": 1}), '{"pem": "***", "n": 1}'),
        (PEM[:99], "***"),
        (PEM[70:], "***"),
        (
            "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
            "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        ),
    ],
)
def test_what_looks_like_a_secret_is_masked_and_nothing_else(text: str, masked: str) -> None:
    assert masked_text(text, ()) == masked


@pytest.mark.parametrize("part", ["a", "://a:", "-----BEGIN PRIVATE KEY-----x.", "--a, ", "a=", "password=("])
def test_long_runs_without_a_secret_take_no_time_to_speak_of(part: str) -> None:
    text = part * (1_000_000 // len(part))
    assert masked_text(f"{text} password=hunter2", ()).endswith(" password=***")


def test_variables_are_secret_by_their_names_or_as_parts_of_uris() -> None:
    found = environment_secrets({"API_TOKEN": "abcdef", "DB": "pg://u:pw-pw@h/d", "HOST": "here", "PASSWORD": "x"})
    assert {"abcdef", "pw-pw"} <= found
    assert found & {"here", "x"} == set()


def test_what_a_definition_refers_to_is_hidden_in_any_case_and_line_by_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHO", "Some-Body")
    (tmp_path / "key").write_text("First-Line\nSecond-Line\n")
    found = referred_secrets({"source": ["paper://${WHO}@desk"], "pin": f"${{file:{tmp_path}/key}} ${{file:/nowhere}}"})
    text = "SOME-BODY some-body second-line\nfirst-line second-line first-line\\nsecond-line"
    assert masked_text(text, found).replace("***", "").split() == []


def test_only_the_end_of_a_long_log_is_taken_in_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debug_parts, "_MAX_LOG_BYTES", 20)
    log = tmp_path / "a.log"
    log.write_text("".join(f"line {number}\n" for number in range(100)))
    assert debug_parts.last_lines(log) == "line 98\nline 99\n"
