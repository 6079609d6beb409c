"""Google Cloud Storage, through gcsfs."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import logging
import os
from collections.abc import Sequence
from typing import Any

import aiohttp
from gcsfs.core import GCSFileSystem
from gcsfs.retry import HttpError
from google.auth import exceptions
from google.oauth2 import credentials as user_credentials
from google.oauth2 import service_account

from cdc_core import OptionError
from cdc_sink_cloudstorage.authentication import is_specified
from cdc_sink_cloudstorage.options import CloudStorageOptions
from cdc_sink_cloudstorage.remote import FsspecStore
from cdc_sink_cloudstorage.store_problem import NotStoredError, StoreProblem

_SCOPES = ["https://www.googleapis.com/auth/devstorage.read_write"]
_PERMISSIONS = ("storage.objects.create", "storage.objects.delete", "storage.objects.list")
_DISCONNECT_S = 2.0
logging.getLogger("gcsfs").setLevel(logging.CRITICAL)  # it logs a traceback of each error that it also raises


def _credentials(text: str) -> Any:
    """Return the credentials in a key file, given as JSON or base64. Errors show nothing of it. Raises: OptionError."""
    try:
        info = json.loads(text if text.lstrip().startswith("{") else base64.b64decode(text, altchars=b"-_"))
        if not isinstance(info, dict):
            raise ValueError("not an object")
    except (ValueError, binascii.Error):
        raise OptionError(
            "CREDENTIALS is neither the JSON of a key file nor that JSON in base64. Set it to the output of `base64 -w0"
            " FILE`, percent-encoded inside a URI"
        ) from None
    kind = info.get("type")
    try:
        if kind == "service_account":
            return service_account.Credentials.from_service_account_info(info, scopes=_SCOPES)  # type: ignore[no-untyped-call]
        if kind == "authorized_user":
            return user_credentials.Credentials.from_authorized_user_info(info, scopes=_SCOPES)  # type: ignore[no-untyped-call]
    except (ValueError, KeyError, exceptions.GoogleAuthError):
        raise OptionError(f"CREDENTIALS is an incomplete key file of type {kind}. Download the key again") from None
    raise OptionError(
        "CREDENTIALS must be the key file of a service account. For other kinds set AUTH=implicit, and"
        " GOOGLE_APPLICATION_CREDENTIALS in the environment"
    )


class GcsStore(FsspecStore):
    """Writes a file with one request. Above 50 MB it is a resumable upload, whose last request shows the object."""

    @staticmethod
    def new_client(options: CloudStorageOptions) -> Any:
        """Return a new file system. May look up the credentials of the environment. Raises: OptionError."""
        endpoint = options.gcs_endpoint or os.environ.get("STORAGE_EMULATOR_HOST")
        if is_specified(options, "Google Cloud Storage"):
            token: Any = _credentials(options.credentials or "")
        else:
            token = "anon" if os.environ.get("STORAGE_EMULATOR_HOST") else "google_default"
        # Not the class that gcsfs exports: before each put, that class asks by gRPC for the kind of the bucket, and
        # waits a minute where nothing answers gRPC, such as at an emulator or behind a proxy.
        return GCSFileSystem(
            token=token,
            access="read_write",
            endpoint_url=endpoint if endpoint is None or "://" in endpoint else f"http://{endpoint}",
            requests_timeout=aiohttp.ClientTimeout(sock_connect=10, sock_read=60),
            use_listings_cache=False,
            consistency="size",
            skip_instance_cache=True,
        )

    def _disconnect(self, fs: Any) -> None:
        session = getattr(fs, "_session", None)
        if session is not None:
            asyncio.run_coroutine_threadsafe(session.close(), fs.loop).result(_DISCONNECT_S)

    def _put(self, path: str, body: bytes) -> None:
        try:
            super()._put(path, body)
        except (AssertionError, KeyError, TypeError, json.JSONDecodeError):  # an answer without the size of the object
            raise NotStoredError from None

    def _check(self) -> None:
        bucket, _, prefix = self._place[1].partition("/")
        self._ask("b/{}/o", bucket, prefix=f"{prefix}/" if prefix else "", maxResults=1)
        try:
            answer = self._ask("b/{}/iam/testPermissions", bucket, permissions=_PERMISSIONS)
        except FileNotFoundError:  # emulators do not have this request
            return
        missing = sorted(set(_PERMISSIONS) - set(answer.get("permissions", ())))
        if missing:
            raise _denied(missing).refusal(self._shown)

    def _ask(self, path: str, *names: str, **parameters: Any) -> dict[str, Any]:
        """Return the JSON response to one request, without retries: gcsfs itself would retry for half a minute."""
        fs, _ = self._place
        request = getattr(type(fs)._request, "__wrapped__", type(fs)._request)
        try:
            answer = json.loads(self._run(request(fs, "GET", path, *names, **parameters))[3])
        except json.JSONDecodeError:
            raise NotStoredError from None
        if not isinstance(answer, dict):
            raise NotStoredError
        return answer

    def _problem(self, error: BaseException) -> StoreProblem | None:
        specified = is_specified(self._options, "Google Cloud Storage")
        check = "Check CREDENTIALS" if specified else "Check the credentials in the environment"
        refused = next((e for e in (error, error.__cause__) if isinstance(e, exceptions.RefreshError)), None)
        if refused is not None:
            said = str(refused.args[0] if refused.args else refused).splitlines()[0].rstrip(".")
            return StoreProblem(
                reason=f"Google rejected the credentials ({said})", remedy=check, repairable=not refused.retryable
            )
        if isinstance(error, exceptions.DefaultCredentialsError):
            return StoreProblem(
                reason="no usable credentials for Google Cloud were found",
                remedy="Set CREDENTIALS with AUTH=specified, or GOOGLE_APPLICATION_CREDENTIALS in the environment",
                repairable=True,
            )
        if isinstance(error, FileNotFoundError):
            return StoreProblem(
                reason="the bucket does not exist",
                remedy="Create the bucket, or correct its name in the sink's URI",
                repairable=True,
            )
        if isinstance(error, OSError) and str(error).startswith("Forbidden"):
            return _denied(_PERMISSIONS)
        if isinstance(error, HttpError):
            if str(error.code) == "401":
                return StoreProblem(reason="Google rejected the credentials", remedy=check, repairable=True)
            message = str(error.message).splitlines()[0].rstrip(".")
            return StoreProblem.of_answer(
                int(error.code or 0),
                reason=f"the store answered '{message}'",
                remedy="Look up this answer in the documentation of Google Cloud Storage",
            )
        if isinstance(error, exceptions.TransportError | aiohttp.ClientError | TimeoutError | ConnectionError):
            endpoint = f"'{self._options.gcs_endpoint}'" if self._options.gcs_endpoint else "of Google Cloud Storage"
            return StoreProblem(
                reason=f"the endpoint {endpoint} cannot be reached",
                remedy="Check the network" + (" and GCS_ENDPOINT" if self._options.gcs_endpoint else ""),
                repairable=isinstance(error, aiohttp.ClientSSLError),
            )
        return None


def _denied(permissions: Sequence[str]) -> StoreProblem:
    return StoreProblem(
        reason="these credentials lack permissions", remedy=f"Grant them {', '.join(permissions)}", repairable=True
    )
