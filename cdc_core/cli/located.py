"""The changefeed that a command names: in a file, of a published pipeline or in a store; and where its progress is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from shlex import join
from typing import Any

from cdc_core.changefeeds import finding
from cdc_core.cli.session import CliSession
from cdc_core.cli.stored import is_file, require_one_name, stored_changefeed
from cdc_core.config.changefeed import Changefeed
from cdc_core.config.pipelines import pipeline, pipeline_names
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.config.toml_file import changefeed_names, find_name, read_changefeed
from cdc_core.errors import ConfigError
from cdc_core.plugins.host import PluginHost
from cdc_core.store.opening import store_exists
from cdc_core.store.progress import ProgressStore, store_url

STATE_DIRECTORY = ".cdc"


def located(
    session: CliSession, file: str, name: str | None, *, state: str | None = None, store: str | None = None
) -> tuple[Changefeed, Path, str, Mapping[str, Any]]:
    """Return the changefeed asked for, the directory for a run's own files, the URL of the progress store, and the
    definition that was read from there: none without *store*. Raises: ConfigError.
    """
    if store is None:
        changefeed, beside = find_changefeed(file, name)
        session.typed[changefeed.name] = words_of(file, changefeed.name, state=state)
        return changefeed, *state_of(beside, state), {}
    require_one_name(name, state)
    state_dir, url = state_of(Path(), store)
    changefeed, definition = stored_changefeed(session, url, file)
    session.typed[changefeed.name] = words_of(file, None, store=store)
    return changefeed, state_dir, url, definition


def names_in(file: str, name: str | None, store: str | None) -> Sequence[str | None]:
    """Return the names to look for: *name*, or without one all in the file. Raises: ConfigError."""
    return changefeed_names(Path(file)) if name is None and store is None and is_file(file) else [name]


def find_changefeed(file: str, name: str | None) -> tuple[Changefeed, Path]:
    """Return the changefeed asked for and the directory that its state belongs to."""
    if is_file(file):
        return read_changefeed(Path(file), name), Path(file).parent
    return _published(file), Path()


def name_in(file: str, name: str | None) -> tuple[str, Path]:
    """Return the name of the changefeed asked for and the directory that its state belongs to.

    Nothing else of the file is read: what it refers to may be missing.
    """
    if is_file(file):
        return find_name(Path(file), name), Path(file).parent
    return _published(file).name, Path()


def _published(file: str) -> Changefeed:
    published = pipeline_names()
    if file not in published:
        others = f" (published: {', '.join(published)})" if published else ""
        raise ConfigError(
            f"there is no file '{file}', and no installed package publishes a pipeline '{file}'{others}; "
            "give the path of a file, or install the package that publishes it"
        )
    return pipeline(file)


def state_of(beside: Path, state: str | None) -> tuple[Path, str]:
    """Return the directory for a run's own files and the URL of the progress store."""
    if state is not None and "://" in state:
        return (beside / STATE_DIRECTORY).absolute(), state
    directory = (beside / STATE_DIRECTORY if state is None else Path(state)).absolute()
    return directory, store_url(directory)


def words_of(file: str, name: str | None, **options: str | None) -> str:
    """Return what is typed in a command for the changefeed."""
    given = [word for option, value in options.items() if value is not None for word in (f"--{option}", value)]
    return join([file, *([] if name is None else [name]), *given])


def resolved(session: CliSession, changefeed: Changefeed) -> ResolvedChangefeed:
    """Return *changefeed* resolved; from now on *session* masks its secrets. Raises: ConfigError."""
    return finding.resolved(changefeed, PluginHost.load(), session.add_secrets)


@contextmanager
def progress_at(url: str) -> Iterator[ProgressStore | None]:
    """Open the progress store at *url*, if there is one. Raises: ConfigError."""
    if not store_exists(url):
        yield None
        return
    with closing(ProgressStore(url)) as store:
        store.open()
        yield store
