"""The rows that the source holds, read by a run that leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from cdc_core.auditing.layout import Layout
from cdc_core.auditing.refusals import require_auditable_tables
from cdc_core.auditing.spill import Spill
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.delivery.dead_letters import BadRow
from cdc_core.engine.temporary_run import TemporaryRun, temporary
from cdc_core.errors import BadRowError, ConfigError
from cdc_core.options import Duration
from cdc_core.schema import TableName, TableSchema
from cdc_core.timestamp import Timestamp
from cdc_core.watching.evaluation import evaluation_of

__all__ = ["SourceRows", "read_source"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRows:
    """The rows of each table at one moment, which is not before `resolved` and not after `latest`."""

    layouts: Mapping[TableName, Layout]
    rows: Mapping[TableName, Spill]
    resolved: Timestamp
    latest: Timestamp


def read_source(
    feed: ResolvedChangefeed, directory: Path, *, check: Callable[[Sequence[TableSchema]], object]
) -> SourceRows:
    """Read what the tables of *feed* hold, in the columns that it delivers, into files below *directory*.

    It scans the tables, and follows the log until the scan and the log together are the state of one moment. *check* is
    called with the tables before anything is created at the source.

    Raises: ConfigError, also when a table is altered meanwhile; BadRowError; the source's errors.
    """
    # `before` and `mvcc` are not compared. Marks say how far the rows are complete.
    options = replace(
        feed.options,
        initial_scan="yes",
        cursor=None,
        end_time=None,
        resolved=Duration(0.0),
        diff=False,
        mvcc_timestamp=False,
    )
    feed = temporary(replace(feed, options=options, min_checkpoint_frequency_s=0.0, dead_letter=None))
    layouts: dict[TableName, Layout] = {}
    rows: dict[TableName, Spill] = {}
    resolved = latest = Timestamp()

    def begin(schemas: Sequence[TableSchema]) -> None:
        require_auditable_tables(feed, schemas)
        check(schemas)
        for number, schema in enumerate(schemas):
            layouts[schema.name] = Layout(schema=schema, backfills=feed.options.schema_change_policy != "nobackfill")
            rows[schema.name] = Spill(directory / f"source{number}")

    with evaluation_of(feed) as evaluation:
        run = TemporaryRun(feed, evaluation=evaluation, check=begin, scans_only=True)
        with closing(run.items()) as items:
            for item in items:
                if isinstance(item, Timestamp):
                    resolved = item
                    continue
                if isinstance(item, BadRow):
                    raise BadRowError(f"{item} cannot be compared: {item.shown_reason}")
                name = item.schema.name
                if name not in layouts or not item.schema.has_shape_of(layouts[name].schema):
                    raise ConfigError(f"table {name} was created or altered during the audit. Run it again")
                latest = max(latest, item.latest())
                rows[name].add(layouts[name].of(item, sequence=rows[name].rows))
                del item
    for spill in rows.values():
        spill.flush()
    return SourceRows(layouts=layouts, rows=rows, resolved=resolved, latest=max(latest, resolved))
