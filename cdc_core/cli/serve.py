"""`cdc serve`."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

import click

from cdc_core.cli.job_commands import job_store, job_store_option
from cdc_core.cli.serving import DEFAULT_ADDRESS, listen_options, serving
from cdc_core.cli.session import CliSession, debug_option, log_format_option
from cdc_core.plugins.host import PluginHost

__all__ = ["serve"]


@click.command(short_help="Serve the REST interface, the page and metrics.")
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
        job_store(session, store, create=True) as opened,
        serving(session, listen, given, store=opened.url, plugins=PluginHost.load()),
    ):
        _wait_for_signal()
    return 0


def _wait_for_signal() -> None:
    """Return at the first SIGINT or SIGTERM."""
    told = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        told.set()

    saved = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        told.wait()
    finally:
        for number, handler in saved.items():
            signal.signal(number, handler)
