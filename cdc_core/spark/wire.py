"""Whether what Spark sends over the network is encrypted: tasks carry the secrets of source and sink."""

from __future__ import annotations

from collections.abc import Mapping

from cdc_core.errors import ConfigError

__all__ = ["require_encryption", "wire_settings"]

_AUTHENTICATE = "spark.authenticate"
_ENCRYPT = "spark.network.crypto.enabled"


def wire_settings(spark: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that encrypt the application's traffic, for the master and the other settings in *spark*.

    Yarn and Kubernetes make a secret for each application. In local mode nothing leaves the host.
    """
    master = spark.get("master", "local")
    generated = master == "yarn" or master.startswith("k8s://")
    if spark.get(_AUTHENTICATE, "true" if generated else "false").lower() != "true":
        return {}
    return {_AUTHENTICATE: "true", _ENCRYPT: "true"}


def require_encryption(spark: Mapping[str, str]) -> None:
    """Return unless the user has to decide about encryption and has not. Raises: ConfigError.

    A standalone cluster has one secret for all, which only its administrator knows.
    """
    master = spark.get("master", "local")
    if master.startswith("spark://") and _AUTHENTICATE not in spark:
        raise ConfigError(
            f"Spark master '{master}': passwords of source and sink would cross the network in plain text; set"
            f' {_AUTHENTICATE} = "true" and {_AUTHENTICATE}.secret to the secret of the master and its workers, or'
            f' {_AUTHENTICATE} = "false" where the network is trusted'
        )
