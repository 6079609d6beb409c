"""The option `--otlp`."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, TypeVar

import click

from cdc_core.cli.session import CliSession
from cdc_core.errors import ConfigError
from cdc_core.masking import secret_forms
from cdc_core.web.otlp_settings import OtlpSettings, otlp_secrets
from cdc_core.web.watched import NodeView, Watched

F = TypeVar("F", bound=Callable[..., Any])

log = logging.getLogger(__name__)


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
    try:
        from cdc_core.web.otlp_export import OtlpExport
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "opentelemetry":
            raise ConfigError("--otlp needs a library: pip install 'cdc-core[otlp]'") from error
        raise
    instance = socket.gethostname() if node is None else node.name
    with (
        closing(Watched(store, names=names, node=node)) as watched,
        OtlpExport(settings, watched.samples, instance=instance),
    ):
        log.info("metrics are sent to %s every %g s", settings.endpoint, settings.interval_s)
        yield
