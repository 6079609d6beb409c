"""Who may speak with the processes of an application, and in what form: tasks carry the secrets of source and sink."""

from __future__ import annotations

from collections.abc import Mapping
from secrets import token_hex

from cdc_core.errors import ConfigError

__all__ = ["require_encryption", "wire_settings"]

_AUTHENTICATE = "spark.authenticate"
_SECRET = "spark.authenticate.secret"
_ENCRYPT = "spark.network.crypto.enabled"


def wire_settings(spark: Mapping[str, str]) -> dict[str, str]:
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
    """Return unless the user has to decide about encryption and has not. Raises: ConfigError.

    A standalone cluster has one secret for all, which only its administrator knows.
    """
    master = spark.get("master", "local")
    if master.startswith("spark://") and _AUTHENTICATE not in spark:
        raise ConfigError(
            f"Spark master '{master}': passwords of source and sink would cross the network in plain text; set"
            f' {_AUTHENTICATE} = "true" and {_SECRET} to the secret of the master and its workers, or'
            f' {_AUTHENTICATE} = "false" where the network is trusted'
        )
