"""Azure Blob Storage, through adlfs and the client under it."""

from __future__ import annotations

import asyncio
import base64
import binascii
import io
import logging
import os
import secrets
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import adlfs
from azure.core import exceptions
from azure.identity import AzureAuthorityHosts
from azure.identity.aio import ClientSecretCredential
from azure.storage.blob import BlobBlock
from azure.storage.blob.aio import BlobServiceClient, ExponentialRetry

from cdc_core.errors import OptionError
from cdc_sink_cloudstorage.authentication import is_specified
from cdc_sink_cloudstorage.options import CloudStorageOptions
from cdc_sink_cloudstorage.parts import parts_of
from cdc_sink_cloudstorage.remote import FsspecStore
from cdc_sink_cloudstorage.store import IN_PROGRESS, Chunk, Staged
from cdc_sink_cloudstorage.temporaries import Temporaries
from cdc_sink_cloudstorage.trouble import Trouble

__all__ = ["AzureStore", "open_azure"]

_SUFFIXES = {
    "azurepubliccloud": "core.windows.net",
    "azurechinacloud": "core.chinacloudapi.cn",
    "azureusgovernmentcloud": "core.usgovcloudapi.net",
}
_AUTHORITIES = {
    "azurepubliccloud": AzureAuthorityHosts.AZURE_PUBLIC_CLOUD,
    "azurechinacloud": AzureAuthorityHosts.AZURE_CHINA,
    "azureusgovernmentcloud": AzureAuthorityHosts.AZURE_GOVERNMENT,
}
_RETRY: dict[str, Any] = {"initial_backoff": 1, "increment_base": 2, "retry_total": 3, "random_jitter_range": 1}
_DISCONNECT_S = 2.0
logging.getLogger("azure").setLevel(logging.WARNING)  # it tells of every request, at INFO
_PUT_BYTES = 1024 * 1024
"""More than this the client would send in one piece from its event loop, where all else waits meanwhile."""


def open_azure(options: CloudStorageOptions) -> Any:
    """Return a file system of its own, without connecting. Raises: OptionError."""
    settings: dict[str, Any] = {"use_listings_cache": False, "skip_instance_cache": True}
    if is_specified(options, "Azure"):
        _require_base64(options.azure_account_key)
        key = options.azure_account_key or "AAAA"  # adlfs wants some credential; the client below has its own
        fs = adlfs.AzureBlobFileSystem(account_name=options.azure_account_name, account_key=key, **settings)
        url: str = _account_url(options, options.azure_account_name)
        credential: Any = _named_key(options) if options.azure_account_key else _principal(options)
    else:
        name = options.azure_account_name
        if not (name or any(os.environ.get(variable) for variable in _NAMING)):
            raise OptionError(
                f"no storage account is named: set AZURE_ACCOUNT_NAME, or {_NAMING[0]} in the environment"
            )
        fs = adlfs.AzureBlobFileSystem(account_name=name, **settings)
        url, credential = _placed(fs.service_client, options), fs.service_client.credential
    # adlfs has no setting for how long to try: Azure's default is a minute
    fs.service_client = BlobServiceClient(
        url,
        credential=credential,
        retry_policy=ExponentialRetry(**_RETRY),
        connection_timeout=10,
        read_timeout=60,
    )
    return fs


_NAMING = ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_CONNECTION_STRING")


_PUBLIC = "azurepubliccloud"


def _account_url(options: CloudStorageOptions, name: str | None) -> str:
    if options.azure_endpoint:
        return options.azure_endpoint
    return f"https://{name}.blob.{_SUFFIXES[options.azure_environment]}"


def _placed(client: Any, options: CloudStorageOptions) -> str:
    """Return the URL of *client*, which the environment made, at the place that *options* ask for.

    A connection string names an account of its own. Raises: OptionError when *options* name another.
    """
    named = client.account_name
    if options.azure_account_name and named and named != options.azure_account_name:
        raise OptionError(
            f"AZURE_ACCOUNT_NAME={options.azure_account_name} is not the account of {_NAMING[1]} in the environment,"
            f" {named}: leave one of them out"
        )
    url: str = client.url
    if not options.azure_endpoint and options.azure_environment == _PUBLIC:
        return url
    wanted = urlsplit(_account_url(options, named))
    return urlsplit(url)._replace(scheme=wanted.scheme, netloc=wanted.netloc, path=wanted.path).geturl()


def _named_key(options: CloudStorageOptions) -> dict[str, str]:
    return {"account_name": options.azure_account_name or "", "account_key": options.azure_account_key or ""}


def _principal(options: CloudStorageOptions) -> ClientSecretCredential:
    try:
        return ClientSecretCredential(
            options.azure_tenant_id or "",
            options.azure_client_id or "",
            options.azure_client_secret or "",
            authority=_AUTHORITIES[options.azure_environment],
        )
    except ValueError:
        raise OptionError(
            f"AZURE_TENANT_ID={options.azure_tenant_id} cannot be a tenant: give its ID or its domain, as the portal"
            " shows it"
        ) from None


def _require_base64(key: str | None) -> None:
    try:
        base64.b64decode(key or "", validate=True)
    except binascii.Error:
        raise OptionError(
            "AZURE_ACCOUNT_KEY is not base64: give it as the portal shows it, percent-encoded inside a URI"
        ) from None


class AzureStore(FsspecStore):
    """Small files with one put, large ones in blocks, which nobody sees before their list is committed.

    Blocks that never are cost their room until Azure drops them, a week later. Nothing can list them by their owner.
    """

    def __init__(self, uri: str, options: CloudStorageOptions, *, shown: str, temporaries: Temporaries) -> None:
        super().__init__(uri, shown=shown, temporaries=temporaries, open_client=lambda: open_azure(options))
        self._options = options

    def stage(self, path: str, chunks: Sequence[Chunk]) -> Staged:
        nbytes = sum(len(memoryview(chunk)) for chunk in chunks)
        if nbytes <= _PUT_BYTES:
            return super().stage(path, chunks)
        blocks = _Blocks(self, path)
        self._translated(f"{self._shown}/{path}", lambda: blocks.begin(chunks, nbytes))
        return blocks

    def stage_block(self, path: str, block: str, body: bytes) -> None:
        """Bring one block of *path* to the store."""
        self._run(self._blob(path).stage_block(block, io.BytesIO(body), length=len(body)))

    def commit(self, path: str, blocks: Sequence[str]) -> None:
        """Make *path* visible, made of *blocks*."""
        work = lambda: self._run(self._blob(path).commit_block_list([BlobBlock(block) for block in blocks]))  # noqa: E731
        self._translated(f"{self._shown}/{path}", work)

    def _blob(self, path: str) -> Any:
        fs, root = self._place
        container, _, name = f"{root}/{path}".partition("/")
        return fs.service_client.get_blob_client(container, name)

    def _disconnect(self, fs: Any) -> None:
        asyncio.run_coroutine_threadsafe(_close(fs), fs.loop).result(_DISCONNECT_S)

    def _check(self) -> None:
        fs, root = self._place
        container, _, prefix = root.partition("/")

        async def look() -> None:
            pages = fs.service_client.get_container_client(container).list_blobs(
                prefix or None, results_per_page=1, retry_total=0
            )
            async for _ in pages.by_page():
                break

        self._run(look())
        try:  # a blob of a block that there is not: asks for the right to write, and writes nothing
            self._run(self._blob(f"{IN_PROGRESS}/check").commit_block_list([BlobBlock("none")], retry_total=0))
        except exceptions.HttpResponseError as error:
            if getattr(error, "error_code", None) != "InvalidBlockList":
                raise

    def _trouble(self, error: BaseException) -> Trouble | None:
        specified = is_specified(self._options, "Azure")
        if isinstance(error, exceptions.ClientAuthenticationError) and not getattr(error, "error_code", None):
            said = str(error).splitlines()[0].partition(": ")[2] or "no details"
            return Trouble(
                reason=f"Azure refuses the service principal ({said[:150].rstrip('.')})"
                if specified
                else "there are no credentials for Azure that it takes",
                remedy="check AZURE_CLIENT_ID, AZURE_CLIENT_SECRET and AZURE_TENANT_ID"
                if specified
                else "set AZURE_ACCOUNT_KEY with AUTH=specified, or one of Azure's own in the environment",
            )
        if isinstance(error, exceptions.HttpResponseError):
            return _answered(error, specified=specified)
        if isinstance(error, exceptions.ServiceRequestError | exceptions.ServiceResponseError | TimeoutError):
            endpoint = urlsplit(self._place[0].service_client.url)
            return Trouble(
                reason=f"the endpoint '{endpoint.scheme}://{endpoint.netloc}' cannot be reached",
                remedy="check the network, "
                + ("AZURE_ENDPOINT" if self._options.azure_endpoint else "the account's name and AZURE_ENVIRONMENT"),
            )
        return None


def _answered(error: exceptions.HttpResponseError, *, specified: bool) -> Trouble:
    named = getattr(error, "error_code", None)
    code = str(getattr(named, "value", named) or error.status_code)
    where = "" if specified else " in the environment"
    if code in ("AuthenticationFailed", "InvalidAuthenticationInfo"):
        return Trouble(reason="Azure refuses the key or token of the account", remedy=f"check AZURE_ACCOUNT_KEY{where}")
    if code in ("AuthorizationFailure", "AuthorizationPermissionMismatch", "InsufficientAccountPermissions", "403"):
        return Trouble(
            reason="Azure refuses these credentials, or does not let them use it",
            remedy=f"check AZURE_ACCOUNT_KEY{where}, the role Storage Blob Data Contributor and the account's network",
        )
    if code in ("ContainerNotFound", "ContainerBeingDeleted", "ContainerDisabled"):
        return Trouble(reason="the container does not exist", remedy="create it or correct its name in the sink's URI")
    if code in ("InvalidResourceName", "OutOfRangeInput"):
        return Trouble(
            reason="no container or blob can have that name",
            remedy="correct the container in the sink's URI, or shorten topic_prefix or its path",
            hopeless=True,
        )
    message = str(error.reason or error.message).splitlines()[0].rstrip(".")
    return Trouble(reason=f"the store answered '{message}'", remedy=f"see what Azure says of {code}")


async def _close(fs: Any) -> None:
    await fs.service_client.close()
    for credential in (fs.service_client.credential, fs.credential):  # ours, and what adlfs made of the environment
        if hasattr(credential, "close"):
            await credential.close()


class _Blocks(Staged):
    """One blob in blocks."""

    def __init__(self, store: AzureStore, path: str) -> None:
        self._store = store
        self._path = path
        self._mine = secrets.token_hex(8)  # nobody else's block of this path, however late it comes, is one of ours
        self._blocks: list[str] = []

    def begin(self, chunks: Sequence[Chunk], nbytes: int) -> None:
        """Upload all blocks."""
        for number, body in enumerate(parts_of(chunks, nbytes)):
            block = f"{self._mine}-{number:08d}"
            self._store.stage_block(self._path, block, body)
            self._blocks.append(block)

    def publish(self) -> None:
        self._store.commit(self._path, self._blocks)

    def discard(self) -> None:
        """Azure drops the blocks."""
