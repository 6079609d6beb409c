"""Credentials that cannot be right are refused before the sink connects."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
from azure.identity.aio import ClientSecretCredential
from cdc_sink_cloudstorage.options import CloudStorageOptions
from cdc_testing.cloud_rig import CloudRig

from cdc_core import ConfigError, OptionError, parse_options, secret_values

S3_KEYS = {"aws_access_key_id": "id", "aws_secret_access_key": "hunter2"}
SHOP = "DefaultEndpointsProtocol=https;AccountName=shop;AccountKey=AAAA;EndpointSuffix=core.windows.net"
PRINCIPAL = {"azure_client_id": "c", "azure_client_secret": "hunter2", "azure_tenant_id": "t"}


REFUSED = """\
s3://bucket/x auth=specified
    sink 's3://bucket/x' has AUTH=specified but no credentials. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or use AUTH=implicit
s3://bucket/x aws_access_key_id=id
    sink 's3://bucket/x' has incomplete credentials. Set AWS_SECRET_ACCESS_KEY as well, or remove AWS_ACCESS_KEY_ID and use AUTH=implicit
s3://bucket/x auth=implicit aws_access_key_id=id aws_secret_access_key=hunter2
    sink 's3://bucket/x' has AUTH=implicit together with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. Remove them, or set AUTH=specified
s3://bucket/x azure_account_name=a
    sink 's3://bucket/x' cannot use AZURE_ACCOUNT_NAME, which is for Azure. Remove it
gs://bucket/x aws_region=eu-west-1 s3_storage_class=GLACIER
    sink 'gs://bucket/x' cannot use AWS_REGION and S3_STORAGE_CLASS, which are for S3. Remove them
gs://bucket/x auth=specified
    sink 'gs://bucket/x' has AUTH=specified but no credentials. Set CREDENTIALS, or use AUTH=implicit
gs://bucket/x credentials=hunter2
    CREDENTIALS is neither the JSON of a key file nor that JSON in base64. Set it to the output of `base64 -w0 FILE`, percent-encoded inside a URI
gs://bucket/x credentials=eyJ0eXBlIjogInNlcnZpY2VfYWNjb3VudCIsICJwcml2YXRlX2tleSI6ICJodW50ZXIyIn0=
    CREDENTIALS is an incomplete key file of type service_account. Download the key again
gs://bucket/x 'credentials={"type": "external_account", "token": "hunter2"}'
    CREDENTIALS must be the key file of a service account. For other kinds set AUTH=implicit, and GOOGLE_APPLICATION_CREDENTIALS in the environment
azure-blob://box/x azure_account_key=aHVudGVyMg==
    sink 'azure-blob://box/x' has incomplete credentials. Set AZURE_ACCOUNT_NAME as well, or remove AZURE_ACCOUNT_KEY and use AUTH=implicit
azure-storage://box/x azure_account_name=a 'azure_account_key=hunter2 '
    AZURE_ACCOUNT_KEY is not base64. Copy the key from the Azure portal, and percent-encode it inside a URI
azure://box/x azure_account_name=a azure_account_key=aHVudGVyMg== azure_client_id=c azure_client_secret=hunter2 azure_tenant_id=t
    sink 'azure://box/x' has both an account key and parameters of a service principal, AZURE_CLIENT_ID, AZURE_CLIENT_SECRET and AZURE_TENANT_ID. Keep only one of the two
azure://box/x azure_account_name=a azure_account_key=aHVudGVyMg== azure_tenant_id=t
    sink 'azure://box/x' has both an account key and parameters of a service principal, AZURE_TENANT_ID. Keep only one of the two
azure://box/x azure_account_name=a azure_client_id=c azure_client_secret=hunter2 'azure_tenant_id=a tenant'
    AZURE_TENANT_ID=a tenant is neither the ID nor the domain of a tenant. Copy the tenant ID from the Azure portal
azure://box/x auth=specified azure_account_name=a
    sink 'azure://box/x' has AUTH=specified but no credentials. Set AZURE_ACCOUNT_NAME and AZURE_ACCOUNT_KEY or AZURE_ACCOUNT_NAME, AZURE_CLIENT_ID, AZURE_CLIENT_SECRET and AZURE_TENANT_ID, or use AUTH=implicit
azure://box/x
    the storage account is not known. Set AZURE_ACCOUNT_NAME, or AZURE_STORAGE_ACCOUNT_NAME in the environment
s3://bucket/x auth=specified aws_access_key_id=id aws_secret_access_key=
    sink 's3://bucket/x' has an empty value for AWS_SECRET_ACCESS_KEY. Set a value, or remove the parameter
file:///data/out aws_session_token=hunter2
    sink 'file:///data/out' cannot use AWS_SESSION_TOKEN, which is for S3. Remove it
memory://bucket/x auth=implicit
    sink 'memory://bucket/x' does not use credentials. Remove AUTH
s3://bucket/x s3_storage_class=FROZEN
    sink 's3://bucket/x' has S3_STORAGE_CLASS=FROZEN, which S3 does not know. Choose one of STANDARD
"""  # noqa: E501


@pytest.mark.parametrize(("given", "sentence"), re.findall(r"^(\S.*)\n    (.*)$", REFUSED, re.MULTILINE))
def test_credentials_that_do_not_fit_are_refused(
    cloud: CloudRig, given: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, *options = shlex.split(given)
    for name in ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_CONNECTION_STRING"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(OptionError) as refused:
        cloud.destination(dict(option.split("=", 1) for option in options), uri=uri).check()
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
def test_azure_uses_the_place_of_the_options_and_the_credentials_of_the_environment(
    cloud: CloudRig, options: dict[str, Any], url: str, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(f"AZURE_STORAGE_{name}", value)
    fs, _ = cloud.destination(options, uri="azure://box/x")._store._place  # type: ignore[attr-defined]
    assert fs.service_client.url.rstrip("/") == url.rstrip("/")


def test_close_closes_the_connections_of_a_service_principal(cloud: CloudRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service principal has its own connections, to the server that issues tokens."""
    closed = []

    async def close(principal: ClientSecretCredential) -> None:
        closed.append(principal)

    monkeypatch.setattr(ClientSecretCredential, "close", close)
    destination = cloud.destination({"azure_account_name": "a", **PRINCIPAL}, uri="azure://box/x")
    principal = destination._store._place[0].service_client.credential  # type: ignore[attr-defined]
    destination.close()
    assert closed == [principal]


def test_an_account_other_than_that_of_the_connection_string_is_refused(
    cloud: CloudRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", SHOP)
    with pytest.raises(
        OptionError, match=r"AZURE_ACCOUNT_NAME=other differs from the account 'shop' of AZURE_STORAGE_CO"
    ):
        cloud.destination({"azure_account_name": "other"}, uri="azure://box/x").check()


def test_assume_role_is_refused_with_the_alternative() -> None:
    with pytest.raises(OptionError) as refused:
        parse_options(CloudStorageOptions, {"assume_role": "arn:aws:iam::1:role/cdc"}, owner="sink 'cloudstorage'")
    assert str(refused.value) == (
        "sink 'cloudstorage': ASSUME_ROLE is not supported. Set AUTH=implicit and, in the environment, AWS_PROFILE to a"
        " profile that has role_arn and source_profile or credential_source, or, for Google Cloud Storage,"
        " GOOGLE_APPLICATION_CREDENTIALS to a file of impersonated credentials"
    )


def test_secret_options_are_declared_secret() -> None:
    options = CloudStorageOptions(
        aws_secret_access_key="hunter2",
        aws_session_token="hunter2",
        credentials="hunter2",
        azure_account_key="hunter2",
        azure_client_secret="hunter2",
    )
    assert "hunter2" not in repr(options)


@pytest.mark.parametrize("name", ["aws_endpoint", "gcs_endpoint", "azure_endpoint"])
def test_secrets_in_an_endpoint_are_masked(name: str) -> None:
    endpoint = "https://me:hunter2@store.example.com/x?sv=1&sig=hunter3"
    options = parse_options(CloudStorageOptions, {name: endpoint}, owner="sink 'cloudstorage'")
    assert {"hunter2", "hunter3"} <= set(secret_values(options))
    assert "hunter" not in repr(options)


@pytest.mark.parametrize("uri", ["s3://user:hunter2@bucket/x", "azure://user:hunter2@box/x"])
def test_a_password_in_the_uri_is_refused_and_not_shown(cloud: CloudRig, uri: str) -> None:
    with pytest.raises(
        ConfigError, match="contains a password, which would become part of the bucket's name"
    ) as refused:
        cloud.destination(uri=uri).check()
    assert "hunter2" not in str(refused.value)
