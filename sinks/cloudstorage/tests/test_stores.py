"""What real object stores refuse, and what the sink says of it before a run and during one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any
from urllib.parse import parse_qsl

import pytest
from cdc_sink_cloudstorage import azure, s3
from cdc_sink_cloudstorage.destination import open_file_system
from cdc_sink_cloudstorage.options import CloudStorageOptions
from cdc_sink_cloudstorage.sink import CloudStorageSink
from cdc_testing.gcs_gate import GcsGate
from cdc_testing.object_stores import S3_READER_KEY, S3_READER_SECRET, Azurite, SeaweedFS
from cryptography.hazmat.primitives.asymmetric import rsa

from cdc_core import ConfigError, RetryableSinkError, RowBatch, SliceInfo, TerminalSinkError
from cdc_core.options import parse_options

OpenAt = Callable[[str], CloudStorageSink]
WriteTo = Callable[[CloudStorageSink], None]
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is down is down at the first try."""
    monkeypatch.setitem(s3._CLIENT, "retries", {"mode": "standard", "max_attempts": 1})
    monkeypatch.setitem(azure._RETRY, "retry_total", 0)
    monkeypatch.setattr("gcsfs.retry.is_retriable", lambda _: False)


@pytest.fixture
def open_at(open_sink: Callable[..., CloudStorageSink]) -> OpenAt:
    """Make a sink from a URI with its parameters."""

    def make(uri: str) -> CloudStorageSink:
        place, _, query = uri.partition("?")
        return open_sink({name.lower(): value for name, value in parse_qsl(query)}, uri=place)

    return make


@pytest.fixture
def write_to(rows: Callable[..., RowBatch], slice_of: Callable[..., SliceInfo]) -> WriteTo:
    def write(sink: CloudStorageSink) -> None:
        sink.begin(slice_of())
        sink.emit(rows([1]))
        sink.flush()

    return write


def refusal(sink: CloudStorageSink) -> str:
    with pytest.raises(ConfigError) as refused:
        sink.check()
    return str(refused.value)


# S3


@pytest.mark.parametrize(
    ("changes", "bucket", "why"),
    [
        ({"AWS_ACCESS_KEY_ID": "who"}, "", "S3 does not know the access key: check AWS_ACCESS_KEY_ID"),
        (
            {"AWS_SECRET_ACCESS_KEY": "wrong"},
            "",
            "the secret key does not belong to the access key: check AWS_SECRET_ACCESS_KEY, percent-encoded inside a"
            " URI",
        ),
        (
            {"AWS_ACCESS_KEY_ID": S3_READER_KEY, "AWS_SECRET_ACCESS_KEY": S3_READER_SECRET},
            "",
            "these credentials may not use it: grant them s3:PutObject, s3:ListBucket and what else the documentation"
            " lists",
        ),
        ({}, "nobodys", "the bucket does not exist: create it or correct its name in the sink's URI"),
        (
            {"AWS_ENDPOINT": NOWHERE},
            "",
            f"the endpoint '{NOWHERE}' cannot be reached: check the network and AWS_ENDPOINT",
        ),
        (
            {"AWS_ENDPOINT": "localhost"},
            "",
            "'localhost' is no endpoint: write AWS_ENDPOINT as https://host:port",
        ),
    ],
)
def test_s3_check_says_what_is_wrong_and_creates_nothing(
    open_at: OpenAt, seaweedfs: SeaweedFS, changes: dict[str, str], bucket: str, why: str
) -> None:
    at = {"bucket": bucket} if bucket else {}
    before = seaweedfs.file_system().find("changefeeds")
    said = refusal(open_at(seaweedfs.uri("x", **at, **changes)))
    assert said == f"sink s3://{bucket or 'changefeeds'}/x cannot be used because {why}"
    assert seaweedfs.file_system().find("changefeeds") == before
    assert seaweedfs.file_system().ls("") == ["changefeeds"]


def test_s3_check_accepts_what_can_be_used(open_at: OpenAt, seaweedfs: SeaweedFS) -> None:
    open_at(seaweedfs.uri("not/there/yet")).check()
    open_at(seaweedfs.uri()).check()


def test_s3_keys_may_come_from_the_environment(
    open_at: OpenAt, write_to: WriteTo, seaweedfs: SeaweedFS, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = dict(parse_qsl(seaweedfs.uri().partition("?")[2]))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.setenv(name, given[name])
    sink = open_at(f"s3://changefeeds/environment?AUTH=implicit&AWS_ENDPOINT={seaweedfs.endpoint}")
    sink.check()
    write_to(sink)
    assert seaweedfs.file_system().find("changefeeds/environment")


def test_s3_without_any_credentials_is_refused(
    open_at: OpenAt, seaweedfs: SeaweedFS, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    said = refusal(open_at(f"s3://changefeeds/x?AWS_REGION=us-east-1&AWS_ENDPOINT={seaweedfs.endpoint}"))
    assert said.startswith("sink s3://changefeeds/x cannot be used because there are no credentials for S3: set AWS_")


def test_s3_objects_have_the_storage_class_asked_for(open_at: OpenAt, write_to: WriteTo, seaweedfs: SeaweedFS) -> None:
    write_to(open_at(seaweedfs.uri("cold", S3_STORAGE_CLASS="GLACIER")))
    fs = seaweedfs.file_system()
    (path,) = [path for path in fs.find("changefeeds/cold") if path.endswith(".lines")]
    bucket, _, key = path.partition("/")
    assert fs.call_s3("head_object", Bucket=bucket, Key=key)["StorageClass"] == "GLACIER"


def test_a_storage_class_that_the_store_does_not_know_ends_the_changefeed(
    open_at: OpenAt, write_to: WriteTo, seaweedfs: SeaweedFS
) -> None:
    with pytest.raises(TerminalSinkError) as failed:
        write_to(open_at(seaweedfs.uri("cold", S3_STORAGE_CLASS="FROZEN")))
    assert str(failed.value).endswith(
        " because the store does not know the storage class 'FROZEN': correct S3_STORAGE_CLASS"
    )


def test_a_removed_bucket_is_tried_again(open_at: OpenAt, write_to: WriteTo, seaweedfs: SeaweedFS) -> None:
    fs = seaweedfs.file_system()
    fs.mkdir("shortlived")
    sink = open_at(seaweedfs.uri("x", bucket="shortlived"))
    write_to(sink)
    fs.rm("shortlived", recursive=True)
    with pytest.raises(RetryableSinkError, match="because the bucket does not exist: create it or correct its name"):
        write_to(sink)


@pytest.mark.parametrize(
    ("code", "details", "kind", "why"),
    [
        (
            "AuthorizationHeaderMalformed",
            {"Region": "eu-west-1"},
            TerminalSinkError,
            "the bucket is in another region, eu-west-1: set AWS_REGION=eu-west-1",
        ),
        (
            "PermanentRedirect",
            {},
            TerminalSinkError,
            "the bucket is in another region: set AWS_REGION to the bucket's region",
        ),
        (
            "ExpiredToken",
            {},
            RetryableSinkError,
            "the temporary credentials have expired or are not valid: get new ones and set AWS_SESSION_TOKEN and both"
            " keys",
        ),
        ("RequestTimeTooSkewed", {}, RetryableSinkError, "this machine's clock and the store's differ too much: set"),
        ("KeyTooLongError", {}, TerminalSinkError, "the path is longer than S3 takes: shorten topic_prefix"),
        (
            "SlowDown",
            {"Message": "Please reduce your request rate.\nAnd more"},
            RetryableSinkError,
            "the store answered 'Please reduce your request rate': see what S3 says of SlowDown",
        ),
    ],
)
def test_what_only_amazon_answers_is_told_too(
    open_at: OpenAt,
    write_to: WriteTo,
    seaweedfs: SeaweedFS,
    monkeypatch: pytest.MonkeyPatch,
    code: str,
    details: dict[str, str],
    kind: type[Exception],
    why: str,
) -> None:
    """SeaweedFS has one region and no temporary keys: these are answers as Amazon documents them."""
    from botocore.exceptions import ClientError

    async def answer(*_: Any, **__: Any) -> None:
        raise ClientError({"Error": {"Code": code, "Message": "", **details}}, "PutObject")

    monkeypatch.setattr("s3fs.S3FileSystem._call_s3", answer)
    with pytest.raises(kind) as failed:
        write_to(open_at(seaweedfs.uri("x")))
    assert f" because {why}" in str(failed.value)


# Google Cloud Storage


@pytest.fixture
def gate(gcs_gate: GcsGate) -> Iterator[GcsGate]:
    """The session's, put right again."""
    yield gcs_gate
    gcs_gate.revoked, gcs_gate.forbidden = False, frozenset()


def test_gcs_check_accepts_what_can_be_used(open_at: OpenAt, gate: GcsGate) -> None:
    open_at(gate.uri("not/there/yet")).check()


def test_gcs_check_refuses_a_key_that_google_did_not_give_out(open_at: OpenAt, gate: GcsGate) -> None:
    strange = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    said = refusal(open_at(gate.uri("x", CREDENTIALS=gate.credentials(key=strange))))
    assert said == (
        "sink gs://changefeeds/x cannot be used because Google refuses the credentials (invalid_grant: Invalid JWT"
        " Signature): check CREDENTIALS"
    )


def test_gcs_check_names_the_rights_that_are_missing(open_at: OpenAt, gate: GcsGate) -> None:
    gate.forbidden = frozenset({"POST"})
    assert refusal(open_at(gate.uri("x"))) == (
        "sink gs://changefeeds/x cannot be used because these credentials may not use it: grant them"
        " storage.objects.create"
    )
    gate.forbidden = frozenset({"GET"})
    assert refusal(open_at(gate.uri("x"))).endswith(
        "may not use it: grant them storage.objects.create, storage.objects.delete, storage.objects.list"
    )


@pytest.mark.parametrize(
    ("bucket", "changes", "why"),
    [
        ("nobodys", {}, "the bucket does not exist: create it or correct its name in the sink's URI"),
        (
            "changefeeds",
            {"GCS_ENDPOINT": NOWHERE},
            f"the endpoint '{NOWHERE}' cannot be reached: check the network and GCS_ENDPOINT",
        ),
    ],
)
def test_gcs_check_says_what_is_wrong(
    open_at: OpenAt, gate: GcsGate, bucket: str, changes: dict[str, str], why: str
) -> None:
    said = refusal(open_at(gate.uri("x", bucket=bucket, **changes)))
    assert said == f"sink gs://{bucket}/x cannot be used because {why}"


def test_gcs_credentials_that_are_revoked_and_given_back_go_on(
    open_at: OpenAt, write_to: WriteTo, gate: GcsGate
) -> None:
    sink = open_at(gate.uri("revoked"))
    write_to(sink)
    gate.revoked = True
    with pytest.raises(RetryableSinkError, match="because Google refuses the credentials"):
        write_to(sink)
    gate.revoked = False
    write_to(open_at(gate.uri("revoked")))


def test_google_is_asked_by_http_alone(
    open_at: OpenAt, write_to: WriteTo, gate: GcsGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing answers gRPC, a client that asks for the kind of a bucket waits a minute before each file."""
    channels: list[str] = []

    def refuse(target: str, *_: Any, **__: Any) -> None:
        channels.append(target)
        raise ConnectionError(target)

    for name in ("secure_channel", "insecure_channel"):
        monkeypatch.setattr(f"grpc.aio.{name}", refuse)
    uri = gate.uri("http")
    sink = open_at(uri)
    sink.check()
    write_to(sink)
    place, _, query = uri.partition("?")
    values = {name.lower(): value for name, value in parse_qsl(query)}
    fs, root = open_file_system(place, parse_options(CloudStorageOptions, values, owner="sink 'cloudstorage'"))
    assert [path for path in fs.find(root) if path.endswith(".lines") and fs.cat_file(path)]
    assert channels == []


# Azure


@pytest.mark.parametrize(
    ("changes", "container", "why"),
    [
        (
            {"AZURE_ACCOUNT_KEY": "d3Jvbmc="},
            "",
            "Azure refuses these credentials, or does not let them use it: check AZURE_ACCOUNT_KEY, the role Storage"
            " Blob Data Contributor and the account's network",
        ),
        ({}, "nobodys", "the container does not exist: create it or correct its name in the sink's URI"),
        (
            {"AZURE_ENDPOINT": f"{NOWHERE}/account"},
            "",
            f"the endpoint '{NOWHERE}' cannot be reached: check the network, AZURE_ENDPOINT",
        ),
    ],
)
def test_azure_check_says_what_is_wrong(
    open_at: OpenAt, azurite: Azurite, changes: dict[str, str], container: str, why: str
) -> None:
    at = {"container": container} if container else {}
    said = refusal(open_at(azurite.uri("x", **at, **changes)))
    assert said == f"sink azure://{container or 'changefeeds'}/x cannot be used because {why}"


def test_azure_check_accepts_what_can_be_used(open_at: OpenAt, azurite: Azurite) -> None:
    open_at(azurite.uri("not/there/yet")).check()


def test_azure_credentials_may_come_from_the_environment(
    open_at: OpenAt, write_to: WriteTo, azurite: Azurite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", azurite.connection_string)
    with closing(open_at("azure-blob://changefeeds/environment")) as sink:
        sink.check()
        write_to(sink)


def test_azure_keys_given_here_are_not_those_of_the_environment(
    open_at: OpenAt, azurite: Azurite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", azurite.connection_string)
    assert "Azure refuses these credentials" in refusal(open_at(azurite.uri("x", AZURE_ACCOUNT_KEY="d3Jvbmc=")))


def test_the_clouds_of_azure_have_addresses_of_their_own(open_at: OpenAt) -> None:
    principal = "AZURE_CLIENT_ID=1&AZURE_CLIENT_SECRET=s&AZURE_TENANT_ID=t"
    uri = f"azure://box/x?AZURE_ACCOUNT_NAME=shop&AZURE_ENVIRONMENT=AZURECHINACLOUD&{principal}"
    fs, _ = open_at(uri)._store._place  # type: ignore[attr-defined]
    assert fs.service_client.url == "https://shop.blob.core.chinacloudapi.cn/"
    assert json.loads(json.dumps(fs.service_client.credential._client._authority)).endswith("chinacloudapi.cn")
