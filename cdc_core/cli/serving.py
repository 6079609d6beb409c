"""`cdc serve`, and what else serves or sends while a command runs: `--listen`, `--metrics` and `--otlp`."""

from __future__ import annotations

import logging
import os
import queue
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext, suppress
from typing import Any, TypeVar

import click

from cdc_core.cli.declared_options import declared_options, given_options, option_flag
from cdc_core.cli.job_commands import changefeeds_at, job_store_option
from cdc_core.cli.session import CliSession, debug_option, log_format_option
from cdc_core.cli.stop_signals import stop_signals, take_back_interrupts
from cdc_core.engine.history_meter import HistoryMeter
from cdc_core.errors import ConfigError
from cdc_core.masking import secret_forms
from cdc_core.options import parse_options
from cdc_core.plugins.classes import needing
from cdc_core.plugins.host import PluginHost
from cdc_core.store.progress import ProgressStore
from cdc_core.web.access.settings import AccessSettings
from cdc_core.web.address import Address
from cdc_core.web.otlp_settings import OtlpSettings, otlp_secrets
from cdc_core.web.watched import NodeView, Watched

F = TypeVar("F", bound=Callable[..., Any])

log = logging.getLogger(__name__)

DEFAULT_ADDRESS = "127.0.0.1:8083"
_METRICS_ADDRESS = "127.0.0.1:9464"
_POLL_INTERVAL_S = 0.5
_LIBRARIES = frozenset({"h11", "jinja2", "prometheus_client", "starlette", "uvicorn"})
_VARIABLES = {
    name: f"CDC_{name.upper()}"
    for name in ("tokens", "tls_cert", "tls_key", "tls_client_ca", "public_url", "allowed_paths")
}


def listen_options(help_text: str, *, default: str | None) -> Callable[[F], F]:
    """Give a command the option --listen, and those of `AccessSettings`."""

    def decorate(command: F) -> F:
        command = declared_options(AccessSettings, variables=_VARIABLES)(command)
        return click.option(
            "--listen",
            metavar="HOST:PORT",
            default=default,
            envvar="CDC_LISTEN",
            help=f"{help_text} Needs cdc-core[serve]. Can also be set by the environment variable CDC_LISTEN.",
        )(command)

    return decorate


@contextmanager
def serving(
    session: CliSession,
    listen: str | None,
    given: Mapping[str, Any],
    *,
    store: str,
    plugins: PluginHost,
    node: NodeView | None = None,
) -> Iterator[str | None]:
    """Serve the store at the URL *store* inside the block, if *listen* says where; give the URL of the server.

    *given* has the access options.
    Raises: ConfigError at the begin.
    """
    values = given_options(AccessSettings, given)
    if listen is None:
        typed = [option_flag(name) for name in values if name not in _VARIABLES or _VARIABLES[name] not in os.environ]
        if typed:
            raise ConfigError(f"{typed[0]} requires --listen HOST:PORT")
        yield None
        return
    with needing(*_LIBRARIES, otherwise="a server needs more libraries: pip install 'cdc-core[serve]'"):
        from cdc_core.web.access.access import Access
        from cdc_core.web.endpoints import all_endpoints
        from cdc_core.web.requests import Deployment
        from cdc_core.web.server import WebServer, application
    address = Address.parse(listen, option="--listen")
    access = Access(address, parse_options(AccessSettings, values, owner="the server"))
    with closing(ProgressStore(store, alone=True)) as opened, closing(Watched(store, node=node)) as watched:
        deployment = Deployment(
            opened,
            plugins,
            environ=os.environ,
            keep_secret=session.add_secrets,
            allowed_paths=access.settings.allowed_paths,
            node=None if node is None else node.name,
        )
        app = application(all_endpoints(watched.samples, watched.problem), deployment, access)
        meter = HistoryMeter(
            store, lambda report: deployment.changefeeds.feed(report.known.name, report.known.definition)
        )
        with WebServer(app, access) as server:
            log.info("serving at %s", server.url)
            with meter if node is None else nullcontext():  # a node has its own
                yield server.url


@click.command
@job_store_option
@listen_options(
    f"Address to listen on. Default: {DEFAULT_ADDRESS}, which other hosts cannot reach.", default=DEFAULT_ADDRESS
)
@log_format_option
@debug_option
@click.pass_obj
def serve(session: CliSession, /, store: str | None, listen: str, **given: Any) -> int:
    """Serve the REST interface, the web page and metrics of the jobs of a store, until SIGTERM or Ctrl-C.

    The server runs no jobs: nodes do. To check definitions, it needs their plugins, and the variables and files that
    they refer to.
    """
    session.start_logging()
    with (
        changefeeds_at(session, store, create=True) as changefeeds,
        serving(session, listen, given, store=changefeeds.store.url, plugins=PluginHost.load()),
    ):
        told: queue.SimpleQueue[None] = queue.SimpleQueue()
        with stop_signals(lambda: told.put(None)):
            while True:
                take_back_interrupts()
                with suppress(queue.Empty):
                    told.get(timeout=_POLL_INTERVAL_S)
                    break
    return 0


metrics_option = click.option(
    "--metrics",
    metavar="[HOST:PORT]",
    is_flag=False,
    flag_value=_METRICS_ADDRESS,
    envvar="CDC_METRICS",
    help=f"Serve metrics for Prometheus at http://HOST:PORT/metrics. Without an address: {_METRICS_ADDRESS}, which"
    " other hosts cannot reach. Needs cdc-core[metrics]. Can also be set by the environment variable CDC_METRICS.",
)


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


otlp_option = click.option(
    "--otlp",
    is_flag=True,
    envvar="CDC_OTLP",
    help="Send metrics over OTLP, as configured by the environment variables OTEL_*. Default: every minute to "
    "http://localhost:4318. Needs cdc-core[otlp]. Can also be set by the environment variable CDC_OTLP=1.",
)


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
