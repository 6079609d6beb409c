"""Credentials that cannot be meant are refused before anything is connected to."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from azure.identity.aio import ClientSecretCredential
from cdc_sink_cloudstorage.options import CloudStorageOptions
from cdc_sink_cloudstorage.sink import CloudStorageSink

from cdc_core import ConfigError, OptionError
from cdc_core.options import parse_options, secret_values

OpenSink = Callable[..., CloudStorageSink]
S3_KEYS = {"aws_access_key_id": "id", "aws_secret_access_key": "hunter2"}
SHOP = "DefaultEndpointsProtocol=https;AccountName=shop;AccountKey=AAAA;EndpointSuffix=core.windows.net"
PRINCIPAL = {"azure_client_id": "c", "azure_client_secret": "hunter2", "azure_tenant_id": "t"}


@pytest.mark.parametrize(
    ("uri", "options", "sentence"),
    [
        (
            "s3://bucket/x",
            {"auth": "specified"},
            "sink 's3://bucket/x' has AUTH=specified but no credentials: set AWS_ACCESS_KEY_ID and"
            " AWS_SECRET_ACCESS_KEY, or use AUTH=implicit",
        ),
        (
            "s3://bucket/x",
            {"aws_access_key_id": "id"},
            "sink 's3://bucket/x' has credentials that are not complete: with AUTH=specified set"
            " AWS_SECRET_ACCESS_KEY too, or take AWS_ACCESS_KEY_ID out and use AUTH=implicit",
        ),
        (
            "s3://bucket/x",
            {"auth": "implicit", **S3_KEYS},
            "sink 's3://bucket/x' has AUTH=implicit and AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY: leave them out,"
            " or set AUTH=specified",
        ),
        (
            "s3://bucket/x",
            {"azure_account_name": "a"},
            "sink 's3://bucket/x' cannot use AZURE_ACCOUNT_NAME, which is for Azure: leave it out",
        ),
        (
            "gs://bucket/x",
            {"aws_region": "eu-west-1", "s3_storage_class": "GLACIER"},
            "sink 'gs://bucket/x' cannot use AWS_REGION and S3_STORAGE_CLASS, which are for S3: leave them out",
        ),
        (
            "gs://bucket/x",
            {"auth": "specified"},
            "sink 'gs://bucket/x' has AUTH=specified but no credentials: set CREDENTIALS, or use AUTH=implicit",
        ),
        (
            "gs://bucket/x",
            {"credentials": "hunter2"},
            "CREDENTIALS is neither the JSON text of a key file nor base64 of it: give it as `base64 -w0 FILE` prints"
            " it, percent-encoded inside a URI",
        ),
        (
            "gs://bucket/x",
            {"credentials": base64.b64encode(b'{"type": "service_account", "private_key": "hunter2"}').decode()},
            "CREDENTIALS is no complete key file of the type service_account: download the key anew",
        ),
        (
            "gs://bucket/x",
            {"credentials": json.dumps({"type": "external_account", "token": "hunter2"})},
            "CREDENTIALS must be the key file of a service account: other kinds go by the environment, with"
            " AUTH=implicit and GOOGLE_APPLICATION_CREDENTIALS",
        ),
        (
            "azure-blob://box/x",
            {"azure_account_key": "aHVudGVyMg=="},
            "sink 'azure-blob://box/x' has credentials that are not complete: with AUTH=specified set"
            " AZURE_ACCOUNT_NAME too, or take AZURE_ACCOUNT_KEY out and use AUTH=implicit",
        ),
        (
            "azure-storage://box/x",
            {"azure_account_name": "a", "azure_account_key": "hunter2 "},
            "AZURE_ACCOUNT_KEY is not base64: give it as the portal shows it, percent-encoded inside a URI",
        ),
        (
            "azure://box/x",
            {"azure_account_name": "a", "azure_account_key": "aHVudGVyMg==", **PRINCIPAL},
            "sink 'azure://box/x' has both an account key and what a service principal needs, AZURE_CLIENT_ID,"
            " AZURE_CLIENT_SECRET and AZURE_TENANT_ID: keep one of them",
        ),
        (
            "azure://box/x",
            {"azure_account_name": "a", "azure_account_key": "aHVudGVyMg==", "azure_tenant_id": "t"},
            "sink 'azure://box/x' has both an account key and what a service principal needs, AZURE_TENANT_ID: keep one"
            " of them",
        ),
        (
            "azure://box/x",
            {"azure_account_name": "a", **PRINCIPAL, "azure_tenant_id": "a tenant"},
            "AZURE_TENANT_ID=a tenant cannot be a tenant: give its ID or its domain, as the portal shows it",
        ),
        (
            "azure://box/x",
            {"auth": "specified", "azure_account_name": "a"},
            "sink 'azure://box/x' has AUTH=specified but no credentials: set AZURE_ACCOUNT_NAME and AZURE_ACCOUNT_KEY"
            " or AZURE_ACCOUNT_NAME, AZURE_CLIENT_ID, AZURE_CLIENT_SECRET and AZURE_TENANT_ID, or use AUTH=implicit",
        ),
        (
            "azure://box/x",
            {},
            "no storage account is named: set AZURE_ACCOUNT_NAME, or AZURE_STORAGE_ACCOUNT_NAME in the environment",
        ),
        (
            "s3://bucket/x",
            {"auth": "specified", "aws_access_key_id": "id", "aws_secret_access_key": ""},
            "sink 's3://bucket/x' has nothing in AWS_SECRET_ACCESS_KEY: give a value, or leave it out",
        ),
        (
            "file:///data/out",
            {"aws_session_token": "hunter2"},
            "sink 'file:///data/out' cannot use AWS_SESSION_TOKEN, which is for S3: leave it out",
        ),
        (
            "memory://bucket/x",
            {"auth": "implicit"},
            "sink 'memory://bucket/x' needs no credentials and cannot use AUTH: leave it out",
        ),
        (
            "s3://bucket/x",
            {"s3_storage_class": "FROZEN"},
            "sink 's3://bucket/x' has S3_STORAGE_CLASS=FROZEN, which S3 does not know: choose one of STANDARD, ",
        ),
    ],
)
def test_credentials_that_do_not_fit_are_refused_in_one_sentence(
    open_sink: OpenSink, uri: str, options: dict[str, Any], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_CONNECTION_STRING"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(OptionError) as refused:
        open_sink(options, uri=uri).check()
    assert str(refused.value).startswith(sentence)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "url"),
    [
        ({}, "https://shop.blob.core.windows.net/"),
        ({"azure_account_name": "shop"}, "https://shop.blob.core.windows.net/"),
        ({"azure_environment": "azurechinacloud"}, "https://shop.blob.core.chinacloudapi.cn/"),
        ({"azure_endpoint": "http://127.0.0.1:10000/shop"}, "http://127.0.0.1:10000/shop"),
        (
            {"azure_endpoint": "http://127.0.0.1:10000/shop", "azure_account_name": "shop"},
            "http://127.0.0.1:10000/shop",
        ),
    ],
)
@pytest.mark.parametrize("environment", [{"ACCOUNT_NAME": "shop", "ACCOUNT_KEY": "AAAA"}, {"CONNECTION_STRING": SHOP}])
def test_azure_goes_where_the_options_say_with_the_credentials_of_the_environment(
    open_sink: OpenSink,
    options: dict[str, Any],
    url: str,
    environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(f"AZURE_STORAGE_{name}", value)
    fs, _ = open_sink(options, uri="azure://box/x")._store._place  # type: ignore[attr-defined]
    assert fs.service_client.url.rstrip("/") == url.rstrip("/")


def test_a_service_principals_connections_end_with_the_sink(
    open_sink: OpenSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has connections of its own, to where tokens come from."""
    closed = []

    async def close(principal: ClientSecretCredential) -> None:
        closed.append(principal)

    monkeypatch.setattr(ClientSecretCredential, "close", close)
    sink = open_sink({"azure_account_name": "a", **PRINCIPAL}, uri="azure://box/x")
    principal = sink._store._place[0].service_client.credential  # type: ignore[attr-defined]
    sink.close()
    assert closed == [principal]


def test_an_account_other_than_that_of_the_environments_connection_string_is_refused(
    open_sink: OpenSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", SHOP)
    with pytest.raises(
        OptionError, match=r"AZURE_ACCOUNT_NAME=other is not the account of .*, shop: leave one of them"
    ):
        open_sink({"azure_account_name": "other"}, uri="azure://box/x").check()


def test_a_role_to_assume_is_refused_with_what_to_do_instead() -> None:
    with pytest.raises(OptionError) as refused:
        parse_options(CloudStorageOptions, {"assume_role": "arn:aws:iam::1:role/cdc"}, owner="sink 'cloudstorage'")
    assert str(refused.value) == (
        "sink 'cloudstorage': ASSUME_ROLE is not supported: put the role into a profile of the AWS configuration"
        " (role_arn and source_profile or credential_source), name that in AWS_PROFILE, and set AUTH=implicit"
    )


def test_secrets_are_declared_secret() -> None:
    options = CloudStorageOptions(
        aws_secret_access_key="hunter2",
        aws_session_token="hunter2",
        credentials="hunter2",
        azure_account_key="hunter2",
        azure_client_secret="hunter2",
    )
    assert "hunter2" not in repr(options)


@pytest.mark.parametrize("name", ["aws_endpoint", "gcs_endpoint", "azure_endpoint"])
def test_what_is_secret_in_an_endpoint_is_masked(name: str) -> None:
    endpoint = "https://me:hunter2@store.example.com/x?sv=1&sig=hunter3"
    options = parse_options(CloudStorageOptions, {name: endpoint}, owner="sink 'cloudstorage'")
    assert {"hunter2", "hunter3"} <= set(secret_values(options))
    assert "hunter" not in repr(options)


@pytest.mark.parametrize("uri", ["s3://user:hunter2@bucket/x", "azure://user:hunter2@box/x"])
def test_a_password_in_the_uri_is_refused_unseen(open_sink: OpenSink, uri: str) -> None:
    with pytest.raises(ConfigError, match="has a password, which would become part of the bucket's name") as refused:
        open_sink(uri=uri).check()
    assert "hunter2" not in str(refused.value)
