"""The variables OTEL_* that say where metrics go, as far as they are not the library's own business."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from cdc_core.errors import ConfigError
from cdc_core.masking import is_secret_name, masked_uri, uri_secrets

_PROTOCOLS = ("http/protobuf", "grpc")
_DEFAULT_ENDPOINTS = {"http/protobuf": "http://localhost:4318", "grpc": "http://localhost:4317"}
_INTERVAL = "OTEL_METRIC_EXPORT_INTERVAL"
_TEMPORALITY = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"
_HEADER = re.compile(r"[\w.%-]+")
_SECRET_HEADER = re.compile("cookie|dsn|key|x-honeycomb-team", re.IGNORECASE)
"""Names of headers that hold secrets, beside those that look so everywhere."""
_MIN_SECRET_LENGTH = 4
"""A shorter value of a header is not a secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtlpSettings:
    """How often metrics are exported, and by which protocol. `endpoint` is how messages name the place: no secret."""

    protocol: str
    endpoint: str
    interval_s: float

    @classmethod
    def of(cls, environ: Mapping[str, str] = os.environ) -> OtlpSettings | None:
        """Return the settings in *environ*; None if OTEL_SDK_DISABLED says that nothing is exported.

        Raises: ConfigError for a value that cannot be followed.
        """
        if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
            return None
        protocol = _either(environ, "PROTOCOL") or _PROTOCOLS[0]
        if protocol not in _PROTOCOLS:
            raise ConfigError(f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol}: choose {' or '.join(_PROTOCOLS)}")
        if environ.get(_TEMPORALITY, "").lower() not in ("", "cumulative"):
            raise ConfigError(
                f"{_TEMPORALITY}={environ[_TEMPORALITY]}: totals outlive this process, so they are exported as"
                " cumulative values; unset the variable, and let a collector convert them to deltas"
                " (cumulativetodelta)"
            )
        endpoint = _either(environ, "ENDPOINT") or _DEFAULT_ENDPOINTS[protocol]
        if protocol != "grpc" and not endpoint.lower().startswith(("http://", "https://")):
            raise ConfigError(
                "OTEL_EXPORTER_OTLP_ENDPOINT, or OTEL_EXPORTER_OTLP_METRICS_ENDPOINT, has no scheme; write a URL such"
                " as http://localhost:4318"
            )
        return cls(
            protocol=protocol,
            endpoint=masked_uri(endpoint),
            interval_s=_interval_ms(environ) / 1000,
        )


def otlp_secrets(environ: Mapping[str, str] = os.environ) -> frozenset[str]:
    """Return what is secret in the variables of OTLP: passwords, and of headers whose names look secret the values.

    These also without their scheme. A header that cannot be parsed is secret as a whole.
    """
    found: set[str] = set()
    for variable in ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_METRICS_HEADERS"):
        for header in filter(None, map(str.strip, environ.get(variable, "").split(","))):
            name, _, value = map(str.strip, header.partition("="))
            if not (value and _HEADER.fullmatch(name)):
                value = header
            elif not (is_secret_name(unquote(name)) or _SECRET_HEADER.search(name)):
                continue
            for form in (value, unquote(value)):
                found |= {form, form.partition(" ")[2].strip()}
    for variable in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"):
        found |= uri_secrets(environ.get(variable, ""))
    return frozenset(secret for secret in found if len(secret) >= _MIN_SECRET_LENGTH)


def _either(environ: Mapping[str, str], name: str) -> str:
    """Return the variable of metrics of this *name*, or else that of all signals."""
    return environ.get(f"OTEL_EXPORTER_OTLP_METRICS_{name}") or environ.get(f"OTEL_EXPORTER_OTLP_{name}") or ""


def _interval_ms(environ: Mapping[str, str]) -> float:
    text = environ.get(_INTERVAL) or "60000"
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1 <= value < 1e12:
        raise ConfigError(f"{_INTERVAL}={text}: write milliseconds, such as 10000")
    return value
