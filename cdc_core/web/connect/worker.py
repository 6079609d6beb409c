"""The server itself: its version, its health, its loggers."""

from __future__ import annotations

import hashlib
import logging
import threading
import time

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from cdc_core.errors import CdcError
from cdc_core.web.connect.connector import VERSION
from cdc_core.web.endpoint import TEXT, Answer, Body, Endpoints, Parameter, Refusal, Role, array, record, ref
from cdc_core.web.requests import deployment_of, json_object

ENDPOINTS = Endpoints()

DIALECT = "4.3.0"
"""The version of Kafka Connect whose dialect this is. Clients find out by it what they may ask."""
LEVELS = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "WARNING": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "OFF": logging.CRITICAL + 1,
}
_NAMES = {level: name for name, level in LEVELS.items() if name not in ("TRACE", "WARNING")}
_changed: dict[str, int] = {}
_lock = threading.Lock()


@ENDPOINTS.add(
    "GET /",
    Role.VIEW,
    Answer(ref("Server"), "The versions."),
    Answer(None, "A browser is redirected to the page.", status=303),
)
def root(request: Request) -> Response:
    """Versions of the server. A browser is redirected to the page."""
    if "text/html" in request.headers.get("accept", ""):
        return RedirectResponse("/ui", status_code=303)
    store = deployment_of(request).changefeeds.store.shown
    cluster = hashlib.sha256(store.encode()).hexdigest()[:22]
    return JSONResponse(
        {"version": DIALECT, "commit": f"cdc-core-{VERSION}", "kafka_cluster_id": cluster, "cdc_version": VERSION}
    )


@ENDPOINTS.add(
    "GET /health",
    Role.VIEW,
    Answer(ref("Health"), "It can."),
    Answer(ref("Health"), "The store cannot be reached.", status=500),
)
def health(request: Request) -> Response:
    """Whether the server can do its work.

    That is whether the store can be reached; whether nodes are alive, `/v1/nodes` tells.
    """
    try:
        deployment_of(request).changefeeds.living_nodes()
    except CdcError as error:
        text = f"Worker was unable to handle this request and may be unable to handle other requests. {error}"
        shown = deployment_of(request).masked(text)
        return JSONResponse({"status": "unhealthy", "message": shown}, status_code=500)
    return JSONResponse(
        {"status": "healthy", "message": "Worker has completed startup and is ready to handle requests."}
    )


@ENDPOINTS.add("GET /admin/loggers", Role.VIEW, Answer(ref("Loggers"), "Their levels by name."))
def loggers(request: Request) -> Response:  # noqa: ARG001
    """The loggers of this process whose level is set."""
    with _lock:
        names = [name for name in _names() if logging.getLogger(name).level != logging.NOTSET]
        return JSONResponse({"root": _level("root")} | {name: _level(name) for name in sorted(names)})


@ENDPOINTS.add("GET /admin/loggers/{logger}", Role.VIEW, Answer(ref("Logger"), "The level."), errors=[404])
def logger(request: Request) -> Response:
    """The level of a logger of this process."""
    name = request.path_params["logger"]
    with _lock:
        if name != "root" and name not in _names():
            raise Refusal(404, f"Logger {name} not found.")
        return JSONResponse(_level(name))


@ENDPOINTS.add(
    "PUT /admin/loggers/{logger}",
    Role.ADMIN,
    Answer(array(TEXT), "The names of the loggers whose level is set."),
    parameters=[Parameter("scope", "`worker`, which is the default.")],
    body=Body(record("level"), "TRACE, DEBUG, INFO, WARN, ERROR, FATAL or OFF."),
    errors=[400, 404, 415],
)
def set_logger(request: Request) -> Response:
    """Set the level of a logger of this process, and of those below it."""
    name, value = request.path_params["logger"], json_object(request)
    if request.query_params.get("scope", "worker").lower() == "cluster":
        raise Refusal(400, "the levels of all nodes cannot be set at once; set them on each server, with scope=worker")
    level = value.get("level")
    if level is None:
        raise Refusal(400, "Desired 'level' parameter was not specified in request.")
    if str(level).upper() not in LEVELS:
        raise Refusal(404, f"invalid log level '{level}'.")
    with _lock:
        known = _names()
        changed = sorted([each for each in known if each == name or each.startswith(f"{name}.")])
        if name == "root":
            changed = ["root", *sorted(known)]
        elif not changed:
            raise Refusal(404, f"Logger {name} not found.")
        wanted = LEVELS[str(level).upper()]
        changed = [each for each in changed if _logger(each).getEffectiveLevel() != wanted]
        for each in changed:
            _logger(each).setLevel(wanted)
            _changed[each] = int(time.time() * 1000)
    return JSONResponse(changed)


def _names() -> set[str]:
    return {name for name, found in logging.root.manager.loggerDict.items() if isinstance(found, logging.Logger)}


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == "root" else name)


def _level(name: str) -> dict[str, str | int | None]:
    level = _logger(name).getEffectiveLevel()
    return {"level": _NAMES.get(level, logging.getLevelName(level)), "last_modified": _changed.get(name)}
