"""The changefeed that a command names, in a file, of a published pipeline or in a store; and where its progress is."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from shlex import join
from typing import Any, Literal

import click

from cdc_core.changefeeds import finding
from cdc_core.changefeeds.service import Changefeeds
from cdc_core.cli.completion import complete_name
from cdc_core.cli.session import FILE, CliSession, debug_option
from cdc_core.config.changefeed import Changefeed
from cdc_core.config.definition import changefeed_from
from cdc_core.config.pipelines import pipeline, pipeline_names
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.config.toml_file import changefeed_names, find_name, read_changefeed
from cdc_core.errors import ConfigError
from cdc_core.plugins.host import PluginHost
from cdc_core.store.opening import store_exists
from cdc_core.store.progress import ChangefeedRecord, ProgressStore, store_url
from cdc_core.store.verbs import Verb

STATE_DIRECTORY = ".cdc"
STORE_VARIABLE = "CDC_STORE"
_BOTH = "--store and --state cannot be used together; remove --state"
_LOGIN = re.compile(r"password\s*=|^[^/:]+:([^/]|/[^/]*:).*@", re.IGNORECASE)
_OF_ALL = ("state", "store", "debug")
"""Options that the help of a command has behind its own."""

_state_option = click.option(
    "--state",
    metavar="DIR|URL",
    help="Same as --store, but FILE may also name a pipeline that an installed package publishes.",
)
store_option = click.option(
    "--store",
    metavar="DIR|URL",
    help="Where progress is stored: a directory, or the SQLAlchemy URL of a database. With --store, FILE is a path,"
    " such as shop.toml or ./shop, or the name of a changefeed in that store. Default: .cdc beside FILE or, if FILE is"
    " a name, the environment variable CDC_STORE.",
)
"""The option of a command with FILE, for `Named.of`."""

Environment = Literal["ignored", "of names", "of definitions"]
"""Whether a FILE that is not a path is a name in the store of the variable CDC_STORE; where definitions are read, it is
not if it is that of a pipeline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A changefeed as it was typed: with `store`, `file` is its name there. Without `file`, those of a whole store."""

    session: CliSession
    file: str | None
    name: str | None
    state: str | None = None
    store: str | None = None

    @classmethod
    def of(
        cls,
        session: CliSession,
        file: str | None,
        name: str | None,
        *,
        store: str | None,
        state: str | None = None,
        has_state: bool = True,
        environment: Environment = "of names",
    ) -> Named:
        """Return what FILE, NAME, --state and --store mean. Raises: ConfigError.

        Where FILE is a path, the definition is there, and --store is a --state, unless the command *has_state* not.
        """
        if store is not None and file is not None and _is_path(file):
            if not has_state:
                raise ConfigError(
                    f"'{file}' is a file, and this command does not use its progress, so --store has no effect; remove"
                    " --store"
                )
            if state is not None:
                raise ConfigError(_BOTH)
            state, store = store, None
        elif store is None and state is None:
            store = _environment_store(file, environment)
        if store is not None and state is not None:
            raise ConfigError(_BOTH)
        if store is not None and name is not None:
            raise ConfigError(
                f"--store takes one changefeed name, but '{name}' is a second name; write `--store DIR|URL NAME`"
            )
        return cls(session=session, file=file, name=name, state=state, store=store)

    def each(self) -> list[Named]:
        """Return the changefeeds by name: NAME, or without it all in the file. Raises: ConfigError."""
        if self.name is None and self.store is None and _is_file(self._file):
            return [replace(self, name=name) for name in changefeed_names(Path(self._file))]
        return [self]

    def place(self) -> tuple[str, Path, str]:
        """Return the name, the directory for a run's own files, and the URL of the progress store.

        Nothing else of a file is read: what it refers to may be missing.
        """
        if self.store is not None:
            return self._file, *state_of(Path(), self.store)
        name, beside = _name_in(self._file, self.name)
        return name, *state_of(beside, self.state)

    def located(self) -> tuple[Changefeed, Path, str, Mapping[str, Any]]:
        """Return the changefeed, the directory for a run's own files, the URL of the progress store, and the definition
        that was read from there: none without `store`. Raises: ConfigError.
        """
        if self.store is None:
            changefeed, beside = find_changefeed(self._file, self.name)
            self.session.typed[changefeed.name] = self.words(changefeed.name)
            return changefeed, *state_of(beside, self.state), {}
        state_dir, url = state_of(Path(), self.store)
        self.session.mask_uri(url)
        with closing(ProgressStore(url)) as store:
            definition = require_known(store, self._file, option="--store").definition
        self.session.typed[self._file] = self.words(None)
        origin = f"the progress store {store.shown}"
        changefeed = changefeed_from(definition, self._file, origin=origin, environ=os.environ)
        return changefeed, state_dir, url, definition

    def resolved(self) -> tuple[ResolvedChangefeed, Path, str]:
        """Return the changefeed, and the places of `located`. Raises: ConfigError."""
        changefeed, state_dir, url, _ = self.located()
        return resolved(self.session, changefeed), state_dir, url

    @contextmanager
    def opened(
        self, *, verb: Verb | None = None, by_file: bool = True
    ) -> Iterator[tuple[Changefeeds, ResolvedChangefeed, Path]]:
        """Open the store that knows the changefeed; yield it, the changefeed, and the directory for a run's own files.

        Raises: ConfigError, also when a job's state refuses *verb*; when a job was named by its file, and that counts:
        *by_file*.
        """
        feed, state_dir, url = self.resolved()
        with opened(self.session, url, feed.name, by_name=self.store is not None) as changefeeds:
            changefeeds.find_job(feed.name, by_file=by_file and self.store is None, verb=verb)
            yield changefeeds, feed, state_dir

    @contextmanager
    def read(self) -> Iterator[tuple[Changefeeds, str | None]]:
        """Open the store to look at it; yield it and the changefeed's name, None for all.

        The secrets of its URL are masked from now on. Raises: ConfigError, also when there is no such store.
        """
        name, beside, state = self.name, Path(), self.state
        if self.store is not None:
            name, state = self.file, self.store
        elif self.file is not None:
            path = Path(self.file)
            name, beside = (None, path.parent) if name is None and path.is_file() else _name_in(self.file, name)
        with opened(self.session, state_of(beside, state)[1]) as changefeeds:
            require_store(changefeeds.store, option="--state" if self.store is None else "--store")
            yield changefeeds, name

    def words(self, name: str | None) -> str:
        """Return what is typed in a command for changefeed *name*, None for the only one."""
        given = [("--state", self.state), ("--store", self.store)]
        options = [word for option, value in given if value is not None for word in (option, value)]
        return join([self._file, *([] if name is None else [name]), *options])

    @property
    def _file(self) -> str:
        assert self.file is not None
        return self.file


def changefeed_command(
    *,
    environment: Environment = "of names",
    has_file: bool = True,
    has_name: bool = True,
    has_state: bool = True,
) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a function a command with FILE and NAME, --state, --store and --debug. It is called with a `Named`.

    Without *has_file*, FILE may be left out. Without *has_name*, what follows FILE are the command's own words.
    """

    def decorate(function: Callable[..., Any]) -> click.Command:
        @click.pass_obj
        @wraps(function)
        def chosen(session: CliSession, /, file: str | None, name: str | None = None, **given: Any) -> Any:
            state, store = given.pop("state", None), given.pop("store")
            named = Named.of(
                session, file, name, state=state, store=store, has_state=has_state, environment=environment
            )
            return function(named, **given)

        if has_name:
            chosen = click.argument("name", required=False, shell_complete=complete_name)(chosen)
        metavar = "FILE" if has_file else "[FILE]"
        chosen = click.argument("file", metavar=metavar, type=FILE, required=has_file)(chosen)
        chosen = store_option(debug_option(chosen))
        command = click.command(_state_option(chosen) if has_state else chosen)
        command.params.sort(key=lambda each: each.name in _OF_ALL)
        return command

    return decorate


def _environment_store(file: str | None, environment: Environment) -> str | None:
    of_pipeline = environment == "of definitions" and file in pipeline_names()
    if environment == "ignored" or of_pipeline or (file is not None and _is_file(file)):
        return None
    return os.environ.get(STORE_VARIABLE) or None


def _is_path(file: str) -> bool:
    """Return whether *file* is a path and not a name or a URI, whatever files there are."""
    return "://" not in file and (file.endswith(".toml") or os.sep in file)


def _is_file(file: str) -> bool:
    """Return whether *file* is the path of a file, there or not, and not a name. Raises: ConfigError."""
    path = Path(file)
    if "://" not in file and _LOGIN.search(file) and not path.is_file():  # which must not be shown
        raise ConfigError("FILE must be a path or a name, but it looks like a login; write it in a file, as `source`")
    return path.is_file() or path.suffix == ".toml" or len(path.parts) > 1


def names_in(file: str, name: str | None) -> Sequence[str | None]:
    """Return the names to look for: *name*, or without one all in the file. Raises: ConfigError."""
    return changefeed_names(Path(file)) if name is None and _is_file(file) else [name]


def find_changefeed(file: str, name: str | None) -> tuple[Changefeed, Path]:
    """Return the changefeed asked for and the directory that its state belongs to."""
    return (read_changefeed(Path(file), name), Path(file).parent) if _is_file(file) else (_published(file), Path())


def _name_in(file: str, name: str | None) -> tuple[str, Path]:
    """Return the name of the changefeed asked for and the directory that its state belongs to."""
    return (find_name(Path(file), name), Path(file).parent) if _is_file(file) else (_published(file).name, Path())


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
    """Return the directory for a run's own files and the URL of the progress store. Raises: ConfigError."""
    if state is not None and "://" in state:
        return (beside / STATE_DIRECTORY).absolute(), state
    if state is not None and _LOGIN.search(state):  # which must not become the name of a directory
        raise ConfigError(
            "the progress store must be a directory or a URL; write postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
        )
    directory = (beside / STATE_DIRECTORY if state is None else Path(state)).absolute()
    return directory, store_url(directory)


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


@contextmanager
def opened(session: CliSession, url: str, name: str | None = None, *, by_name: bool = False) -> Iterator[Changefeeds]:
    """Open the progress store at *url* for verbs; its secrets are masked from now on.

    Raises: ConfigError when it does not know changefeed *name*, which was given *by_name* and not by its file.
    """
    session.mask_uri(url)
    with closing(ProgressStore(url)) as store:
        if name is not None:
            require_known(store, name, option="--store" if by_name else "--state")
        yield Changefeeds(store, keep_secrets=session.add_secrets)


def require_known(store: ProgressStore, name: str, *, option: str) -> ChangefeedRecord:
    """Return the changefeed that *store* knows; create nothing. Raises: ConfigError."""
    try:
        require_store(store, option=option)
    except ConfigError as error:
        raise ConfigError(f"changefeed '{name}' is not known: {error}") from error
    return finding.Finder(store).known(name)


def require_store(store: ProgressStore, *, option: str = "--state") -> None:
    """Return when *store* exists and works; create nothing. Raises: ConfigError."""
    if not store_exists(store.url):
        remedy = f"name its progress store with {option}"
        if option == "--store":
            remedy = "correct --store, or create one with `cdc create` or `cdc node`"
        raise ConfigError(f"there is no progress store '{store.shown}'; {remedy}")
    store.open()
