"""Creating and altering a changefeed: a form that is checked while it is filled in.

The form to alter one has its definition as it is written, of which only what was changed is asked for.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from cdc_core.changefeeds.service import Alteration
from cdc_core.config.flat import unflattened
from cdc_core.errors import CdcError, ConfigError
from cdc_core.web.endpoint import Endpoints, Role
from cdc_core.web.page.changefeed import shown_value
from cdc_core.web.page.forms import Finding, config_in, form_of, text_of, validated, values_in, values_of
from cdc_core.web.page.rendering import error_page, feed_path, form_values, page, part, redirect
from cdc_core.web.requests import deployment_of, name_of, user_of
from cdc_core.web.routes import status_of
from cdc_core.web.validation import Validated, key_of

ENDPOINTS = Endpoints(refused=error_page)


@ENDPOINTS.add("GET /ui/new", Role.ADMIN)
def show_new(request: Request) -> Response:
    """Show the empty form, or one with the values that the address has."""
    return _form(request, dict(request.query_params), complete=False)


@ENDPOINTS.add("POST /ui/new/validate", Role.ADMIN)
def validate_new(request: Request) -> Response:
    """Check the form without connecting to anything: as it is filled in, or when the button is used."""
    values = form_values(request)
    if "hx-request" not in request.headers:
        return _form(request, values)
    deployment = deployment_of(request)
    found = validated(deployment, values)
    form = form_of(deployment.plugins, values, found, complete=False)
    text = part("text.html", text=text_of(values, found.keys), text_problem="", oob=True)
    return HTMLResponse(part("form.html", form=form, findings=()) + text)


@ENDPOINTS.add("POST /ui/new/text", Role.ADMIN)
def read_text(request: Request) -> Response:
    """Show the form that the text of a file describes; what cannot be read is shown again, with the reason."""
    text, deployment = form_values(request).get("text", ""), deployment_of(request)
    values, problem = {}, ""
    try:
        values = values_in(text) if text.strip() else {}
    except ConfigError as error:
        problem = str(error)
    if "hx-request" not in request.headers:
        if problem:
            return _form(request, {}, complete=False, status=400, text=text, text_problem=problem)
        return _form(request, values)
    said = part("text_problem.html", text_problem=problem, oob=True)
    if problem:  # the form stays as it is
        return HTMLResponse(said, headers={"HX-Reswap": "none"})
    form = form_of(deployment.plugins, values, validated(deployment, values), complete=False)
    return HTMLResponse(part("form.html", form=form, findings=()) + said)


@ENDPOINTS.add("POST /ui/new/check", Role.ADMIN)
def check_new(request: Request) -> Response:
    """Check the form as `cdc check` does: the source and the sink are asked too."""
    values, deployment = form_values(request), deployment_of(request)
    found = validated(deployment, values)
    if found.feed is None:
        return _form(request, values, found=found)
    try:
        deployment.changefeeds.check_new(found.feed)
    except CdcError as error:
        finding = Finding(tone="bad", text=deployment.masked(str(error)))
        return _form(request, values, found=found, status=400, findings=[finding])
    good = Finding(tone="good", text="The source can be read, and its rows can be delivered. Nothing was created.")
    return _form(request, values, found=found, findings=[good])


@ENDPOINTS.add("POST /ui/new", Role.ADMIN)
def create_new(request: Request) -> Response:
    """Create the job of the form, once source and sink have been asked; otherwise show it with what is wrong."""
    values, deployment = form_values(request), deployment_of(request)
    found = validated(deployment, values)
    if found.feed is None:
        return _form(request, values, found=found, status=400)
    try:
        deployment.changefeeds.create(found.feed, owner=user_of(request))
    except CdcError as error:
        finding = Finding(tone="bad", text=deployment.masked(str(error)))
        return _form(request, values, found=found, status=400, findings=[finding])
    return redirect(f"{feed_path(found.feed.name)}?done=create")


def _form(
    request: Request,
    values: Mapping[str, str],
    *,
    found: Validated | None = None,
    complete: bool = True,
    status: int = 200,
    findings: Sequence[Finding] = (),
    text: str | None = None,
    text_problem: str = "",
) -> Response:
    deployment = deployment_of(request)
    if found is None:
        found = validated(deployment, values)
    form = form_of(deployment.plugins, values, found, complete=complete)
    text = text_of(values, found.keys) if text is None else text
    return page(
        request,
        "new.html",
        status=status,
        form=form,
        findings=findings,
        text=text,
        text_problem=text_problem,
        oob=False,
    )


_FIXED = ("name", "source", "query", "functions", "table", "options")
_SCANS = {"yes": True, "no": False}


@ENDPOINTS.add("GET /ui/changefeeds/{name}/alter", Role.ADMIN)
def show_alter(request: Request) -> Response:
    """Show the form with the last definition of the job. Raises: RefusedError when its state forbids another one."""
    name, definition = _last(request)
    written = values_of(name, definition)
    return _alter_form(request, definition, _shown(written), validated(deployment_of(request), written))


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
        found.add("name", f"job '{name}' was changed in the meantime; review it, then repeat the request")
        return _alter_form(request, definition, values, found, status=409)
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
    return _alter_form(request, definition, values, found, status=status)


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


def _alter_form(
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
