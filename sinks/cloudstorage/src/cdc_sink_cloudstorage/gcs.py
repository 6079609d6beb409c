"""Google Cloud Storage, through gcsfs."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import logging
import os
from typing import Any

import aiohttp
from gcsfs.core import GCSFileSystem
from gcsfs.retry import HttpError
from google.auth import exceptions
from google.oauth2 import credentials as user_credentials
from google.oauth2 import service_account

from cdc_core.errors import OptionError
from cdc_sink_cloudstorage.authentication import is_specified
from cdc_sink_cloudstorage.options import CloudStorageOptions
from cdc_sink_cloudstorage.remote import FsspecStore
from cdc_sink_cloudstorage.temporaries import Temporaries
from cdc_sink_cloudstorage.trouble import Trouble

__all__ = ["GcsStore", "open_gcs"]

_SCOPES = ["https://www.googleapis.com/auth/devstorage.read_write"]
_RIGHTS = ("storage.objects.create", "storage.objects.delete", "storage.objects.list")
_DISCONNECT_S = 2.0
logging.getLogger("gcsfs").setLevel(logging.CRITICAL)  # it tells with a traceback what it raises as well


def open_gcs(options: CloudStorageOptions) -> Any:
    """Return a file system of its own. May ask for what the environment says of credentials. Raises: OptionError."""
    endpoint = options.gcs_endpoint or os.environ.get("STORAGE_EMULATOR_HOST")
    if is_specified(options, "Google Cloud Storage"):
        token: Any = _credentials(options.credentials or "")
    else:
        token = "anon" if os.environ.get("STORAGE_EMULATOR_HOST") else "google_default"
    # Not the one that gcsfs exports: before each put that one asks by gRPC what kind the bucket is, for a minute where
    # nothing answers gRPC, such as at an emulator or behind a proxy.
    return GCSFileSystem(
        token=token,
        access="read_write",
        endpoint_url=endpoint if endpoint is None or "://" in endpoint else f"http://{endpoint}",
        requests_timeout=aiohttp.ClientTimeout(sock_connect=10, sock_read=60),
        use_listings_cache=False,
        skip_instance_cache=True,
    )


def _credentials(text: str) -> Any:
    """Return what google-auth makes of a key file, as JSON or base64. No error shows any of it."""
    try:
        info = json.loads(text if text.lstrip().startswith("{") else base64.b64decode(text, altchars=b"-_"))
        if not isinstance(info, dict):
            raise ValueError("no object")
    except (ValueError, binascii.Error):
        raise OptionError(
            "CREDENTIALS is neither the JSON text of a key file nor base64 of it: give it as `base64 -w0 FILE` prints"
            " it, percent-encoded inside a URI"
        ) from None
    kind = info.get("type")
    try:
        if kind == "service_account":
            return service_account.Credentials.from_service_account_info(info, scopes=_SCOPES)  # type: ignore[no-untyped-call]
        if kind == "authorized_user":
            return user_credentials.Credentials.from_authorized_user_info(info, scopes=_SCOPES)  # type: ignore[no-untyped-call]
    except (ValueError, KeyError, exceptions.GoogleAuthError):
        raise OptionError(f"CREDENTIALS is no complete key file of the type {kind}: download the key anew") from None
    raise OptionError(
        "CREDENTIALS must be the key file of a service account: other kinds go by the environment, with AUTH=implicit"
        " and GOOGLE_APPLICATION_CREDENTIALS"
    )


class GcsStore(FsspecStore):
    """One request a file, or a resumable upload above 50 MB, whose last request shows the object."""

    def __init__(self, uri: str, options: CloudStorageOptions, *, shown: str, temporaries: Temporaries) -> None:
        super().__init__(uri, shown=shown, temporaries=temporaries, open_client=lambda: open_gcs(options))
        self._options = options

    def _disconnect(self, fs: Any) -> None:
        session = getattr(fs, "_session", None)
        if session is not None:
            asyncio.run_coroutine_threadsafe(session.close(), fs.loop).result(_DISCONNECT_S)

    def _check(self) -> None:
        bucket, _, prefix = self._place[1].partition("/")
        self._ask("b/{}/o", bucket, prefix=f"{prefix}/" if prefix else "", maxResults=1)
        try:
            answer = self._ask("b/{}/iam/testPermissions", bucket, permissions=_RIGHTS)
        except FileNotFoundError:  # emulators do not know the question
            return
        missing = sorted(set(_RIGHTS) - set(answer.get("permissions", ())))
        if missing:
            raise _denied(missing).as_refusal(self._shown)

    def _ask(self, path: str, *names: str, **parameters: Any) -> dict[str, Any]:
        """Return the answer to a request of JSON, asked once: gcsfs itself would try for half a minute."""
        fs, _ = self._place
        request = getattr(type(fs)._request, "__wrapped__", type(fs)._request)
        answer: dict[str, Any] = json.loads(self._run(request(fs, "GET", path, *names, **parameters))[3])
        return answer

    def _trouble(self, error: BaseException) -> Trouble | None:
        specified = is_specified(self._options, "Google Cloud Storage")
        check = "check CREDENTIALS" if specified else "check the credentials in the environment"
        refused = next((e for e in (error, error.__cause__) if isinstance(e, exceptions.RefreshError)), None)
        if refused is not None:
            said = str(refused.args[0] if refused.args else refused).splitlines()[0].rstrip(".")
            return Trouble(reason=f"Google refuses the credentials ({said})", remedy=check)
        if isinstance(error, exceptions.DefaultCredentialsError):
            return Trouble(
                reason="there are no credentials for Google Cloud",
                remedy="set CREDENTIALS with AUTH=specified, or GOOGLE_APPLICATION_CREDENTIALS in the environment",
            )
        if isinstance(error, FileNotFoundError):
            return Trouble(reason="the bucket does not exist", remedy="create it or correct its name in the sink's URI")
        if isinstance(error, OSError) and str(error).startswith("Forbidden"):
            return _denied(_RIGHTS)
        if isinstance(error, HttpError):
            if str(error.code) == "401":
                return Trouble(reason="Google refuses the credentials", remedy=check)
            message = str(error.message).splitlines()[0].rstrip(".")
            return Trouble(reason=f"the store answered '{message}'", remedy="see what Google Cloud Storage says of it")
        if isinstance(error, exceptions.TransportError | aiohttp.ClientError | TimeoutError | ConnectionError):
            endpoint = f"'{self._options.gcs_endpoint}'" if self._options.gcs_endpoint else "of Google Cloud Storage"
            return Trouble(
                reason=f"the endpoint {endpoint} cannot be reached",
                remedy="check the network" + (" and GCS_ENDPOINT" if self._options.gcs_endpoint else ""),
            )
        return None


def _denied(rights: Any) -> Trouble:
    return Trouble(reason="these credentials may not use it", remedy=f"grant them {', '.join(rights)}")
