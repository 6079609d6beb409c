"""Azure Blob Storage, through adlfs and the client that adlfs uses."""

from __future__ import annotations

import asyncio
import base64
import binascii
import io
import logging
import os
import secrets
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import adlfs
import aiohttp
from azure.core import exceptions
from azure.identity import AzureAuthorityHosts
from azure.identity.aio import ClientSecretCredential
from azure.storage.blob import BlobBlock
from azure.storage.blob.aio import BlobServiceClient, ExponentialRetry

from cdc_core import OptionError
from cdc_sink_cloudstorage.authentication import is_specified
from cdc_sink_cloudstorage.options import CloudStorageOptions
from cdc_sink_cloudstorage.parts import split_parts
from cdc_sink_cloudstorage.remote import FsspecStore
from cdc_sink_cloudstorage.store import IN_PROGRESS, Chunk, Staged
from cdc_sink_cloudstorage.store_problem import NOT_STORED, NotStoredError, StoreProblem

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
_PUBLIC = "azurepubliccloud"
_ACCOUNT_VARIABLES = ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_CONNECTION_STRING")
"""Environment variables that name the account."""
_RETRY: dict[str, Any] = {"initial_backoff": 1, "increment_base": 2, "retry_total": 3, "random_jitter_range": 1}
_DISCONNECT_S = 2.0
logging.getLogger("azure").setLevel(logging.WARNING)  # at INFO it logs every request
_PUT_BYTES = 1024 * 1024
"""Largest file in one request. The client sends it from its event loop, and all other requests wait meanwhile."""


def _account_url(options: CloudStorageOptions, name: str | None) -> str:
    if options.azure_endpoint:
        return options.azure_endpoint
    return f"https://{name}.blob.{_SUFFIXES[options.azure_environment]}"


def _url_of(client: Any, options: CloudStorageOptions) -> str:
    """Return the URL of *client*, made from the environment, with the endpoint and cloud of *options*.

    A connection string in the environment names an account. Raises: OptionError when *options* name another.
    """
    named = client.account_name
    if options.azure_account_name and named and named != options.azure_account_name:
        raise OptionError(
            f"AZURE_ACCOUNT_NAME={options.azure_account_name} differs from the account '{named}' of"
            f" {_ACCOUNT_VARIABLES[1]} in the environment. Remove one of them"
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
            f"AZURE_TENANT_ID={options.azure_tenant_id} is neither the ID nor the domain of a tenant. Copy the tenant"
            " ID from the Azure portal"
        ) from None


def _require_base64(key: str | None) -> None:
    try:
        base64.b64decode(key or "", validate=True)
    except binascii.Error:
        raise OptionError(
            "AZURE_ACCOUNT_KEY is not base64. Copy the key from the Azure portal, and percent-encode it inside a URI"
        ) from None


class AzureStore(FsspecStore):
    """Writes small files with one put and large ones in blocks, which stay invisible until their list is committed.

    Blocks that are never committed take storage until Azure removes them after a week. They cannot be listed by owner,
    so `sweep` does not remove them.
    """

    @staticmethod
    def new_client(options: CloudStorageOptions) -> Any:
        """Return a new file system that shares no connections with others. Does not connect. Raises: OptionError."""
        settings: dict[str, Any] = {"use_listings_cache": False, "skip_instance_cache": True}
        if is_specified(options, "Azure"):
            _require_base64(options.azure_account_key)
            key = options.azure_account_key or "AAAA"  # adlfs requires a credential; the client below has its own
            fs = adlfs.AzureBlobFileSystem(account_name=options.azure_account_name, account_key=key, **settings)
            url: str = _account_url(options, options.azure_account_name)
            credential: Any = _named_key(options) if options.azure_account_key else _principal(options)
        else:
            name = options.azure_account_name
            if not (name or any(os.environ.get(variable) for variable in _ACCOUNT_VARIABLES)):
                raise OptionError(
                    "the storage account is not known. Set AZURE_ACCOUNT_NAME, or"
                    f" {_ACCOUNT_VARIABLES[0]} in the environment"
                )
            fs = adlfs.AzureBlobFileSystem(account_name=name, **settings)
            url, credential = _url_of(fs.service_client, options), fs.service_client.credential
        # adlfs has no setting for retries, and by default Azure's client retries for a minute
        fs.service_client = BlobServiceClient(
            url,
            credential=credential,
            retry_policy=ExponentialRetry(**_RETRY),
            connection_timeout=10,
            read_timeout=60,
        )
        return fs

    def stage(self, path: str, chunks: Sequence[Chunk]) -> Staged:
        nbytes = sum(len(memoryview(chunk)) for chunk in chunks)
        if nbytes <= _PUT_BYTES:
            return super().stage(path, chunks)
        blocks = _Blocks(self, path)
        self._translate_errors(f"{self._shown}/{path}", lambda: blocks.begin(chunks, nbytes))
        return blocks

    def stage_block(self, path: str, block: str, body: bytes) -> None:
        """Upload one block of *path*."""
        self._run(self._blob(path).stage_block(block, io.BytesIO(body), length=len(body)))

    def commit(self, path: str, blocks: Sequence[str]) -> None:
        """Make *path* visible: the contents of *blocks*, in order."""
        listed = [BlobBlock(block) for block in blocks]
        work = lambda: _require_azure(self._run(self._blob(path).commit_block_list(listed)))  # noqa: E731
        self._translate_errors(f"{self._shown}/{path}", work)

    def _put(self, path: str, body: bytes) -> None:
        _require_azure(super()._put(path, body))

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
        try:  # a list with a block that does not exist: needs the permission to write, and writes nothing
            self._run(self._blob(f"{IN_PROGRESS}/check").commit_block_list([BlobBlock("none")], retry_total=0))
        except exceptions.HttpResponseError as error:
            if getattr(error, "error_code", None) != "InvalidBlockList":
                raise

    def _problem(self, error: BaseException) -> StoreProblem | None:
        specified = is_specified(self._options, "Azure")
        if isinstance(error, exceptions.ClientAuthenticationError) and not getattr(error, "error_code", None):
            if specified:
                said = str(error).splitlines()[0].partition(": ")[2] or "no details"
                return StoreProblem(
                    reason=f"Azure rejected the service principal ({said[:150].rstrip('.')})",
                    remedy="Check AZURE_CLIENT_ID, AZURE_CLIENT_SECRET and AZURE_TENANT_ID",
                    repairable=True,
                )
            return StoreProblem(
                reason="no usable credentials for Azure were found",
                remedy="Set AZURE_ACCOUNT_KEY with AUTH=specified, or Azure's own variables in the environment",
                repairable=True,
            )
        if isinstance(error, exceptions.HttpResponseError):
            return _with_response(error, specified=specified)
        if isinstance(error, exceptions.ServiceRequestError | exceptions.ServiceResponseError | TimeoutError):
            endpoint = urlsplit(self._place[0].service_client.url)
            causes = (
                " and AZURE_ENDPOINT" if self._options.azure_endpoint else ", the account name and AZURE_ENVIRONMENT"
            )
            return StoreProblem(
                reason=f"the endpoint '{endpoint.scheme}://{endpoint.netloc}' cannot be reached",
                remedy=f"Check the network{causes}",
                repairable=isinstance(getattr(error, "inner_exception", None), aiohttp.ClientSSLError),
            )
        return None


def _require_azure(answer: Mapping[str, Any]) -> None:
    """Return if *answer* is Azure's, which numbers its answers. Raises: NotStoredError."""
    if not answer.get("request_id"):
        raise NotStoredError


def _with_response(error: exceptions.HttpResponseError, *, specified: bool) -> StoreProblem:
    if error.status_code is not None and error.status_code < 300:
        return NOT_STORED
    named = getattr(error, "error_code", None)
    code = str(getattr(named, "value", named) or error.status_code)
    where = "" if specified else " in the environment"
    if code in ("AuthenticationFailed", "InvalidAuthenticationInfo"):
        return StoreProblem(
            reason="Azure rejected the account's key or token",
            remedy=f"Check AZURE_ACCOUNT_KEY{where}, and this machine's clock",
            repairable=True,
        )
    if code in ("AuthorizationFailure", "AuthorizationPermissionMismatch", "InsufficientAccountPermissions", "403"):
        return StoreProblem(
            reason="Azure rejected these credentials or denied them access",
            remedy=f"Check AZURE_ACCOUNT_KEY{where}, the role Storage Blob Data Contributor and the account's network"
            " rules",
            repairable=True,
        )
    if code in ("ContainerNotFound", "ContainerBeingDeleted", "ContainerDisabled", "404"):
        return StoreProblem(
            reason="the container does not exist",
            remedy="Create the container, or correct its name in the sink's URI",
            repairable=True,
        )
    if code in ("InvalidResourceName", "OutOfRangeInput"):
        return StoreProblem(
            reason="the name of the container or blob is not valid",
            remedy="Correct the container in the sink's URI, or shorten topic_prefix or the path of the URI",
            permanent=True,
        )
    message = str(error.reason or error.message).splitlines()[0].rstrip(".")
    return StoreProblem.of_answer(
        error.status_code or 0,
        reason=f"the store answered '{message}'",
        remedy=f"Look up {code} in the documentation of Azure Blob Storage",
    )


async def _close(fs: Any) -> None:
    await fs.service_client.close()
    # our credential, and the one that adlfs made from the environment
    for credential in (fs.service_client.credential, fs.credential):
        if hasattr(credential, "close"):
            await credential.close()


class _Blocks(Staged):
    """One blob that is uploaded in blocks."""

    def __init__(self, store: AzureStore, path: str) -> None:
        self._store = store
        self._path = path
        self._prefix = secrets.token_hex(8)  # keeps late blocks of another writer of this path out of this blob
        self._blocks: list[str] = []

    def begin(self, chunks: Sequence[Chunk], nbytes: int) -> None:
        """Upload all blocks."""
        for number, body in enumerate(split_parts(chunks, nbytes)):
            block = f"{self._prefix}-{number:08d}"
            self._store.stage_block(self._path, block, body)
            self._blocks.append(block)

    def publish(self) -> None:
        self._store.commit(self._path, self._blocks)

    def discard(self) -> None:
        """Do nothing: Azure removes the blocks."""
