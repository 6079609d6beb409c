"""The variables OTEL_* that say where metrics go, as far as they are not the library's own business."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from cdc_core.errors import ConfigError
from cdc_core.masking import masked_uri, uri_secrets

__all__ = ["OtlpSettings", "otlp_secrets"]

_PROTOCOLS = ("http/protobuf", "grpc")
_DEFAULT_ENDPOINTS = {"http/protobuf": "http://localhost:4318", "grpc": "http://localhost:4317"}
_INTERVAL = "OTEL_METRIC_EXPORT_INTERVAL"
_TEMPORALITY = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"
_LEAST = 4
"""A shorter value of a header is no secret, such as the number of a tenant."""


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
                f"{_TEMPORALITY}={environ[_TEMPORALITY]}: totals outlive this process, so they are exported as such;"
                " unset it, and let a collector make deltas of them (cumulativetodelta)"
            )
        return cls(
            protocol=protocol,
            endpoint=masked_uri(_either(environ, "ENDPOINT") or _DEFAULT_ENDPOINTS[protocol]),
            interval_s=_interval_ms(environ) / 1000,
        )


def otlp_secrets(environ: Mapping[str, str] = os.environ) -> frozenset[str]:
    """Return what is secret in the variables of OTLP: values of headers, also without their scheme, and passwords."""
    found: set[str] = set()
    for name in ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_METRICS_HEADERS"):
        for header in filter(None, map(str.strip, environ.get(name, "").split(","))):
            value = header.partition("=")[2].strip() or header
            for form in (value, unquote(value)):
                found |= {form, form.partition(" ")[2].strip()}
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"):
        found |= uri_secrets(environ.get(name, ""))
    return frozenset(secret for secret in found if len(secret) >= _LEAST)


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
