"""`cdc node`."""

from __future__ import annotations

import itertools
import socket
from pathlib import Path
from typing import Any

import click

from cdc_core.cli.declared_options import declared_options, given_options
from cdc_core.cli.located import state_of
from cdc_core.cli.serving import (
    exporting_metrics,
    listen_options,
    metrics_option,
    otlp_option,
    serving,
    serving_metrics,
)
from cdc_core.cli.session import CliSession, debug_option, log_format_option
from cdc_core.cli.stop_signals import stop_signals
from cdc_core.errors import ConfigError
from cdc_core.jobs.settings import NodeSettings
from cdc_core.masking import secret_forms
from cdc_core.options import parse_options
from cdc_core.plugins.classes import needing
from cdc_core.plugins.host import PluginHost
from cdc_core.private_files import make_state_directory
from cdc_core.web.watched import NodeView

_FROM_ENVIRONMENT = {"store": "CDC_STORE", "locality": "CDC_LOCALITY"}


@click.command
@declared_options(NodeSettings, variables=_FROM_ENVIRONMENT, repeated="spark")
@listen_options("Address at which to serve the REST interface, the web page and metrics.", default=None)
@metrics_option
@otlp_option
@log_format_option
@debug_option
@click.pass_obj
def node(session: CliSession, /, listen: str | None, metrics: str | None, otlp: bool, **given: Any) -> int:
    """Run a node: it adopts jobs from the store, coordinates and executes them, and takes over jobs of nodes that fail.

    A node needs the plugins of its jobs, and the variables and files that their definitions refer to. SIGTERM and
    Ctrl-C drain the node: it finishes the running steps, other nodes take over the jobs, and it stops. A second signal
    abandons the running steps, and other nodes repeat them.
    """
    settings = _settings(given)
    session.mask_uri(settings.store)
    if secret := settings.secret():
        session.add_secrets(secret_forms([secret]))
    session.start_logging()
    with needing("pyspark", "py4j", otherwise="a node needs Spark: pip install 'cdc-core[spark]'"):
        from cdc_core.jobs.cluster import NODES
        from cdc_core.jobs.node import Node
        from cdc_core.spark.host import SparkHost
    make_state_directory(settings.home)
    own = settings.spark or {}
    spark = {} if own.get("master") == NODES else own
    host = SparkHost("node", spark, state_dir=settings.home, changefeeds=settings.max_jobs)
    plugins = PluginHost.load()
    running = Node(settings, host, plugins, keep_secret=session.add_secrets)
    view = NodeView(name=settings.name, samples=running.counts.samples)
    told = itertools.count()
    with (
        serving_metrics(metrics, settings.store, node=view),
        exporting_metrics(session, otlp, settings.store, node=view),
        serving(session, listen, given, store=settings.store, plugins=plugins, node=view),
        stop_signals(lambda: running.abandon() if next(told) else running.drain()),
    ):
        running.run()
    return 0


def _settings(given: dict[str, Any]) -> NodeSettings:
    values = given_options(NodeSettings, given)
    if "store" not in values:
        raise ConfigError("the node needs a progress store: use --store URL, or set CDC_STORE")
    values["store"] = state_of(Path(), values["store"])[1]
    name = values.setdefault("name", socket.gethostname())
    values.setdefault("directory", f".cdc/nodes/{name}")
    spark = dict(setting.partition("=")[::2] for setting in values["spark"])
    if not all(spark) or not all(spark.values()):
        raise ConfigError("--spark takes a setting as key=value, such as --spark spark.driver.memory=2g")
    return parse_options(NodeSettings, values | {"spark": spark}, owner="cdc node")
