"""What makes two destinations one place: what is recorded at the one is there for readers of the other."""

from __future__ import annotations

import json

import pytest
from cdc_testing.local_engine import resolved_feed

from cdc_core import Timestamp
from cdc_core.config.identity import require_same_range, same_destination
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.checks import _refuse_one_place as refuse_one_place
from cdc_core.errors import ConfigError
from cdc_core.uris import place_of, same_server

SOURCE = "postgresql://u@h/d"
S3 = "s3://bucket/out?AWS_ACCESS_KEY_ID=k&AWS_SECRET_ACCESS_KEY=hush"
AZURE = "azure-blob://container/out?AZURE_ACCOUNT_KEY=aHVzaA=="


def feed(sink: str) -> ResolvedChangefeed:
    return resolved_feed(SOURCE, sink, "public.t")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (f"{S3}&AWS_ENDPOINT=http://old:8333", f"{S3}&AWS_ENDPOINT=http://new:8333", False),
        (f"{S3}&AWS_ENDPOINT=http://old:8333", S3, False),
        (f"{S3}&AWS_ENDPOINT=http://old:8333", f"{S3}&AWS_ENDPOINT=http://old:8333/", True),
        (f"{S3}&AWS_REGION=eu-west-1", f"{S3}&AWS_REGION=us-east-1&S3_STORAGE_CLASS=STANDARD_IA", True),
        (S3, "s3://bucket/out/?AUTH=implicit", True),
        (S3, "s3://bucket/other?AUTH=implicit", False),
        (f"{AZURE}&AZURE_ACCOUNT_NAME=one", f"{AZURE}&AZURE_ACCOUNT_NAME=two", False),
        (f"{AZURE}&AZURE_ACCOUNT_NAME=one", f"{AZURE}&AZURE_ACCOUNT_NAME=one&AZURE_ENVIRONMENT=AzureChinaCloud", False),
        ("gs://b/out?GCS_ENDPOINT=http://one", "gs://b/out?GCS_ENDPOINT=http://two", False),
        ("file:///data/out", "file:///data/out/?file_size=1MB", True),
        ("kafka://a:9092,b:9092", "kafka://b:9092,a:9092", True),
        ("file:///data/out", "s3://data/out", False),
    ],
)
def test_another_endpoint_or_account_is_another_destination(one: str, other: str, same: bool) -> None:
    stored = json.loads(json.dumps(feed(one).definition()))
    assert same_destination(stored, feed(other).definition()) is same
    assert same_destination(feed(other).definition(), stored) is same


def test_a_definition_that_an_older_version_stored_is_still_the_same_destination() -> None:
    wanted = feed(f"{S3}&AWS_ENDPOINT=http://old:8333").definition()
    older = {name: value for name, value in wanted.items() if name != "place"}
    assert same_destination(older, wanted)
    assert not same_destination(older | {"sink": "s3://bucket/other"}, wanted)


def test_the_end_of_a_changefeed_cannot_be_changed_or_removed() -> None:
    for other in ("3.0000000000", "1.0000000000", None):
        with pytest.raises(ConfigError, match=r"started with end_time = \"2\.0000000000\", which cannot be changed"):
            require_same_range("f", {"end_time": "2.0000000000"}, {"end_time": other}, latest=Timestamp(1))
    require_same_range("f", {"end_time": "2.0000000000"}, {"end_time": "2.0000000000"}, latest=Timestamp(2))


def test_a_cursor_cannot_be_changed_after_the_start() -> None:
    for before, now in (("0/1", "0/2"), ("0/1", None), (None, "0/1")):
        was = "without cursor" if before is None else f'with cursor = "{before}"'
        with pytest.raises(ConfigError, match=f"^changefeed 'f' was started {was}, which cannot be changed; restore"):
            require_same_range("f", {"cursor": before}, {"cursor": now}, latest=Timestamp())
    require_same_range("f", {"cursor": "0/1"}, {"cursor": "0/1"}, latest=Timestamp())


def test_a_changefeed_may_get_an_end_that_it_has_not_passed() -> None:
    require_same_range("f", {"end_time": None}, {"end_time": "2.0000000000"}, latest=Timestamp(2))
    require_same_range("f", {}, {"end_time": "2.0000000000"}, latest=Timestamp())  # of an older version
    with pytest.raises(ConfigError, match=r"has delivered rows up to 3\.0+, which is later than end_time, 2\.0+; set"):
        require_same_range("f", {"end_time": None}, {"end_time": "2.0000000000"}, latest=Timestamp(3))


def test_what_a_definition_says_of_the_place_holds_no_secret() -> None:
    given = feed(f"{S3}&AWS_ENDPOINT=http%3A%2F%2Fme%3Ap%2Fw%40store%3A8333%3Ftoken%3Dhush")
    assert given.definition()["place"] == {"aws_endpoint": "http://store:8333"}
    assert feed(f"{AZURE}&AZURE_ACCOUNT_NAME=one").definition()["place"] == {"azure_account_name": "one"}


@pytest.mark.parametrize(
    ("uri", "place"),
    [
        ("kafka://me:pw@b:1,a:2/x/?y=1", "kafka://a:2,b:1/x"),
        ("file:///data/out@home/", "file:///data/out@home"),
        ("S3://Bucket/Out", "s3://Bucket/Out"),
        ("store:8333", "store:8333"),
        ("me:pw@store", "store"),
    ],
)
def test_a_place_is_written_in_one_way(uri: str, place: str) -> None:
    assert place_of(uri) == place


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ("postgresql://me:pw@a:1/shop?sslmode=require", True),
        ("postgresql://b:2,a:1/shop?target_session_attrs=read-write", True),
        ("postgresql://b:2,c:3/shop", False),
        ("postgresql://a:1/other", False),
    ],
)
def test_a_source_stays_the_same_when_another_host_is_added(other: str, same: bool) -> None:
    assert same_server("postgresql://a:1/shop", other) is same
    assert same_server(other, "postgresql://a:1/shop") is same


def test_dead_letters_may_be_below_the_same_path_of_another_store() -> None:
    at = f"{S3}&AWS_ENDPOINT=http://one"
    for letters in (at, f"{at}&AWS_REGION=x"):
        with pytest.raises(
            ConfigError, match="would write its dead letters to s3://bucket/out, among the files of its sink"
        ):
            refuse_one_place(feed(at), feed(letters), [])
    refuse_one_place(feed(at), feed(at.replace("one", "two")), [])
