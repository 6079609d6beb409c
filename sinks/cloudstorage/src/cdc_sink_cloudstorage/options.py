"""Options of the cloud-storage sink."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cdc_core.options import MB, ByteSize, option

__all__ = ["CloudStorageOptions"]

_S3 = "S3: "
_AZURE = "Azure: "


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudStorageOptions:
    """What a user may say about the files; as options of the changefeed or as parameters of the sink's URI."""

    partition_format: Literal["daily", "hourly", "flat"] = option(
        "daily",
        doc="Directories that files are sorted into by their timestamp (UTC): `2020-04-02/`, `2020-04-02/15/`, or none."
        " Choose it once: files of two formats under one root do not sort together.",
    )
    file_size: ByteSize = option(
        ByteSize(16 * MB),
        doc="Size at which a file is closed, compared with its bytes after compression. Files may exceed it by one"
        " batch of rows.",
    )
    upload_buffer: ByteSize = option(
        ByteSize(64 * MB),
        doc="From so many bytes of finished files on that wait for the store, or are on their way, the source is read"
        " no faster than they leave. At most four files travel at once.",
    )
    compression: Literal["none", "gzip", "zstd"] = option(
        "none",
        doc="How data files are compressed; adds `.gz` or `.zst` to their names, unless the format compresses inside,"
        " as Parquet does. Resolved files never are.",
    )
    topic_prefix: str = option("", doc="Text put before every topic, and so before the table's name in file names.")
    auth: Literal["specified", "implicit"] | None = option(
        None,
        doc="Where the credentials are: `specified` here, or `implicit` in the environment, profile or machine's role,"
        " as the store's own tools find them. By default `specified` when there are any here.",
    )
    aws_access_key_id: str | None = option(None, doc=_S3 + "the access key.")
    aws_secret_access_key: str | None = option(None, doc=_S3 + "its secret.", secret=True)
    aws_session_token: str | None = option(None, doc=_S3 + "the token of temporary keys.", secret=True)
    aws_region: str | None = option(None, doc=_S3 + "the bucket's region; by default that of the environment.")
    aws_endpoint: str | None = option(
        None,
        doc=_S3 + "URL of a store other than Amazon's, such as `https://minio.example.com:9000`.",
        uri=True,
        place=True,
    )
    s3_storage_class: str | None = option(
        None, doc=_S3 + "storage class of all files, such as `STANDARD_IA`; by default the bucket's, `STANDARD`."
    )
    assume_role: str | None = option(None, doc=_S3 + "not supported: name the role in a profile, see below.")
    credentials: str | None = option(
        None, doc="Google Cloud Storage: the key file of a service account, as JSON or as base64 of it.", secret=True
    )
    gcs_endpoint: str | None = option(
        None, doc="Google Cloud Storage: URL of another endpoint, such as an emulator's.", uri=True, place=True
    )
    azure_account_name: str | None = option(None, doc=_AZURE + "the storage account.", place=True)
    azure_account_key: str | None = option(None, doc=_AZURE + "its key.", secret=True)
    azure_client_id: str | None = option(None, doc=_AZURE + "id of a service principal, in the place of a key.")
    azure_client_secret: str | None = option(None, doc=_AZURE + "the service principal's secret.", secret=True)
    azure_tenant_id: str | None = option(None, doc=_AZURE + "the service principal's tenant.")
    azure_environment: Literal["azurepubliccloud", "azurechinacloud", "azureusgovernmentcloud"] = option(
        "azurepubliccloud", doc=_AZURE + "the cloud that the account is in; upper or lower case.", place=True
    )
    azure_endpoint: str | None = option(
        None, doc=_AZURE + "URL of another endpoint, account included, such as an emulator's.", uri=True, place=True
    )

    def __post_init__(self) -> None:
        for name in ("file_size", "upload_buffer"):
            if getattr(self, name) < 1:
                raise ValueError(f"option '{name}' must be at least 1 byte")
        if self.assume_role is not None:
            raise ValueError(
                "ASSUME_ROLE is not supported: put the role into a profile of the AWS configuration (role_arn and"
                " source_profile or credential_source), name that in AWS_PROFILE, and set AUTH=implicit"
            )
