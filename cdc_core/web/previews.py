"""Previews for whoever asks over HTTP."""

from __future__ import annotations

from dataclasses import replace

from starlette.requests import Request

from cdc_core.errors import CdcError, ConfigError
from cdc_core.store.verbs import BusyError
from cdc_core.watching.preview import Previewed
from cdc_core.web.endpoint import Refusal
from cdc_core.web.requests import Deployment, deployment_of, job_of, watch_client

MAX_ROWS = 100
_WAIT_S = 5


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
