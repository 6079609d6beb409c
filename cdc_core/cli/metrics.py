"""The options `--metrics` and `--otlp`."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, TypeVar

import click

from cdc_core.cli.session import CliSession
from cdc_core.masking import secret_forms
from cdc_core.plugins.classes import needing
from cdc_core.web.address import Address
from cdc_core.web.otlp_settings import OtlpSettings, otlp_secrets
from cdc_core.web.watched import NodeView, Watched

F = TypeVar("F", bound=Callable[..., Any])

log = logging.getLogger(__name__)

_DEFAULT = "127.0.0.1:9464"


def metrics_option(command: F) -> F:
    """Give a command the option --metrics."""
    return click.option(
        "--metrics",
        metavar="[HOST:PORT]",
        is_flag=False,
        flag_value=_DEFAULT,
        envvar="CDC_METRICS",
        help=f"Serve metrics for Prometheus at http://HOST:PORT/metrics. Without an address: {_DEFAULT}, which other"
        " hosts cannot reach. Needs cdc-core[metrics]. Also from the environment variable CDC_METRICS.",
    )(command)


@contextmanager
def serving_metrics(
    where: str | None, store: str, *, names: frozenset[str] | None = None, node: NodeView | None = None
) -> Iterator[None]:
    """Serve, inside the block, metrics of the changefeeds *names*, or of *node*, if *where* says so.

    *store* is the URL of the progress store. Raises: ConfigError at the begin.
    """
    if where is None:
        yield
        return
    with needing("prometheus_client", otherwise="--metrics needs a library: pip install 'cdc-core[metrics]'"):
        from cdc_core.web.metrics_server import MetricsServer
    address = Address.parse(where, option="--metrics")
    with closing(Watched(store, names=names, node=node)) as watched, MetricsServer(address, watched.samples) as server:
        log.info("metrics are at %s", server.url)
        yield


def otlp_option(command: F) -> F:
    """Give a command the option --otlp."""
    return click.option(
        "--otlp",
        is_flag=True,
        envvar="CDC_OTLP",
        help="Send metrics by OTLP, as the environment variables OTEL_* say. Without them: every minute to"
        " http://localhost:4318. Needs cdc-core[otlp]. Also if the environment variable CDC_OTLP is 1.",
    )(command)


@contextmanager
def exporting_metrics(
    session: CliSession,
    wanted: bool,
    store: str,
    *,
    names: frozenset[str] | None = None,
    node: NodeView | None = None,
) -> Iterator[None]:
    """Send, inside the block, metrics of the changefeeds *names*, or of *node*, by OTLP if *wanted*.

    *store* is the URL of the progress store. Raises: ConfigError at the begin.
    """
    if not wanted:
        yield
        return
    session.add_secrets(secret_forms(otlp_secrets()))
    settings = OtlpSettings.of()
    if settings is None:
        log.info("OTEL_SDK_DISABLED is true, so --otlp sends no metrics")
        yield
        return
    with needing("opentelemetry", otherwise="--otlp needs a library: pip install 'cdc-core[otlp]'"):
        from cdc_core.web.otlp_export import OtlpExport
    instance = socket.gethostname() if node is None else node.name
    with (
        closing(Watched(store, names=names, node=node)) as watched,
        OtlpExport(settings, watched.samples, instance=instance),
    ):
        log.info("metrics are sent to %s every %g s", settings.endpoint, settings.interval_s)
        yield
