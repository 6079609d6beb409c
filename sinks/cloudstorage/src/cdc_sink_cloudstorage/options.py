"""Options of the cloud-storage sink."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cdc_core import MB, ByteSize, SinkContext, option

_S3 = "S3: "
_GCS = "Google Cloud Storage: "
_AZURE = "Azure: "


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudStorageOptions:
    """The options of the sink, given as options of the changefeed or as parameters of the sink's URI."""

    partition_format: Literal["daily", "hourly", "flat"] = option(
        "daily",
        doc="How to group files into directories, by timestamp (UTC): `2020-04-02/`, `2020-04-02/15/`, or no"
        " directories. Do not change this option later: the files under one root sort in order only if all of them are"
        " grouped in the same way.",
    )
    file_size: ByteSize = option(
        ByteSize(16 * MB),
        doc="Size at which a file is closed, measured after compression. A file may exceed this size by one batch of"
        " rows.",
    )
    upload_buffer: ByteSize = option(
        ByteSize(64 * MB),
        doc="Total size of finished files that may wait to be uploaded. At this limit, the source is read only as fast"
        " as files are uploaded. At most four files are uploaded at the same time.",
    )
    compression: Literal["none", "gzip", "zstd"] = option(
        "none",
        doc="Compression of data files. Adds `.gz` or `.zst` to file names, unless the format compresses data itself,"
        " as Parquet does. Resolved files are never compressed.",
    )
    topic_prefix: str = option("", doc="Prefix of every topic, and therefore of table names in file names.")
    auth: Literal["specified", "implicit"] | None = option(
        None,
        doc="Where credentials come from. `specified`: from the sink's options. `implicit`: from the environment, a"
        " profile or the machine's role, where the store's own tools find them. Default: `specified` if the sink's"
        " options contain any credentials, otherwise `implicit`.",
    )
    aws_access_key_id: str | None = option(None, doc=_S3 + "the access key ID.")
    aws_secret_access_key: str | None = option(None, doc=_S3 + "the secret access key.", secret=True)
    aws_session_token: str | None = option(None, doc=_S3 + "the session token for temporary credentials.", secret=True)
    aws_region: str | None = option(None, doc=_S3 + "the bucket's region. Default: the region set in the environment.")
    aws_endpoint: str | None = option(
        None,
        doc=_S3 + "the URL of a store other than Amazon's, such as `https://minio.example.com:9000`.",
        uri=True,
        place=True,
    )
    s3_storage_class: str | None = option(
        None,
        doc=_S3 + "the storage class for all files, such as `STANDARD_IA`. Default: the bucket's default, `STANDARD`.",
    )
    aws_server_enc_mode: Literal["aes256", "aws:kms"] | None = option(
        None,
        doc=_S3 + "the server-side encryption to request, if the bucket's policy requires it. Default: the bucket's"
        " own setting.",
    )
    aws_server_kms_id: str | None = option(
        None, doc=_S3 + "the KMS key for `aws:kms`. Default: the bucket's key or, if it has none, the account's."
    )
    assume_role: str | None = option(
        None, doc="Not supported. Use implicit credentials that assume the role or impersonate the account."
    )
    credentials: str | None = option(
        None, doc=_GCS + "the contents of a service account's key file, as JSON or base64-encoded JSON.", secret=True
    )
    gcs_endpoint: str | None = option(
        None, doc=_GCS + "the URL of another endpoint, such as an emulator.", uri=True, place=True
    )
    azure_account_name: str | None = option(None, doc=_AZURE + "the name of the storage account.", place=True)
    azure_account_key: str | None = option(None, doc=_AZURE + "the account key.", secret=True)
    azure_client_id: str | None = option(
        None, doc=_AZURE + "the client ID of a service principal, instead of an account key."
    )
    azure_client_secret: str | None = option(
        None, doc=_AZURE + "the client secret of the service principal.", secret=True
    )
    azure_tenant_id: str | None = option(None, doc=_AZURE + "the tenant ID of the service principal.")
    azure_environment: Literal["azurepubliccloud", "azurechinacloud", "azureusgovernmentcloud"] = option(
        "azurepubliccloud", doc=_AZURE + "the cloud that hosts the account, in upper or lower case.", place=True
    )
    azure_endpoint: str | None = option(
        None,
        doc=_AZURE + "the URL of another endpoint, such as an emulator, including the account if it is part of the"
        " path.",
        uri=True,
        place=True,
    )

    def __post_init__(self) -> None:
        for name in ("file_size", "upload_buffer"):
            if getattr(self, name) < 1:
                raise ValueError(f"option '{name}' must be at least 1 byte")
        if self.aws_server_kms_id is not None and self.aws_server_enc_mode != "aws:kms":
            raise ValueError("AWS_SERVER_KMS_ID requires AWS_SERVER_ENC_MODE=aws:kms")
        if self.assume_role is not None:
            raise ValueError(
                "ASSUME_ROLE is not supported. Set AUTH=implicit and, in the environment, AWS_PROFILE to a profile that"
                " has role_arn and source_profile or credential_source, or, for Google Cloud Storage,"
                " GOOGLE_APPLICATION_CREDENTIALS to a file of impersonated credentials"
            )


def options_of(context: SinkContext) -> CloudStorageOptions:
    """Return the options of *context*. Raises: TypeError when they are those of another sink."""
    if not isinstance(context.options, CloudStorageOptions):
        raise TypeError(f"options must be CloudStorageOptions, not {type(context.options).__name__}")
    return context.options
