"""Creating a changefeed: a form that is checked while it is filled in, and becomes a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from cdc_core.errors import CdcError, ConfigError
from cdc_core.web.endpoint import Endpoints, Role
from cdc_core.web.page.forms import Finding, form_of, text_of, validated, values_in
from cdc_core.web.page.rendering import error_page, feed_path, form_values, page, part, redirect
from cdc_core.web.requests import deployment_of, user_of
from cdc_core.web.validation import Validated

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
