"""What the commands of one invocation of `cdc` share: secrets, logging, the console."""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import Any, Self

import click
from rich.console import Console
from rich.text import Text

from cdc_core.cli.completion import FileOrName
from cdc_core.cli.status_block import StatusBlock
from cdc_core.masking import MaskingFilter, mask, secret_forms, uri_secrets
from cdc_core.remedies import as_typed
from cdc_core.telemetry.logs import JsonFormatter, NamingFormatter, details_of, printable
from cdc_core.telemetry.status import StatusLog, StatusView

log = logging.getLogger(__name__)

FILE = FileOrName(readable=False)
"""The argument FILE: a path, which the shell completes, or a name. Nothing is checked here."""
json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as one line of JSON.")


class CliSession:
    """One invocation of the command. Whatever it prints goes through `masked`."""

    def __init__(self) -> None:
        self.debug = False
        self.log_format = "text"
        self._logs = False
        self.console = Console(stderr=True)
        self._secrets: frozenset[str] = frozenset()
        self._adding = threading.Lock()
        self._filter = MaskingFilter()
        _show_py4j(False)
        self.typed: dict[str, str] = {}
        """What people have typed for each changefeed: commands that are printed have it in place of `FILE NAME`."""

    def for_a_call(self) -> Self:
        """Return a session with the logs and secrets of this one, for which nothing was typed yet."""
        other = copy(self)
        other.typed = {}
        return other

    def add_secrets(self, secrets: Iterable[str]) -> None:
        """Mask *secrets* from now on. Called in any thread."""
        with self._adding:
            self._secrets |= frozenset(secrets)
            self._filter.add(self._secrets)

    def mask_uri(self, uri: str) -> None:
        """Mask the secrets of *uri* from now on."""
        self.add_secrets(secret_forms(uri_secrets(uri)))

    def masked(self, text: str) -> str:
        """Return *text* as it is printed: without secrets and control characters, and with commands to repeat."""
        return printable(self._masked(text), colored=True)

    def _masked(self, text: str) -> str:
        return mask(as_typed(text, self.typed), self._secrets)

    def echo_json(self, value: Any) -> None:
        """Print *value* as one line of JSON, with each text in it masked: a short secret must not break numbers."""
        click.echo(json.dumps(self.masked_texts(value)))

    def masked_texts(self, value: Any) -> Any:
        """Return the JSON *value* with each text in it masked."""
        if isinstance(value, Mapping):
            return {name: self.masked_texts(each) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.masked_texts(each) for each in value]
        return self._masked(value) if isinstance(value, str) else value

    def start_logging(self, *, quiet: bool = False) -> None:
        """Send log records to the console, masked; of a *quiet* command only warnings."""
        handler: logging.Handler = _ConsoleHandler(self.console)
        handler.setFormatter(NamingFormatter("%(asctime)s %(levelname)s %(message)s"))
        handler.addFilter(lambda record: details_of(record) is None)
        if self.log_format == "json":
            handler = logging.StreamHandler(sys.stderr)
            handler.setFormatter(JsonFormatter())
        self._logs = True
        handler.addFilter(self._with_commands)
        handler.addFilter(self._filter)
        root = logging.getLogger()
        root.handlers[:] = [handler]
        root.setLevel(logging.WARNING if quiet and not self.debug else logging.INFO)
        _show_py4j(self.debug)
        if self.debug:
            logging.getLogger("cdc_core").setLevel(logging.DEBUG)

    def status_view(self) -> StatusView:
        """Return what shows statuses: a live block on a terminal, log lines elsewhere."""
        is_live = self.console.is_terminal and self.log_format == "text"
        return StatusBlock(self.console, shown=self.masked) if is_live else StatusLog()

    def say_error(self, text: str, *, usage: str = "") -> None:
        """Print *text*, masked, as the last word of a command that failed: a log record where lines are JSON.

        The *usage* before it is printed as it is: the name of the program may be a password.
        """
        if self._logs and self.log_format == "json":
            log.error("%s", text)
        else:
            click.echo(usage + printable(self._masked(text)), err=True)

    def _with_commands(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = as_typed(record.getMessage(), self.typed), ()
        return True


def _show_py4j(shown: bool) -> None:
    """Have the tracebacks that py4j logs before it raises, also for Ctrl-C, *shown* from now on or not."""
    logging.getLogger("py4j").setLevel(logging.ERROR if shown else logging.CRITICAL)
    root = logging.getLogger()
    if shown:
        root.removeFilter(_is_not_of_py4j)
    else:
        root.addFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return record.module != "java_gateway"


class _ConsoleHandler(logging.Handler):
    """Prints records on a console, which on a terminal may hold a live block. No output that fails is an error."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if self._console.is_terminal:
                self._console.print(Text(self.format(record)), soft_wrap=True)
            else:  # rich would end the process when nobody reads a pipe anymore
                click.echo(self.format(record), err=True)
        except Exception:
            self.handleError(record)


def _kept_as(attribute: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    """Return what keeps the value of an option as this attribute of the session."""

    def keep(context: click.Context, _parameter: click.Parameter, value: Any) -> None:
        session = context.find_object(CliSession)
        if session is not None and value:
            setattr(session, attribute, value)

    return keep


debug_option = click.option(
    "--debug", is_flag=True, expose_value=False, callback=_kept_as("debug"), help="Show tracebacks and detailed logs."
)
log_format_option = click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    expose_value=False,
    callback=_kept_as("log_format"),
    help="Format of log lines on stderr: text or JSON objects. Default: text.",
)
