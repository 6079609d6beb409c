"""The option `--metrics`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, TypeVar

import click

from cdc_core.errors import ConfigError
from cdc_core.web.address import Address
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
    try:
        from cdc_core.web.metrics_server import MetricsServer
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "prometheus_client":
            raise ConfigError("--metrics needs a library: pip install 'cdc-core[metrics]'") from error
        raise
    address = Address.parse(where, option="--metrics")
    with closing(Watched(store, names=names, node=node)) as watched, MetricsServer(address, watched.samples) as server:
        log.info("metrics are at %s", server.url)
        yield
