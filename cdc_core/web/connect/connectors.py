"""Connectors: list, create, read, configure, delete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cdc_core.errors import CdcError, RetryableError
from cdc_core.store.verbs import RULES, RefusedError, UnknownError
from cdc_core.web.config_keys import is_our_class
from cdc_core.web.connect.connector import (
    Connector,
    all_connectors,
    connector_of,
    find_connector,
    is_deleted,
    unknown_class,
    with_kept_secrets,
)
from cdc_core.web.connect.shapes import CONFIG_VALUES, WHOLE_CONFIG
from cdc_core.web.endpoint import (
    TEXT,
    Answer,
    Body,
    Endpoints,
    Parameter,
    Refusal,
    Role,
    array,
    choice,
    flag_parameter,
    ref,
)
from cdc_core.web.requests import asked_by, deployment_of, flag, json_object, name_of, user_of
from cdc_core.web.validation import config_of_json, validate

ENDPOINTS = Endpoints()
_CHECK = flag_parameter(
    "check",
    "With `false`, the definition is not checked against the source and the sink. Kafka Connect has no such parameter.",
)
_EXPAND = Parameter(
    "expand",
    "`status`, `info`, or both: the response is then an object.",
    schema=array(choice(["status", "info"])),
)
_LOCATION = {"Location": "Where the connector is."}

_INITIAL: Mapping[str, Literal["pause", "stop"] | None] = {"RUNNING": None, "PAUSED": "pause", "STOPPED": "stop"}
_KEYS = ("name", "config", "initial_state")


@ENDPOINTS.add(
    "GET /connectors",
    Role.VIEW,
    Answer(
        {"anyOf": [array(TEXT), ref("Expanded")]},
        "Names of the connectors; with `expand`, an object with a member for each connector.",
    ),
    parameters=[_EXPAND],
)
def listed(request: Request) -> Response:
    """All connectors.

    Their names; or, by name, what the parameters `expand` ask for.
    """
    found = all_connectors(deployment_of(request))
    wanted = request.query_params.getlist("expand")
    if not wanted:
        return JSONResponse([each.name for each in found])
    return JSONResponse({each.name: _expanded(each, wanted) for each in found})


@ENDPOINTS.add(
    "POST /connectors",
    Role.ADMIN,
    Answer(ref("Connector"), "The connector.", status=201, headers=_LOCATION),
    parameters=[_CHECK],
    body=Body(ref("NewConnector"), "`initial_state` is RUNNING, PAUSED or STOPPED."),
    errors=[400, 409, 415],
)
def create(request: Request) -> Response:
    """Create a connector."""
    value = json_object(request, _KEYS, exact=True)
    if not isinstance(value.get("config"), dict):
        raise Refusal(400, "the field 'config' must be an object with the configuration")
    name = value.get("name")
    if isinstance(name, dict | list):
        raise Refusal(400, "the field 'name' must be a string")
    name = "" if name is None else str(name).strip()
    initial = value.get("initial_state")
    if initial is not None and str(initial).upper() not in _INITIAL:
        raise Refusal(400, f"the field 'initial_state' must be one of {', '.join(_INITIAL)}")
    config = _named(config_of_json(value["config"]), name)
    kind = _INITIAL[str(initial or "RUNNING").upper()]
    connector = _create(request, name, config, paused_for=kind)
    return _created(request, connector)


@ENDPOINTS.add("GET /connectors/{name}", Role.VIEW, Answer(ref("Connector"), "The connector."), errors=[404])
def get(request: Request) -> Response:
    """A connector with its configuration."""
    return JSONResponse(connector_of(request).info())


@ENDPOINTS.add("GET /connectors/{name}/config", Role.VIEW, Answer(ref("Config"), "The configuration."), errors=[404])
def get_config(request: Request) -> Response:
    """The configuration of a connector."""
    return JSONResponse(connector_of(request).config)


@ENDPOINTS.add(
    "PUT /connectors/{name}/config",
    Role.ADMIN,
    Answer(ref("Connector"), "The connector, which has this configuration."),
    Answer(ref("Connector"), "The connector, which is new.", status=201, headers=_LOCATION),
    parameters=[_CHECK],
    body=WHOLE_CONFIG,
    errors=[400, 409, 415],
)
def put_config(request: Request) -> Response:
    """Create or configure a connector.

    A pause stays what it is; what has failed runs again.
    """
    deployment, name = deployment_of(request), name_of(request)
    config = _named(config_of_json(json_object(request, exact=True)), name)
    job = deployment.changefeeds.find_job(name)
    if job is None or is_deleted(job):
        return _created(request, _create(request, name, config, paused_for=None))
    return JSONResponse(_configure(request, find_connector(deployment, name), config).info())


@ENDPOINTS.add(
    "PATCH /connectors/{name}/config",
    Role.ADMIN,
    Answer(ref("Connector"), "The connector."),
    parameters=[_CHECK],
    body=Body(CONFIG_VALUES, "The keys to change; null removes a key."),
    errors=[400, 404, 409, 415],
)
def patch_config(request: Request) -> Response:
    """Change some keys of a connector's configuration."""
    changes, connector = config_of_json(json_object(request, exact=True)), connector_of(request)
    config = {key: value for key, value in {**connector.config, **changes}.items() if value is not None}
    return JSONResponse(_configure(request, connector, _named(config, connector.name)).info())


@ENDPOINTS.add(
    "DELETE /connectors/{name}",
    Role.ADMIN,
    Answer(None, "Deleted. A node cleans up the source in the background.", status=204),
    errors=[404, 409],
)
def delete(request: Request) -> Response:
    """Delete a connector and what it created at its source.

    A node drops that, and the job is forgotten.
    """
    deployment, name = deployment_of(request), name_of(request)
    find_connector(deployment, name)
    try:
        deployment.changefeeds.delete(name, asked_by(request, "deletion"))
    except UnknownError:
        find_connector(deployment, name)  # another request has deleted it meanwhile
        raise
    return Response(status_code=204)


def _expanded(connector: Connector, wanted: list[str]) -> dict[str, Any]:
    parts: dict[str, Any] = {}
    if "status" in wanted:
        parts["status"] = connector.status()
    if "info" in wanted:
        parts["info"] = connector.info()
    return parts


def _named(config: Mapping[str, str | None], name: str) -> dict[str, str | None]:
    given = config.get("name", name)
    if given != name:
        raise Refusal(400, f"Connector name configuration ({given}) doesn't match connector name in the URL ({name})")
    given_class = config.get("connector.class")
    if given_class is None:
        raise Refusal(400, "Connector config contains no connector type")
    if not is_our_class(given_class):
        raise unknown_class(given_class)
    return {**config, "name": name}


def _created(request: Request, connector: Connector) -> Response:
    place = f"{request.base_url}connectors/{connector.name}"
    return JSONResponse({**connector.info(), "tasks": []}, status_code=201, headers={"Location": place})


def _create(
    request: Request, name: str, config: Mapping[str, str | None], *, paused_for: Literal["pause", "stop"] | None
) -> Connector:
    deployment = deployment_of(request)
    job = deployment.changefeeds.find_job(name)
    if job is not None and job.state != "canceled":
        raise _taken(name, deleted=is_deleted(job))
    feed = validate(deployment, config).require_valid()
    connect = flag(request, "check", default=True)
    try:
        deployment.changefeeds.create(feed, owner=user_of(request), connect=connect, paused_for=paused_for)
    except RefusedError as error:
        job = deployment.changefeeds.find_job(name)  # another request may have created it meanwhile
        if job is not None and job.state != "canceled":
            raise _taken(name, deleted=is_deleted(job)) from error
        raise _invalid(error) from error
    except CdcError as error:
        raise _invalid(error) from error
    return find_connector(deployment, name)


def _taken(name: str, *, deleted: bool) -> Refusal:
    what = "already exists"
    if deleted:
        what = "is being deleted: a node has yet to drop what it created at its source; wait, or choose another name"
    return Refusal(409, f"Connector {name} {what}")


def _configure(request: Request, connector: Connector, config: Mapping[str, str | None]) -> Connector:
    """Give *connector*, whose configuration *config* was made from, that one, unless it has another one by now."""
    deployment = deployment_of(request)
    found = validate(deployment, with_kept_secrets(config, connector.config))
    try:
        deployment.changefeeds.redefine(
            connector.name,
            found.require_valid(),
            before=connector.definition,
            why=asked_by(request, "a new configuration"),
            connect=flag(request, "check", default=True),
        )
    except RefusedError as error:
        if error.state in RULES["alter"].does:
            raise Refusal(409, str(error)) from error
        raise Refusal(
            409,
            f"Connector {connector.name} has ended ({error.state}) and cannot be configured; delete it and create it"
            " again",
        ) from error
    except CdcError as error:
        raise _invalid(error) from error
    return find_connector(deployment, connector.name)


def _invalid(error: CdcError) -> Refusal:
    if isinstance(error, RetryableError):
        return Refusal(503, str(error))
    return Refusal(400, f"Connector configuration is invalid and contains the following 1 error(s):\n{error}")
