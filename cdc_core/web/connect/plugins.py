"""Plugins: which there are, which options they have, and validation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cdc_core.config.component import Component
from cdc_core.config.definition import masked_option, without_literals
from cdc_core.errors import CdcError
from cdc_core.masking import mask, masked_uri
from cdc_core.plugins.host import PluginHost
from cdc_core.web.config_keys import CLASS, COMMON, CORE, ConfigKey, is_our_class, keys_of
from cdc_core.web.connect.connector import TYPE, VERSION, unknown_class
from cdc_core.web.connect.shapes import WHOLE_CONFIG
from cdc_core.web.endpoint import Answer, Endpoints, Refusal, Role, array, flag_parameter, ref
from cdc_core.web.requests import Deployment, deployment_of, flag, json_object
from cdc_core.web.validation import Validated, config_of_json, validate

ENDPOINTS = Endpoints()

PARTS = ("rangefeed", "encoder", "sink")
"""The kinds of plugins that a changefeed is made of. Their classes are called `rangefeed.NAME` and so on."""
_HIDDEN = "[hidden]"
_SINKS = ("sink", "dead_letter")


@ENDPOINTS.add(
    "GET /connector-plugins",
    Role.VIEW,
    Answer(array(ref("Plugin")), "The only connector; on request also rangefeeds, encoders, sinks and functions."),
    parameters=[
        flag_parameter("connectorsOnly", "With `false`, also lists rangefeeds, encoders, sinks and functions.")
    ],
)
def plugins(request: Request) -> Response:
    """The plugins."""
    found = [{"class": CLASS, "type": TYPE, "version": VERSION}]
    if not flag(request, "connectorsOnly", default=True):
        found += [
            {"class": f"{row.kind}.{row.name}", "type": row.kind, "version": row.version}
            for row in deployment_of(request).plugins.listing()
            if row.kind and not row.problem
        ]
    return JSONResponse(found)


@ENDPOINTS.add(
    "GET /connector-plugins/{plugin}/config", Role.VIEW, Answer(array(ref("ConfigKey")), "The keys."), errors=[404]
)
def plugin_config(request: Request) -> Response:
    """The keys of a plugin's configuration."""
    name = request.path_params["plugin"]
    if is_our_class(name):
        return JSONResponse([key.to_json() for key in (*COMMON, *CORE)])
    return JSONResponse([key.to_json() for key in _keys_of_part(deployment_of(request), name)])


@ENDPOINTS.add(
    "PUT /connector-plugins/{plugin}/config/validate",
    Role.ADMIN,
    Answer(ref("Validation"), "Every key with its value and any errors."),
    body=WHOLE_CONFIG,
    errors=[400, 415],
)
def validate_config(request: Request) -> Response:
    """Check a configuration without connecting to anything."""
    name, config = request.path_params["plugin"], config_of_json(json_object(request, exact=True))
    given = config.get("connector.class")
    if given is None:
        raise Refusal(400, "Connector config contains no connector type")
    if not is_our_class(name):
        raise unknown_class(name)
    if not is_our_class(given):
        raise Refusal(400, f"Included connector type {given} does not match request type {name}")
    found = validate(deployment_of(request), config)
    values = list(_values(found, deployment_of(request).plugins))
    return JSONResponse(
        {
            "name": CLASS,
            "error_count": sum(len(each["value"]["errors"]) for each in values),
            "groups": list(dict.fromkeys(key.group for key in found.keys)),
            "configs": values,
        }
    )


def _keys_of_part(deployment: Deployment, name: str) -> Sequence[ConfigKey]:
    kind, dot, short = name.partition(".")
    try:
        if dot and kind in PARTS:
            part: Component[Any] = Component(registration=deployment.plugins.component(kind, short))
            return keys_of(part.load_options(), group=part.owner.capitalize())
        if dot and kind == "function":
            deployment.plugins.function(short)
            return ()
    except CdcError as error:
        raise Refusal(404, f"Unknown plugin {name}: {error}") from error
    raise Refusal(404, f"Unknown plugin {name}.")


def _values(found: Validated, plugins: PluginHost) -> Iterator[dict[str, Any]]:
    described = {key.name: key for key in found.keys}
    rest = [key for key in (*found.config, *found.problems) if key not in described]
    for name in dict.fromkeys([*described, *rest]):
        key, errors = described.get(name), found.problems.get(name, [])
        if key is None and errors:  # clients expect to be told what a wrong key is
            key = ConfigKey(name=name, type="STRING", doc="Not a key of this connector.", group="Unknown")
        yield {
            "definition": None if key is None else key.to_json(),
            "value": {
                "name": name,
                "value": _shown(name, key, found, plugins),
                "recommended_values": [] if key is None else list(key.choices),
                "errors": errors,
                "visible": True,
            },
        }


def _shown(name: str, key: ConfigKey | None, found: Validated, plugins: PluginHost) -> str | None:
    """Return the value without a secret: references stay."""
    if name not in found.config:
        return None if key is None else key.default
    value = found.config[name]
    if value is None:
        return None
    kept = masked_option(name, value, "secret" if key is not None and key.type == "PASSWORD" else "")
    if name in _SINKS:
        try:
            kept = without_literals(value, sink=Component(registration=plugins.sink_for(value)))
        except CdcError:  # of an unknown sink anything may be secret
            kept = masked_uri(value, secret_path=True)
    return mask(value, found.secrets) if kept == value else _HIDDEN
