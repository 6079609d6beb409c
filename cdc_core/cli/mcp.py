"""`cdc mcp`."""

from __future__ import annotations

import os
import signal
from typing import NoReturn

import click

from cdc_core.cli.located import Named, changefeed_command
from cdc_core.errors import ConfigError
from cdc_core.plugins.classes import needing


@changefeed_command(has_file=False, has_name=False)
@click.option("--allow-changes", is_flag=True, help="Also offer tools that pause, resume and restart changefeeds.")
def mcp(named: Named, allow_changes: bool) -> NoReturn:
    """Run an MCP server (Model Context Protocol), whose tools list, explain and diagnose changefeeds.

    The assistant's program starts this command and talks to it over standard input and output. Without
    --allow-changes, no tool changes a changefeed. Secrets are masked, as in every command.

    The tools see the changefeeds in the store given by --store or the environment variable CDC_STORE, or those in FILE;
    by default, those in the store of the current directory.
    """
    if named.store is not None and named.file is not None:
        raise ConfigError(f"`cdc mcp` serves all changefeeds of a store; omit '{named.file}' from the command")
    named.session.start_logging(quiet=True)
    with needing("mcp", "mcp_types", otherwise="`cdc mcp` needs the MCP SDK: pip install 'cdc-core[mcp]'"):
        from cdc_core.cli.mcp_server import server_of
    from cdc_core.cli.mcp_tools import Tools

    tools = Tools(named)

    def end(number: int, _: object) -> None:
        tools.end()
        os._exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    server_of(tools, allow_changes=allow_changes).run("stdio")
    tools.end()
    os._exit(0)  # without waiting for calls that still run
