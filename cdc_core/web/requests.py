"""What handlers work with: the store of the jobs, the installed plugins, what a request says, and previews."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from anyio import from_thread
from starlette.requests import Request

from cdc_core.changefeeds.service import Changefeeds, ProgressStore
from cdc_core.errors import CdcError, ConfigError
from cdc_core.masking import mask, secret_forms, uri_secrets
from cdc_core.options import did_you_mean
from cdc_core.plugins.host import PluginHost
from cdc_core.store.opening import sqlite_file
from cdc_core.store.verbs import BusyError, Verb
from cdc_core.watching.preview import Previewed
from cdc_core.web.endpoint import Refusal

MAX_ROWS = 100
"""Of one preview."""
_WAIT_S = 5


class Deployment:
    """The changefeeds of one store, for all requests of a server. Safe with several threads.

    *environ* is where references of new definitions are looked up, and *allowed_paths* are the directories below which
    they may name files. *keep_secret* is called with secrets before they are used, so that logs mask them. *node* is
    the name of the node that serves, if one does: what is started here is offered to that node first.
    """

    def __init__(
        self,
        store: ProgressStore,
        plugins: PluginHost,
        *,
        environ: Mapping[str, str],
        keep_secret: Callable[[frozenset[str]], object],
        allowed_paths: Iterable[str] = (),
        node: str | None = None,
    ) -> None:
        self.plugins, self.environ = plugins, environ
        self.changefeeds = Changefeeds(
            store, plugins=plugins, environ=environ, keep_secrets=self.add_secrets, node=node
        )
        self._allowed_paths = [Path(os.path.realpath(path)) for path in allowed_paths]
        self._keep_secret = keep_secret
        self._secrets: frozenset[str] = frozenset()
        self._adding = threading.Lock()
        self.add_secrets(uri_secrets(store.url))

    def add_secrets(self, secrets: Iterable[str]) -> None:
        """Mask *secrets* from now on."""
        forms = secret_forms(secrets)
        with self._adding:
            if not forms <= self._secrets:
                self._secrets |= forms
                self._keep_secret(forms)

    def allows_file(self, path: str) -> bool:
        """Return whether a new definition may refer to the file at *path*, wherever links lead."""
        whole = os.path.expanduser(path)
        if not os.path.isabs(whole) or "\0" in whole:
            return False
        return any(Path(os.path.realpath(whole)).is_relative_to(allowed) for allowed in self._allowed_paths)

    @property
    def state_dir(self) -> Path:
        """A directory for locks of runs on this host: beside a store that is a file."""
        file = sqlite_file(self.changefeeds.store.url)
        return Path(".cdc").absolute() if file is None else file.parent

    def masked(self, text: str) -> str:
        """Return *text* without the secrets that are known."""
        return mask(text, self._secrets)


def deployment_of(request: Request) -> Deployment:
    """Return what the handler of *request* works with."""
    deployment: Deployment = request.app.state.deployment
    return deployment


def json_object(
    request: Request, known: Collection[str] | None = None, *, empty: bool = False, exact: bool = False
) -> dict[str, Any]:
    """Return the JSON object that the request holds; of one that may be *empty*, {} for nothing.

    It has no other fields than the *known* ones, if these are given. Of an *exact* one, numbers with a point or an
    exponent are texts, as they were written. Raises: Refusal.
    """
    body: bytes = request.state.body
    if not body and empty:
        return {}
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/json":
        raise Refusal(415, "the body must be JSON, and the header Content-Type must say application/json")
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding != "identity":
        raise Refusal(415, f"the body must not be encoded; send it without 'Content-Encoding: {coding}'")
    try:
        value = json.loads(body.decode("utf-8-sig"), parse_constant=_no_number, parse_float=str if exact else None)
        json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise Refusal(400, "the JSON of the body is nested too deeply") from None
    except UnicodeEncodeError:
        raise Refusal(400, "the body has an unpaired surrogate, which is not a character") from None
    except ValueError as error:
        raise Refusal(400, f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise Refusal(400, "the body must be a JSON object")
    unknown = [] if known is None else [field for field in value if field not in known]
    if unknown:
        raise Refusal(400, f"unknown field '{unknown[0]}'{did_you_mean(unknown[0], known or ())}")
    if any("\0" in text for text in _texts(value)):
        raise Refusal(400, "the body has a string with a NUL character")
    return value


def name_of(request: Request, parameter: str = "name") -> str:
    """Return a parameter of the path."""
    return str(request.path_params[parameter])


def job_of(request: Request, verb: Verb | None = None) -> str:
    """Return the parameter `name` of the path, which is the name of a job: see `Finder.require_job`."""
    return deployment_of(request).changefeeds.require_job(name_of(request), verb=verb).name


def flag(request: Request, name: str, *, default: bool = False) -> bool:
    """Return a parameter that is true or false, as Java reads it: anything but true is false."""
    text = request.query_params.get(name)
    return default if text is None else text.lower() == "true"


def number(request: Request, name: str, *, default: int, least: int, most: int) -> int:
    """Return a parameter that is a whole number. Raises: Refusal."""
    text = request.query_params.get(name)
    if text is None:
        return default
    value = int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else -1
    if not least <= value <= most:
        raise Refusal(400, f"'{name}' must be a whole number from {least} to {most}")
    return value


def user_of(request: Request) -> str:
    """Return whoever asks, as the owner of what is created."""
    return str(request.state.user or "rest")[:64]


def asked_by(request: Request, verb: str) -> str:
    """Return why something happens to a job, for its history."""
    return f"{verb} requested by {user_of(request)} over REST"


def watch_client(request: Request) -> Callable[[], bool]:
    """Return what says whether the client has hung up. It is called in the thread of the request's handler."""
    return lambda: from_thread.run(request.is_disconnected)


def _texts(value: Any) -> Any:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield key
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is not a JSON number")


def messages(request: Request, rows: int) -> list[Previewed]:
    """Return the messages of so many *rows* of the job in the path, without secrets. Raises: Refusal; ConfigError."""
    deployment, name = deployment_of(request), job_of(request)
    try:
        found = deployment.changefeeds.preview(name, rows, is_gone=watch_client(request))
    except BusyError as error:
        raise Refusal(429, str(error), wait_s=_WAIT_S) from error
    except ConfigError:
        raise
    except CdcError as error:
        raise Refusal(409, deployment.masked(f"job '{name}' cannot be previewed: {error}")) from error
    return [_masked(deployment, message) for message in found]


def _masked(deployment: Deployment, message: Previewed) -> Previewed:
    """Return *message* without secrets, which only the options of the changefeed can have brought into it."""
    headers = message.headers
    if headers is not None:
        headers = {name: None if value is None else deployment.masked(value) for name, value in headers.items()}
    error = None if message.error is None else deployment.masked(message.error)
    return replace(message, topic=deployment.masked(message.topic), headers=headers, error=error)
