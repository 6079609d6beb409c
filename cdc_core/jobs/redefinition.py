"""What must hold before a job gets another definition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cdc_core.config.alteration import FIXED
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.checks import as_stored
from cdc_core.errors import ConfigError
from cdc_core.jobs.creation import check_job
from cdc_core.store.progress import ChangefeedRecord, ProgressStore

__all__ = ["require_redefinable", "require_same_parts"]

_PARTS = ("source", "query", "functions", "table")


def require_redefinable(
    store: ProgressStore, known: ChangefeedRecord, after: ResolvedChangefeed, *, sink: str, tables: Iterable[str]
) -> None:
    """Return when the job *known*, which delivers *tables* to the type *sink*, can be *after* from now on.

    Raises: ConfigError, RetryableError. Changes nothing.
    """
    name, begun = known.name, store.progress.load(known.name) is not None
    if after.sink.name != sink:
        raise ConfigError(
            f"job '{name}' delivers to sink '{sink}', not '{after.sink.name}', and the type of a sink"
            " cannot be altered; create another job"
        )
    changes_tables = set(after.tables) != set(tables)
    if begun and changes_tables and not after.rangefeed.registration.changes_tables:
        raise ConfigError(f"{after.rangefeed.owner} cannot change the tables of a changefeed that has begun")
    check_job(as_stored(after, store))


def require_same_parts(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Return when two definitions, as `Changefeed.written`, do not differ in what is fixed for the life of a job.

    Raises: ConfigError.
    """
    mine, other = ({key.lower(): text for key, text in each.get("options", {}).items()} for each in (before, after))
    changed = [f"'{part}'" for part in _PARTS if (before.get(part) or None) != (after.get(part) or None)]
    changed += [f"option '{option}'" for option in FIXED if _text(mine.get(option)) != _text(other.get(option))]
    if changed:
        raise ConfigError(
            f"job '{name}': {', '.join(changed)} cannot be altered, as rows were delivered by it; create another job"
        )


def _text(value: Any) -> str | None:
    return None if value is None else str(value).lower()
