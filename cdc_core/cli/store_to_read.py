"""The store that `cdc show` and `cdc events` read: by file, by directory, by name or by the environment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cdc_core.changefeeds.service import Changefeeds
from cdc_core.cli.job_commands import opened
from cdc_core.cli.located import name_in, state_of
from cdc_core.cli.session import CliSession
from cdc_core.cli.stored import require_one_name, require_store, store_or_environment


@contextmanager
def store_to_read(
    session: CliSession, file: str | None, name: str | None, state: str | None, store: str | None
) -> Iterator[tuple[Changefeeds, str | None]]:
    """Open the store that FILE, NAME, --state and --store mean; yield it and the changefeed's name, None for all.

    The secrets of its URL are masked from now on. Raises: ConfigError, also when there is no such store.
    """
    beside = Path()
    by_name = store_or_environment(file, state, store)
    if by_name is not None:
        require_one_name(name, state)
        name, state = file, by_name
    elif file is not None:
        path = Path(file)
        name, beside = (None, path.parent) if name is None and path.is_file() else name_in(file, name)
    with opened(session, state_of(beside, state)[1]) as changefeeds:
        require_store(changefeeds.store, option="--state" if by_name is None else "--store")
        yield changefeeds, name
