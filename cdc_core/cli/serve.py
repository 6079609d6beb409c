"""`cdc serve`."""

from __future__ import annotations

import queue
from contextlib import suppress
from typing import Any

import click

from cdc_core.cli.job_commands import changefeeds_at, job_store_option
from cdc_core.cli.serving import DEFAULT_ADDRESS, listen_options, serving
from cdc_core.cli.session import CliSession, debug_option, log_format_option
from cdc_core.cli.stop_signals import stop_signals, take_back_interrupts
from cdc_core.plugins.host import PluginHost

_POLL_INTERVAL_S = 0.5


@click.command
@job_store_option
@listen_options(
    f"Where to listen. Default: {DEFAULT_ADDRESS}, which other hosts cannot reach.", default=DEFAULT_ADDRESS
)
@log_format_option
@debug_option
@click.pass_obj
def serve(session: CliSession, /, store: str | None, listen: str, **given: Any) -> int:
    """Serve the REST interface, the page and metrics of the jobs of a store, until SIGTERM or Ctrl-C.

    It runs no job: nodes do. Checks of definitions need the plugins, and the variables and files that they refer to.
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
