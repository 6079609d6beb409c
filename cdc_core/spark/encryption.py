"""Who may speak with the processes of an application, and in what form: tasks carry the secrets of source and sink."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from secrets import token_hex

from cdc_core.errors import ConfigError

log = logging.getLogger(__name__)

_AUTHENTICATE = "spark.authenticate"
_SECRET = "spark.authenticate.secret"
_ENCRYPT = "spark.network.crypto.enabled"
_REST_PORT = 6066
_REST_WAIT_S = 1.0


def encryption_settings(spark: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that admit only processes of the application, for the master and other settings in *spark*.

    They encrypt its traffic too. On this host the secret is one of this application alone: every user can connect to
    the ports of its loopback interface. Yarn and Kubernetes make one themselves.
    """
    master = spark.get("master", "local")
    on_this_host = master.startswith("local")
    generated = on_this_host or master == "yarn" or master.startswith("k8s://")
    if spark.get(_AUTHENTICATE, "true" if generated else "false").lower() != "true":
        return {}
    return {_AUTHENTICATE: "true", _ENCRYPT: "true", **({_SECRET: token_hex(32)} if on_this_host else {})}


def require_encryption(spark: Mapping[str, str]) -> None:
    """Return unless the user has to decide about encryption and has not. Raises: ConfigError, also for 'nodes'.

    A standalone cluster has one secret for all, which only its administrator knows; a node knows that of 'nodes'.
    """
    master = spark.get("master", "local")
    if master == "nodes":
        raise ConfigError(
            "the Spark master 'nodes' is the cluster that `cdc node --cores` forms, which runs only jobs: use `cdc "
            "create` instead of `cdc run`"
        )
    if master.startswith("spark://") and _AUTHENTICATE not in spark:
        raise ConfigError(
            f"Spark master '{master}': passwords of source and sink would cross the network in plain text; set"
            f' {_AUTHENTICATE} = "true" and {_SECRET} to the secret of the master and its workers, or'
            f' {_AUTHENTICATE} = "false" where the network is trusted'
        )


def warn_of_open_masters(spark: Mapping[str, str]) -> None:
    """Log a warning for each standalone master that runs drivers for everybody, whatever its secret: Spark's default.

    A driver runs as the user of the workers, and can read what their executors hold.
    """
    master = spark.get("master", "local")
    if not master.startswith("spark://"):
        return
    for place in master.removeprefix("spark://").split(","):
        connection = HTTPConnection(place.rpartition(":")[0], _REST_PORT, timeout=_REST_WAIT_S)
        try:
            connection.request("GET", "/v1/submissions/status/none")
            is_open = b"serverSparkVersion" in connection.getresponse().read(1000)
        except (OSError, HTTPException):
            continue
        finally:
            connection.close()
        if is_open:
            log.warning(
                "the master spark://%s accepts drivers from anyone at port %d; set spark.master.rest.enabled to "
                "false in its properties",
                place,
                _REST_PORT,
            )
