"""The MCP server of `cdc mcp`: tools and pages, for the official SDK."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial, wraps
from importlib.metadata import version
from typing import Any

from anyio import to_thread
from mcp.server import MCPServer
from mcp.types import CallToolResult, TextContent, ToolAnnotations

from cdc_core.cli.docs import page_text, pages, title_of
from cdc_core.cli.mcp_tools import Tools
from cdc_core.errors import CdcError
from cdc_core.open_files import with_open_files_limit
from cdc_core.store.verbs import RULES

_INSTRUCTIONS = (
    "A changefeed delivers committed row changes from a database to Kafka, files or webhooks. Start with"
    " list_changefeeds. When a changefeed is behind, retrying, paused or failed, call diagnose and report the causes"
    " and remedies. Look up options and errors with search_docs before you propose a change."
)
_READ_ONLY = (
    "list_changefeeds",
    "show_changefeed",
    "diagnose",
    "list_events",
    "explain",
    "trace",
    "audit",
    "search_docs",
)


def server_of(tools: Tools, *, allow_changes: bool) -> MCPServer[Any]:
    """Return the server. Whatever its tools answer is masked. With *allow_changes* it has those of `RULES`, too."""
    server: MCPServer[Any] = MCPServer("cdc", version=version("cdc-core"), instructions=_INSTRUCTIONS)
    changing = [name for rule in RULES.values() for name in rule.tools] if allow_changes else []
    for name in (*_READ_ONLY, *changing):
        hints = ToolAnnotations(read_only_hint=name in _READ_ONLY, destructive_hint=False, idempotent_hint=True)
        server.add_tool(_masked(tools, name), annotations=hints)
    for name, path in pages().items():
        title = title_of(path)
        of_page = server.resource(
            f"cdc-docs:///{name}", name=name, title=title, description=title, mime_type="text/markdown"
        )
        of_page(partial(page_text, name))
    return server


def _masked(tools: Tools, name: str) -> Callable[..., Awaitable[dict[str, Any] | CallToolResult]]:
    """Return the tool *name*, with secrets masked in its answers and errors. The server ends without waiting for it."""

    @wraps(getattr(tools, name))
    async def called(**arguments: Any) -> dict[str, Any] | CallToolResult:
        own = tools.for_a_call()
        tool = partial(getattr(own, name), **arguments)
        try:
            found: dict[str, Any] = own.session.masked_texts(await to_thread.run_sync(tool, abandon_on_cancel=True))
        except CdcError as error:
            sentence = own.session.masked(with_open_files_limit(str(error), error))
            return CallToolResult(content=[TextContent(text=sentence)], is_error=True)
        return found

    return called
