"""`cdc debug`."""

from __future__ import annotations

import glob
import io
import json
import os
import tarfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import click

from cdc_core.changefeeds.reading import Reading
from cdc_core.cli import debug_parts as parts
from cdc_core.cli.debug_parts import environment_secrets, masked_text, referred_secrets
from cdc_core.cli.located import Named, changefeed_command, require_known
from cdc_core.config.interpolation import with_absolute_files
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.errors import ConfigError
from cdc_core.masking import secret_forms, uri_secrets
from cdc_core.store.progress import ProgressStore
from cdc_core.store.values import ChangefeedRecord
from cdc_core.web.otlp_settings import otlp_secrets


@changefeed_command(environment="of definitions")
@click.option("-o", "--output", metavar="ARCHIVE", help="Archive to write. Default: cdc-debug-NAME-TIME.tar.gz.")
@click.option(
    "--log", "logs", metavar="PATH", multiple=True, help="Also add the end of this log file. May be repeated."
)
@click.option("--no-connect", is_flag=True, help="Do not connect to the source and the sink.")
def debug(named: Named, output: str | None, logs: tuple[str, ...], no_connect: bool) -> int:
    """Collect diagnostics of the changefeed NAME in FILE in one archive: versions, this host, configuration, progress,
    status, events, plans, log files, and the state of its source and sink. Changes nothing.

    Secrets are masked. If a part could not be collected, the end of the output lists it, and the archive says why.
    """
    for path in logs:
        parts.require_file(Path(path))
    session, (feed_name, state_dir, url) = named.session, named.place()
    session.add_secrets(secret_forms(uri_secrets(url) | otlp_secrets()) | environment_secrets())
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    title = f"cdc-debug-{feed_name}-{moment}"
    archive_path = Path(output or f"{title}.tar.gz")
    masked: Callable[[str], str] = lambda text: masked_text(session.masked(text), ())  # noqa: E731
    with closing(ProgressStore(url)) as progress, DebugArchive(archive_path, name=title, masked=masked) as archive:
        found: dict[str, Any] = {}
        option = "--state" if named.store is None else "--store"

        def hide_referred() -> None:  # which of these are secret, only the whole definition says
            session.add_secrets(referred_secrets(_text_of(Path(named.file or ""))))

        def configured() -> dict[str, Any]:
            try:
                feed, *_ = named.resolved()
                found["feed"] = feed
            except Exception:
                hide_referred()
                raise
            return parts.configuration(feed)

        def stored() -> dict[str, Any]:
            known = found["known"] = require_known(progress, feed_name, option=option)
            if "feed" not in found:
                session.add_secrets(referred_secrets(known.definition))
            return Reading(progress).saved(known)

        archive.add("configuration.json", configured)  # first: it says what is secret
        if "feed" not in found:  # it may also have taken too long
            hide_referred()
        archive.add("progress.json", stored)
        archive.add("versions.json", parts.versions)
        archive.add("machine.json", lambda: parts.machine(state_dir))
        _add_of_store(archive, progress, found.get("known"))
        _add_of_feed(archive, found.get("feed"), found.get("known"), connect=not no_connect)
        own = sorted(state_dir.glob(f"{glob.escape(feed_name)}.spark.log*"))  # with those that were rotated
        for number, log in enumerate([*own, *map(Path, logs)], 1):
            archive.add(f"logs/{number}-{log.name}", partial(parts.last_lines, log))
    click.echo(f"wrote {archive_path}")
    for failed in archive.failed:
        click.echo(f"  without {failed}: see {failed}.error in the archive")
    return 0


def _add_of_store(archive: DebugArchive, store: ProgressStore, known: ChangefeedRecord | None) -> None:
    if known is not None:
        reading, name = Reading(store), known.name
        archive.add("events.jsonl", lambda: "\n".join(json.dumps(each.to_json()) for each in reading.events(name)))
        archive.add("nodes.json", lambda: [each.to_json() for each in reading.nodes()])


def _add_of_feed(
    archive: DebugArchive, feed: ResolvedChangefeed | None, known: ChangefeedRecord | None, *, connect: bool
) -> None:
    if feed is not None and connect:
        if known is not None:
            feed = feed.for_attempt(feed_id=known.feed_id, epoch=known.epoch)
        archive.add("source.json", lambda: parts.source(feed, known))
        archive.add("sink.json", lambda: parts.sink(feed))
        archive.add("explain.txt", lambda: parts.explanation(feed))


def _text_of(path: Path) -> str:
    """Return the text of the file, with whole paths in its references; empty if it is not a file."""
    text = path.read_text(errors="replace") if path.is_file() else ""
    return str(with_absolute_files(text, path.absolute().parent))


Text = Callable[[], str]


class DebugArchive:
    """A new file at *path*, a tar.gz that only its owner may read, with one directory, *name*.

    *masked* is applied to every text, also to those of errors. A part that fails, or takes longer than *limit_s*, is in
    the archive as NAME.error with the reason; the others follow. `parts.json` says how each part went.
    """

    def __init__(self, path: Path, *, name: str, masked: Callable[[str], str], limit_s: float = 60.0) -> None:
        self._name = name
        self._masked = masked
        self._limit_s = limit_s
        self._parts: dict[str, str] = {}
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(f"'{path}' cannot be written: {error.strerror}; choose another --output") from error
        self._file = os.fdopen(file, "wb")
        self._tar = tarfile.open(fileobj=self._file, mode="w:gz")  # noqa: SIM115

    @property
    def failed(self) -> list[str]:
        """The names of the parts that could not be collected."""
        return [name for name, outcome in self._parts.items() if outcome != "ok"]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._add("parts.json", json.dumps(self._parts, indent=2))
        self._tar.close()
        self._file.close()

    def add(self, name: str, collect: Callable[[], Any]) -> None:
        """Add what *collect* returns: a text as it is, any other value as JSON."""
        done: list[str] = []

        def work() -> None:
            try:
                value = collect()
                text = value if isinstance(value, str) else json.dumps(value, indent=2, default=str, sort_keys=True)
                done.extend(("ok", text))
            except Exception as error:  # whatever it is, the archive is to tell it
                done.extend((f"{type(error).__name__}: {error}", ""))

        thread = threading.Thread(target=work, name=f"collecting {name}", daemon=True)
        thread.start()
        thread.join(self._limit_s)
        outcome, text = done or (f"it took longer than {self._limit_s:.0f} s", "")
        self._parts[name] = self._masked(outcome)
        if outcome == "ok":
            self._add(name, text)
        else:
            self._add(f"{name}.error", outcome)

    def _add(self, name: str, text: str) -> None:
        content = self._masked(text if text.endswith("\n") else f"{text}\n").encode("utf-8", "replace")
        member = tarfile.TarInfo(f"{self._name}/{name}")
        member.size, member.mtime, member.mode = len(content), int(time.time()), 0o600
        self._tar.addfile(member, io.BytesIO(content))
