"""Altering a changefeed: a form with its definition as it is written, of which only what was changed is asked for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from cdc_core.changefeeds.service import Alteration
from cdc_core.config.flat import unflattened
from cdc_core.errors import CdcError
from cdc_core.web.endpoint import Endpoints, Role
from cdc_core.web.page.changefeed import shown_value
from cdc_core.web.page.forms import config_in, form_of, validated, values_of
from cdc_core.web.page.rendering import error_page, feed_path, form_values, page, redirect
from cdc_core.web.requests import deployment_of, name_of, user_of
from cdc_core.web.routes import status_of
from cdc_core.web.validation import Validated, key_of

ENDPOINTS = Endpoints(refused=error_page)

_FIXED = ("name", "source", "query", "functions", "table", "options")
_SCANS = {"yes": True, "no": False}


@ENDPOINTS.add("GET /ui/changefeeds/{name}/alter", Role.ADMIN)
def show_alter(request: Request) -> Response:
    """Show the form with the last definition of the job. Raises: RefusedError when its state forbids another one."""
    name, definition = _last(request)
    written = values_of(name, definition)
    return _form(request, definition, _shown(written), validated(deployment_of(request), written))


@ENDPOINTS.add("POST /ui/changefeeds/{name}/alter", Role.ADMIN)
def alter(request: Request) -> Response:
    """Alter what differs from the last definition; if that cannot be, show the form again with what is wrong.

    A field that is missing stays as it is, and an empty one is unset.
    """
    name, definition = _last(request)
    deployment, written, given = deployment_of(request), values_of(name, definition), form_values(request)
    seen, scan = given.pop(":seen", ""), given.pop(":scan", "")
    shown = _shown(written)
    values = {**shown, **{key: text.strip() for key, text in given.items()}}
    changed = {key: text for key, text in values.items() if text != shown.get(key, "")}
    found, status = validated(deployment, {**written, **changed}), 400
    if seen not in ("", _digest(definition)):
        found.add("name", f"job '{name}' has been changed meanwhile; look at it, and repeat the request")
        return _form(request, definition, values, found, status=409)
    if not found.problems:
        try:
            change = _alteration(shown, changed)
            deployment.changefeeds.alter(
                name, change, by=user_of(request), scans=_SCANS.get(scan) if change.add else None
            )
            return redirect(f"{feed_path(name)}?done=alter")
        except CdcError as error:
            text, status = deployment.masked(str(error)), status_of(error)
            found.add(key_of(text, found) or "name", text)
    return _form(request, definition, values, found, status=status)


def _alteration(shown: Mapping[str, str], changed: Mapping[str, str]) -> Alteration:
    """Return the alteration of what is *shown* to what was *changed*. Raises: ConfigError."""
    before, now = (_tables(values.get("tables", "")) for values in (shown, {**shown, **changed}))
    texts = {key: text for key, text in changed.items() if key != "tables"}
    return Alteration.parse(
        add=[table for table in now if table not in before],
        drop=[table for table in before if table not in now],
        assignments=[f"{key}={text}" for key, text in texts.items() if text],
        unset=[key for key, text in texts.items() if not text],
    )


def _tables(text: str) -> Sequence[str]:
    tables: Sequence[str] = unflattened({"tables": config_in({"tables": text}).get("tables") or ""}).written["tables"]
    return tables


def _last(request: Request) -> tuple[str, Mapping[str, Any]]:
    """Return the name of the job in the path, and its last definition. Raises: UnknownError; RefusedError."""
    name, changefeeds = name_of(request), deployment_of(request).changefeeds
    return name, changefeeds.last_definition(changefeeds.require_job(name, verb="alter"))


def _shown(written: Mapping[str, str]) -> dict[str, str]:
    """Return the values that can be altered, without secrets."""
    return {key: shown_value(key, text) for key, text in written.items() if key.partition(".")[0] not in _FIXED}


def _digest(definition: Mapping[str, Any]) -> str:
    """Return what tells the definition that a form was made from, in its field `:seen`."""
    return hashlib.sha256(json.dumps(definition, sort_keys=True).encode()).hexdigest()[:16]


def _form(
    request: Request, definition: Mapping[str, Any], values: Mapping[str, str], found: Validated, *, status: int = 200
) -> Response:
    main = ("sink", "format") if found.config.get("query") else ("tables", "sink", "format")
    return page(
        request,
        "alter.html",
        status=status,
        name=name_of(request),
        seen=_digest(definition),
        form=form_of(deployment_of(request).plugins, values, found, main=main),
        findings=(),
    )
