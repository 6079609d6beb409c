"""The option `--listen`, and a server while a command runs."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from typing import Any, TypeVar

import click

from cdc_core.cli.declared_options import declared_options, given_options, option_flag
from cdc_core.cli.session import CliSession
from cdc_core.engine.history_meter import HistoryMeter
from cdc_core.errors import ConfigError
from cdc_core.options import parse_options
from cdc_core.plugins.classes import needing
from cdc_core.plugins.host import PluginHost
from cdc_core.store.progress import ProgressStore
from cdc_core.web.access.settings import AccessSettings
from cdc_core.web.address import Address
from cdc_core.web.watched import NodeView, Watched

F = TypeVar("F", bound=Callable[..., Any])

log = logging.getLogger(__name__)

DEFAULT_ADDRESS = "127.0.0.1:8083"
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
            help=f"{help_text} Needs cdc-core[serve]. Also from the environment variable CDC_LISTEN.",
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
            raise ConfigError(f"{typed[0]} says who may ask a server, and there is none; add --listen HOST:PORT")
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
            log.info("this server is at %s", server.url)
            with meter if node is None else nullcontext():  # a node has its own
                yield server.url
