"""What real object stores refuse, and what the sink reports in `check` and during a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.blob import BlobServiceClient
from botocore.exceptions import ClientError
from cdc_sink_cloudstorage import azure
from cdc_sink_cloudstorage.names import ResolvedFile
from cdc_sink_cloudstorage.options import CloudStorageOptions
from cdc_sink_cloudstorage.resolved_sink import CloudStorageResolvedSink
from cdc_sink_cloudstorage.s3_problems import s3_problem
from cdc_sink_cloudstorage.sink import CloudStorageSink
from cdc_sink_cloudstorage.stored_bodies import StoredBodies
from cdc_sink_cloudstorage.uris import open_file_system
from cdc_testing.cloud_rig import START, CloudRig, rows, slice_of
from cdc_testing.gcs_gate import GcsGate
from cdc_testing.object_stores import BUCKET, S3_KEY, S3_READER_KEY, S3_READER_SECRET, S3_SECRET, Azurite, SeaweedFS
from cryptography.hazmat.primitives.asymmetric import rsa
from gcsfs.retry import HttpError
from google.auth.exceptions import RefreshError

from cdc_core import CdcError, ConfigError, RetryableSinkError, TerminalSinkError, parse_options
from cdc_core.errors import is_outage

pytestmark = pytest.mark.usefixtures("no_retries")

OpenAt = Callable[[str], CloudStorageSink]
Check = Callable[[str], None]
Refusal = Callable[[str], str]
WriteTo = Callable[[CloudStorageSink], None]
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def open_at(cloud: CloudRig) -> OpenAt:
    """Makes a sink from a URI with its parameters."""
    return lambda uri: _open(cloud.sink, uri)


@pytest.fixture
def check(cloud: CloudRig) -> Check:
    """Checks the destination at a URI with its parameters."""
    return lambda uri: _open(cloud.destination, uri).check()


@pytest.fixture
def refusal(check: Check) -> Refusal:
    """Returns why the destination at a URI is refused."""

    def message(uri: str) -> str:
        with pytest.raises(ConfigError) as refused:
            check(uri)
        return str(refused.value)

    return message


def _open(make: Callable[..., Any], uri: str) -> Any:
    place, _, query = uri.partition("?")
    return make({name.lower(): value for name, value in parse_qsl(query)}, uri=place)


@pytest.fixture
def write_to() -> WriteTo:
    def write(sink: CloudStorageSink) -> None:
        sink.begin(slice_of())
        sink.emit(rows([1]))
        sink.flush()

    return write


def require_meanings(failure: Callable[[int], CdcError], *, repairable: set[int]) -> None:
    """Require what the *failure* of each HTTP status says about trying again."""
    failures = {status: failure(status) for status in range(300, 600)}
    assert {status for status, error in failures.items() if error.repairable} == repairable
    assert {status for status, error in failures.items() if is_outage(error)} == {408, 429, *range(500, 600)}
    assert {type(error) for status, error in failures.items() if status not in repairable} == {RetryableSinkError}


# S3


@pytest.mark.parametrize(
    ("changes", "bucket", "why"),
    [
        ({"AWS_ACCESS_KEY_ID": "who"}, "", "S3 does not know the access key. Check AWS_ACCESS_KEY_ID"),
        (
            {"AWS_SECRET_ACCESS_KEY": "wrong"},
            "",
            "the secret key does not match the access key. Check AWS_SECRET_ACCESS_KEY, which must be percent-encoded"
            " inside a URI",
        ),
        (
            {"AWS_ACCESS_KEY_ID": S3_READER_KEY, "AWS_SECRET_ACCESS_KEY": S3_READER_SECRET},
            "",
            "these credentials lack permissions. Grant them s3:PutObject, s3:ListBucket and the other permissions in"
            " the documentation",
        ),
        ({}, "missing", "the bucket does not exist. Create the bucket, or correct its name in the sink's URI"),
        (
            {"AWS_ENDPOINT": NOWHERE},
            "",
            f"the endpoint '{NOWHERE}' cannot be reached. Check the network and AWS_ENDPOINT",
        ),
        (
            {"AWS_ENDPOINT": "localhost"},
            "",
            "'localhost' is not an endpoint. Write AWS_ENDPOINT as https://host:port",
        ),
    ],
)
def test_s3_check_says_what_is_wrong_and_creates_nothing(
    refusal: Refusal, seaweedfs: SeaweedFS, changes: dict[str, str], bucket: str, why: str
) -> None:
    at = {"bucket": bucket} if bucket else {}
    before = seaweedfs.file_system().find("changefeeds")
    said = refusal(seaweedfs.uri("x", **at, **changes))
    assert said == f"sink s3://{bucket or 'changefeeds'}/x cannot be used: {why}"
    assert seaweedfs.file_system().find("changefeeds") == before
    assert seaweedfs.file_system().ls("") == ["changefeeds"]


def test_s3_check_accepts_a_bucket_without_a_path(check: Check, seaweedfs: SeaweedFS) -> None:
    check(seaweedfs.uri())


def test_s3_keys_may_come_from_the_environment(
    check: Check, open_at: OpenAt, write_to: WriteTo, seaweedfs: SeaweedFS, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = dict(parse_qsl(seaweedfs.uri().partition("?")[2]))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.setenv(name, given[name])
    uri = f"s3://changefeeds/environment?AUTH=implicit&AWS_ENDPOINT={seaweedfs.endpoint}"
    check(uri)
    write_to(open_at(uri))
    assert seaweedfs.file_system().find("changefeeds/environment")


def test_s3_without_credentials_is_refused(
    refusal: Refusal, seaweedfs: SeaweedFS, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    said = refusal(f"s3://changefeeds/x?AWS_REGION=us-east-1&AWS_ENDPOINT={seaweedfs.endpoint}")
    assert said.startswith("sink s3://changefeeds/x cannot be used: no usable credentials for S3 were found. Set AWS_")


def test_s3_objects_have_the_storage_class_and_encryption_of_the_options(
    open_at: OpenAt, write_to: WriteTo, seaweedfs: SeaweedFS
) -> None:
    write_to(open_at(seaweedfs.uri("cold", S3_STORAGE_CLASS="GLACIER", AWS_SERVER_ENC_MODE="AES256")))
    fs = seaweedfs.file_system()
    (path,) = [path for path in fs.find("changefeeds/cold") if path.endswith(".lines")]
    bucket, _, key = path.partition("/")
    found = fs.call_s3("head_object", Bucket=bucket, Key=key)
    assert (found["StorageClass"], found["ServerSideEncryption"]) == ("GLACIER", "AES256")


def test_an_unknown_storage_class_ends_the_changefeed(open_at: OpenAt, write_to: WriteTo, seaweedfs: SeaweedFS) -> None:
    with pytest.raises(TerminalSinkError) as failed:
        write_to(open_at(seaweedfs.uri("cold", S3_STORAGE_CLASS="FROZEN")))
    assert str(failed.value).endswith(": the store does not know the storage class 'FROZEN'. Correct S3_STORAGE_CLASS")


def test_a_removed_bucket_ends_the_attempt_and_may_be_repaired(
    open_at: OpenAt, write_to: WriteTo, seaweedfs: SeaweedFS
) -> None:
    fs = seaweedfs.file_system()
    fs.mkdir("shortlived")
    sink = open_at(seaweedfs.uri("x", bucket="shortlived"))
    write_to(sink)
    fs.rm("shortlived", recursive=True)
    expected = r"the bucket does not exist\. Create the bucket, or correct its name"
    with pytest.raises(TerminalSinkError, match=expected) as failed:
        write_to(sink)
    assert failed.value.repairable


def test_an_s3_key_that_was_rotated_may_be_repaired(open_at: OpenAt, write_to: WriteTo, seaweedfs: SeaweedFS) -> None:
    for changes in ({"AWS_ACCESS_KEY_ID": "old"}, {"AWS_SECRET_ACCESS_KEY": "old"}):
        with pytest.raises(TerminalSinkError, match="access key") as failed:
            write_to(open_at(seaweedfs.uri("rotated", **changes)))
        assert failed.value.repairable


def test_a_reader_finds_keys_that_were_rotated_in_the_environment(
    cloud: CloudRig, seaweedfs: SeaweedFS, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keys = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(keys))
    options = cloud.context({"aws_endpoint": seaweedfs.endpoint, "aws_region": "us-east-1"}).options
    stored = StoredBodies("s3://changefeeds/rotated-for-readers", options)
    form = f"[default]\naws_access_key_id = {S3_KEY}\naws_secret_access_key = "
    keys.write_text(form + "old")
    with pytest.raises(RetryableSinkError, match="cannot read s3://changefeeds/rotated-for-readers/x: "):
        stored.body("x")
    keys.write_text(form + S3_SECRET)
    assert stored.body("x") is None


@pytest.mark.parametrize(
    ("code", "details", "kind", "why"),
    [
        (
            "AuthorizationHeaderMalformed",
            {"Region": "eu-west-1"},
            TerminalSinkError,
            "the bucket is in another region, eu-west-1. Set AWS_REGION=eu-west-1",
        ),
        (
            "PermanentRedirect",
            {},
            TerminalSinkError,
            "the bucket is in another region. Set AWS_REGION to the bucket's region",
        ),
        (
            "ExpiredToken",
            {},
            TerminalSinkError,
            "the temporary credentials have expired or are not valid. Get new credentials, and set AWS_SESSION_TOKEN"
            " and both keys",
        ),
        (
            "RequestTimeTooSkewed",
            {},
            TerminalSinkError,
            "this machine's clock differs too much from the store's. Correct this machine's clock",
        ),
        ("KeyTooLongError", {}, TerminalSinkError, "the path is longer than S3 allows. Shorten topic_prefix"),
        (
            "SlowDown",
            {"Message": "Please reduce your request rate.\nAnd more"},
            RetryableSinkError,
            "the store answered 'Please reduce your request rate'. Look up SlowDown in the documentation of S3",
        ),
    ],
)
def test_errors_that_only_amazon_returns_are_reported(
    open_at: OpenAt,
    write_to: WriteTo,
    seaweedfs: SeaweedFS,
    monkeypatch: pytest.MonkeyPatch,
    code: str,
    details: dict[str, str],
    kind: type[Exception],
    why: str,
) -> None:
    """SeaweedFS has one region and no temporary keys, so these responses are made as Amazon documents them."""

    async def respond(*_: Any, **__: Any) -> None:
        raise ClientError({"Error": {"Code": code, "Message": "", **details}}, "PutObject")

    monkeypatch.setattr("s3fs.S3FileSystem._call_s3", respond)
    with pytest.raises(kind) as failed:
        write_to(open_at(seaweedfs.uri("x")))
    assert f": {why}" in str(failed.value)


REFUSED = {
    *("NoSuchBucket", "AccessDenied", "AllAccessDisabled", "403", "InvalidAccessKeyId", "SignatureDoesNotMatch"),
    *("ExpiredToken", "ExpiredTokenException", "InvalidToken", "TokenRefreshRequired", "RequestTimeTooSkewed"),
}
BUSY = {
    *("SlowDown", "ServiceUnavailable", "503", "InternalError", "RequestTimeout", "RequestLimitExceeded"),
    *("Throttling", "ThrottlingException", "TooManyRequestsException", "RequestThrottledException"),
}


@pytest.mark.parametrize("code", sorted(REFUSED | BUSY | {"Anything", "NoSuchUpload", "MethodNotAllowed"}))
def test_each_code_of_s3_is_busy_repairable_or_counted(code: str) -> None:
    """Without an HTTP status, as inside of an answer of status 200."""
    failure = s3_failure(code)
    assert failure.repairable is (code in REFUSED)
    assert is_outage(failure) is (code in BUSY)
    assert isinstance(failure, RetryableSinkError) is (code not in REFUSED)


def test_each_status_of_s3_is_busy_repairable_or_counted() -> None:
    require_meanings(lambda status: s3_failure("Anything", status), repairable={401, 403})


def s3_failure(code: str, status: int | None = None) -> RetryableSinkError | TerminalSinkError:
    response: Any = {"Error": {"Code": code, "Message": "no"}}
    if status is not None:
        response["ResponseMetadata"] = {"HTTPStatusCode": status}
    problem = s3_problem(ClientError(response, "PutObject"), CloudStorageOptions())
    assert problem is not None
    return problem.failure("s3://b/x")


# Google Cloud Storage


@pytest.fixture
def gate(gcs_gate: GcsGate) -> Iterator[GcsGate]:
    """The gate of the session; permits everything again afterwards."""
    yield gcs_gate
    gcs_gate.revoked, gcs_gate.forbidden = False, frozenset()


def test_gcs_check_refuses_a_key_that_google_did_not_issue(refusal: Refusal, gate: GcsGate) -> None:
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    said = refusal(gate.uri("x", CREDENTIALS=gate.credentials(key=other)))
    assert said == (
        "sink gs://changefeeds/x cannot be used: Google rejected the credentials (invalid_grant: Invalid JWT"
        " Signature). Check CREDENTIALS"
    )


def test_gcs_check_names_the_missing_permissions(refusal: Refusal, gate: GcsGate) -> None:
    gate.forbidden = frozenset({"POST"})
    assert refusal(gate.uri("x")) == (
        "sink gs://changefeeds/x cannot be used: these credentials lack permissions. Grant them storage.objects.create"
    )
    gate.forbidden = frozenset({"GET"})
    assert refusal(gate.uri("x")).endswith(
        "lack permissions. Grant them storage.objects.create, storage.objects.delete, storage.objects.list"
    )


@pytest.mark.parametrize(
    ("bucket", "changes", "why"),
    [
        ("missing", {}, "the bucket does not exist. Create the bucket, or correct its name in the sink's URI"),
        (
            "changefeeds",
            {"GCS_ENDPOINT": NOWHERE},
            f"the endpoint '{NOWHERE}' cannot be reached. Check the network and GCS_ENDPOINT",
        ),
    ],
)
def test_gcs_check_says_what_is_wrong(
    refusal: Refusal, gate: GcsGate, bucket: str, changes: dict[str, str], why: str
) -> None:
    said = refusal(gate.uri("x", bucket=bucket, **changes))
    assert said == f"sink gs://{bucket}/x cannot be used: {why}"


def test_gcs_works_again_when_revoked_credentials_are_restored(
    open_at: OpenAt, write_to: WriteTo, gate: GcsGate
) -> None:
    sink = open_at(gate.uri("revoked"))
    write_to(sink)
    gate.revoked = True
    with pytest.raises(TerminalSinkError, match="Google rejected the credentials") as failed:
        write_to(sink)
    assert failed.value.repairable
    gate.revoked = False
    write_to(open_at(gate.uri("revoked")))


def test_each_status_of_gcs_is_busy_repairable_or_counted(gate: GcsGate, open_at: OpenAt) -> None:
    store: Any = open_at(gate.uri("x"))._store
    require_meanings(
        lambda status: store._problem(HttpError({"code": status, "message": "no"})).failure("gs://b/x"),
        repairable={401, 403},
    )


@pytest.mark.parametrize("retryable", [False, True])
def test_a_service_for_google_tokens_that_is_busy_refuses_nothing(
    gate: GcsGate, open_at: OpenAt, retryable: bool
) -> None:
    store: Any = open_at(gate.uri("x"))._store
    failure = store._problem(RefreshError("no", retryable=retryable)).failure("gs://b/x")  # type: ignore[no-untyped-call]
    assert failure.repairable is not retryable
    assert is_outage(failure) is retryable


def test_gcs_uses_http_only(
    check: Check, open_at: OpenAt, write_to: WriteTo, gate: GcsGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that asks for the kind of a bucket by gRPC waits a minute before each file where nothing answers."""
    channels: list[str] = []

    def refuse(target: str, *_: Any, **__: Any) -> None:
        channels.append(target)
        raise ConnectionError(target)

    for name in ("secure_channel", "insecure_channel"):
        monkeypatch.setattr(f"grpc.aio.{name}", refuse)
    uri = gate.uri("http")
    check(uri)
    write_to(open_at(uri))
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
            "Azure rejected these credentials or denied them access. Check AZURE_ACCOUNT_KEY, the role Storage Blob"
            " Data Contributor and the account's network rules",
        ),
        ({}, "missing", "the container does not exist. Create the container, or correct its name in the sink's URI"),
        (
            {"AZURE_ENDPOINT": f"{NOWHERE}/account"},
            "",
            f"the endpoint '{NOWHERE}' cannot be reached. Check the network and AZURE_ENDPOINT",
        ),
    ],
)
def test_azure_check_says_what_is_wrong(
    refusal: Refusal, azurite: Azurite, changes: dict[str, str], container: str, why: str
) -> None:
    at = {"container": container} if container else {}
    said = refusal(azurite.uri("x", **at, **changes))
    assert said == f"sink azure://{container or 'changefeeds'}/x cannot be used: {why}"


def test_an_azure_key_that_was_rotated_and_a_missing_container_may_be_repaired(
    open_at: OpenAt, write_to: WriteTo, azurite: Azurite
) -> None:
    for uri in (azurite.uri("x", AZURE_ACCOUNT_KEY="d3Jvbmc="), azurite.uri("x", container="missing")):
        with closing(open_at(uri)) as sink, pytest.raises(TerminalSinkError, match=r"Azure|container") as failed:
            write_to(sink)
        assert failed.value.repairable


def test_a_repeated_slice_and_mark_keep_files_that_may_not_be_replaced(cloud: CloudRig, azurite: Azurite) -> None:
    """As where a bucket has a retention policy. Azure answers 412 for a blob with a lease."""
    place, _, query = azurite.uri("locked").partition("?")
    options = {name.lower(): value for name, value in parse_qsl(query)}

    def attempt(epoch: int) -> CloudStorageResolvedSink:
        sink = cloud.sink(options, uri=place, epoch=epoch)
        sink.begin(replace(slice_of(), planned_by=7))
        sink.emit(rows([1]))
        sink.flush()
        resolved_sink = cloud.resolved_sink(options, uri=place, epoch=epoch)
        resolved_sink.emit_resolved(START)
        return resolved_sink

    attempt(7)
    with BlobServiceClient.from_connection_string(azurite.connection_string) as client:
        container = client.get_container_client(BUCKET)
        blobs = [container.get_blob_client(blob.name) for blob in container.list_blobs("locked/")]
        assert len(blobs) == 3
        for blob in blobs:
            blob.acquire_lease()
        resolved_sink = attempt(8)
        with pytest.raises(RetryableSinkError, match=r"cannot write .*RESOLVED: "):
            resolved_sink._put(ResolvedFile(timestamp=START).path("daily"), b"other content")


def test_each_status_of_azure_is_busy_repairable_or_counted() -> None:
    def failure(status: int) -> CdcError:
        error = HttpResponseError("no")
        error.status_code, error.reason = status, "no"
        return azure._with_response(error, specified=True).failure("azure://b/x")

    require_meanings(failure, repairable={401, 403, 404})


def test_azure_credentials_may_come_from_the_environment(
    check: Check, open_at: OpenAt, write_to: WriteTo, azurite: Azurite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", azurite.connection_string)
    uri = "azure-blob://changefeeds/environment"
    check(uri)
    with closing(open_at(uri)) as sink:
        write_to(sink)


def test_azure_keys_of_the_uri_override_the_environment(
    refusal: Refusal, azurite: Azurite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", azurite.connection_string)
    assert "Azure rejected these credentials" in refusal(azurite.uri("x", AZURE_ACCOUNT_KEY="d3Jvbmc="))


def test_azure_environment_selects_the_addresses_of_a_cloud(open_at: OpenAt) -> None:
    principal = "AZURE_CLIENT_ID=1&AZURE_CLIENT_SECRET=s&AZURE_TENANT_ID=t"
    uri = f"azure://box/x?AZURE_ACCOUNT_NAME=shop&AZURE_ENVIRONMENT=AZURECHINACLOUD&{principal}"
    fs, _ = open_at(uri)._store._place  # type: ignore[attr-defined]
    assert fs.service_client.url == "https://shop.blob.core.chinacloudapi.cn/"
    assert json.loads(json.dumps(fs.service_client.credential._client._authority)).endswith("chinacloudapi.cn")
