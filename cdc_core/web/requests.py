"""What handlers read of a request, and who asks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from anyio import from_thread
from starlette.requests import Request

from cdc_core.store.verbs import Verb
from cdc_core.web.deployment import deployment_of
from cdc_core.web.endpoint import Refusal


def json_object(request: Request, *, empty: bool = False) -> dict[str, Any]:
    """Return the JSON object that the request holds; of one that may be *empty*, {} for nothing. Raises: Refusal."""
    body: bytes = request.state.body
    if not body and empty:
        return {}
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/json":
        raise Refusal(415, "the body must be JSON, and the header Content-Type must say application/json")
    try:
        value = json.loads(body.decode(), parse_constant=_no_number)
        json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise Refusal(400, "the JSON of the body is nested too deeply") from None
    except UnicodeEncodeError:
        raise Refusal(400, "the body has half a surrogate pair, which is no character") from None
    except ValueError as error:
        raise Refusal(400, f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise Refusal(400, "the body must be a JSON object")
    if any("\0" in text for text in _texts(value)):
        raise Refusal(400, "the body has a text with the character NUL")
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
    return f"{verb} asked for by {user_of(request)} over REST"


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
    raise ValueError(f"{text} is no number of JSON")
