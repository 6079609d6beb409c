"""An object store that cannot be used: a clear message, exit status 2, no secret shown, nothing created."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.object_stores import BUCKET, S3_READER_KEY, S3_READER_SECRET, S3_SECRET, SeaweedFS
from cdc_testing.runs import Feed

from cdc_core.cli.main import main

WRONG = "wrong+secret/word %41"
Refused = Callable[..., str]


@pytest.fixture
def refused(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], seaweedfs: SeaweedFS, kept_spark: KeptSpark
) -> Refused:
    """Returns the output of `cdc check` or `cdc run`, which exits with status 2."""
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, note text)")

    def said(sink: str, *, command: str = "check") -> str:
        feed = Feed(tmp_path, database, ["orders"], sink=sink)
        before = seaweedfs.file_system().find(BUCKET)
        with kept_spark.lent():
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
def test_wrong_keys_are_refused_and_nothing_is_created(refused: Refused, seaweedfs: SeaweedFS, command: str) -> None:
    said = refused(seaweedfs.uri("x", AWS_SECRET_ACCESS_KEY=WRONG), command=command)
    assert (
        "sink s3://changefeeds/x cannot be used: the secret key does not match the access key. Check"
        " AWS_SECRET_ACCESS_KEY, which must be percent-encoded inside a URI"
    ) in said


def test_keys_without_write_permission_are_refused_and_nothing_is_created(
    refused: Refused, seaweedfs: SeaweedFS
) -> None:
    keys = {"AWS_ACCESS_KEY_ID": S3_READER_KEY, "AWS_SECRET_ACCESS_KEY": S3_READER_SECRET}
    assert "cannot be used: these credentials lack permissions. Grant them" in refused(
        seaweedfs.uri("x", **keys), command="run"
    )


def test_a_missing_bucket_is_refused_and_not_created(refused: Refused, seaweedfs: SeaweedFS) -> None:
    said = refused(seaweedfs.uri("x", bucket="missing"))
    assert "sink s3://missing/x cannot be used: the bucket does not exist. Create it" in said
    assert seaweedfs.file_system().ls("") == [BUCKET]


def test_parameters_of_another_store_are_refused(refused: Refused, seaweedfs: SeaweedFS) -> None:
    said = refused(seaweedfs.uri("x", AZURE_ACCOUNT_NAME="shop"))
    assert "sink 's3://changefeeds/x' cannot use AZURE_ACCOUNT_NAME, which is for Azure. Remove it" in said


def test_assume_role_is_refused_with_the_alternative(refused: Refused, seaweedfs: SeaweedFS) -> None:
    said = refused(seaweedfs.uri("x", ASSUME_ROLE="arn:aws:iam::1:role/cdc"))
    assert "ASSUME_ROLE is not supported. Put the role into a profile of the AWS configuration" in said
