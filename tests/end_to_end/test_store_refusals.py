"""An object store that cannot be used: one clear sentence, exit status 2, no secret, nothing made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from cdc_testing.object_stores import BUCKET, S3_READER_KEY, S3_READER_SECRET, S3_SECRET, SeaweedFS
from cdc_testing.runs import Feed

from cdc_core.cli.main import main

WRONG = "wrong+secret/word %41"
Refused = Callable[..., str]


@pytest.fixture
def refused(database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], seaweedfs: SeaweedFS) -> Refused:
    """Returns what `cdc check` or `cdc run` says on its way out with status 2."""
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, note text)")

    def said(sink: str, *, command: str = "check") -> str:
        feed = Feed(tmp_path, database, ["orders"], sink=sink)
        before = seaweedfs.file_system().find(BUCKET)
        status = main([command, str(feed.toml), *(["--state", str(feed.state)] if command == "run" else [])])
        out, err = capsys.readouterr()
        assert status == 2, out + err
        assert "Traceback" not in err
        for secret in (S3_SECRET, S3_READER_SECRET, WRONG):
            assert secret not in out + err
            assert quote(secret, safe="") not in out + err
        with psycopg.connect(database) as connection:
            slots = "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
            assert connection.execute(slots).fetchall() == []
        assert seaweedfs.file_system().find(BUCKET) == before
        return out + err

    return said


@pytest.mark.parametrize("command", ["check", "run"])
def test_wrong_keys_are_refused_before_anything_is_made(refused: Refused, seaweedfs: SeaweedFS, command: str) -> None:
    said = refused(seaweedfs.uri("x", AWS_SECRET_ACCESS_KEY=WRONG), command=command)
    assert (
        "sink s3://changefeeds/x cannot be used because the secret key does not belong to the access key: check"
        " AWS_SECRET_ACCESS_KEY, percent-encoded inside a URI"
    ) in said


def test_keys_without_the_right_to_write_are_refused_before_anything_is_made(
    refused: Refused, seaweedfs: SeaweedFS
) -> None:
    keys = {"AWS_ACCESS_KEY_ID": S3_READER_KEY, "AWS_SECRET_ACCESS_KEY": S3_READER_SECRET}
    assert "cannot be used because these credentials may not use it: grant them" in refused(
        seaweedfs.uri("x", **keys), command="run"
    )


def test_a_missing_bucket_is_refused_and_not_made(refused: Refused, seaweedfs: SeaweedFS) -> None:
    said = refused(seaweedfs.uri("x", bucket="nobodys"))
    assert "sink s3://nobodys/x cannot be used because the bucket does not exist: create it" in said
    assert seaweedfs.file_system().ls("") == [BUCKET]


def test_parameters_of_another_store_are_refused(refused: Refused, seaweedfs: SeaweedFS) -> None:
    said = refused(seaweedfs.uri("x", AZURE_ACCOUNT_NAME="shop"))
    assert "sink 's3://changefeeds/x' cannot use AZURE_ACCOUNT_NAME, which is for Azure: leave it out" in said


def test_a_role_to_assume_is_refused_with_what_to_do_instead(refused: Refused, seaweedfs: SeaweedFS) -> None:
    said = refused(seaweedfs.uri("x", ASSUME_ROLE="arn:aws:iam::1:role/cdc"))
    assert "ASSUME_ROLE is not supported: put the role into a profile of the AWS configuration" in said
