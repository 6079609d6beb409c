"""What requests of the page say."""

from __future__ import annotations

from urllib.parse import parse_qsl, quote

from starlette.requests import Request

from cdc_core.store.values import ChangefeedRecord
from cdc_core.store.verbs import UnknownError
from cdc_core.web.endpoint import Refusal
from cdc_core.web.requests import deployment_of, name_of

MAX_ENTRIES = 1000
"""How many values a form may have; the fields that are empty come on top."""
_MAX_FIELDS = 2 * MAX_ENTRIES
_FORM = "application/x-www-form-urlencoded"


def form_values(request: Request) -> dict[str, str]:
    """Return the fields of the form that the request holds. Raises: Refusal when it holds no form."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    body: bytes = request.state.body
    if body and kind != _FORM:
        raise Refusal(415, f"a form must be sent as {_FORM}")
    try:
        fields = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_MAX_FIELDS, errors="strict")
    except ValueError as error:
        raise Refusal(400, "the form cannot be read: it is not UTF-8, or has too many fields") from error
    return {name: value.replace("\r\n", "\n") for name, value in fields}


def feed_path(name: str) -> str:
    """Return the address of the page of a changefeed."""
    return f"/ui/changefeeds/{quote(name, safe='')}"


def known(request: Request) -> ChangefeedRecord:
    """Return the changefeed in the path. Raises: Refusal when the store does not know it."""
    name = name_of(request)
    try:
        return deployment_of(request).changefeeds.known(name)
    except UnknownError as error:
        raise Refusal(404, f"the store knows no changefeed '{name}'") from error


def known_name(request: Request) -> str:
    """Return the name of a changefeed in the path. Raises: Refusal when the store does not know it."""
    return known(request).name
