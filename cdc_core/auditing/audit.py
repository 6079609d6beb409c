"""An audit: is at the destination what is at the source?

A source cannot be read as it was at a mark in the past. So its tables are read now, as of a moment M. The destination
is reduced to the newest version of each row at a mark before M, the cut, and to all versions between the cut and a mark
after M. A row of the source must be the same as one of these: a row that did not change meanwhile has only one. A row
that the source does not have must be deleted in one of these, or not yet be there at the cut.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from cdc_core.auditing.comparison import Comparison, Difference, Figures
from cdc_core.auditing.delivered import Delivered, DeliveredFiles, DeliveredMessages
from cdc_core.auditing.source import SourceRows, read_source, require_auditable
from cdc_core.auditing.spill import Spill
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.envelope_shapes import DeleteForm
from cdc_core.errors import ConfigError
from cdc_core.options import counted
from cdc_core.schema import TableName, TableSchema
from cdc_core.timestamp import Timestamp

_MARGIN_NS = 1_000_000_000
"""A mark this much later than the moment of the source covers it: two runs read the clock and the log one after the
other."""
_POLL_S = 0.25


class Audit:
    """Compares what *feed* has delivered with its source. `differences` is called once; `figures` grow meanwhile.

    *directory* is for files of about the size of both sides, compressed. With *at*, the destination is compared as of
    this mark. *wait_s* is how long to wait for a mark after the source was read. Its identity, if *feed* has one,
    chooses the files of one of several changefeeds of the same name. At most *most_shown* differences are yielded.
    """

    def __init__(
        self, feed: ResolvedChangefeed, directory: Path, *, at: Timestamp | None, wait_s: float, most_shown: int
    ) -> None:
        """Raises: ConfigError when the changefeed cannot be audited."""
        require_auditable(feed)
        self._feed = feed
        self._directory = directory
        self._at = at
        self._wait_s = wait_s
        self._most_shown = most_shown
        self.figures = Figures()

    def differences(self) -> Iterator[Difference]:
        """Yield the rows that are not the same; `figures` count all of them.

        Raises: ConfigError when nothing can be said about rows that differ, because the destination has no mark after
        the source was read; HistoryLostError; BadRowError; the errors of source and destination.
        """
        opened: list[Delivered] = []

        def begin(schemas: Sequence[TableSchema]) -> None:
            opened.append(self._open(schemas))
            self._require_mark(opened[0].marks())

        try:
            source = read_source(self._feed, self._directory, check=begin)
            marks, covered = self._covering(opened[0], source)
            figures = self.figures
            figures.cut, figures.upto, figures.tables = self._cut(marks, source), marks[-1], len(source.layouts)
            delivered = self._spilled(opened[0], source)
        finally:
            for each in opened:
                each.close()
        found = self._compared(source, delivered)
        if covered:
            yield from found
            return
        for _ in found:
            pass
        if figures.differences:
            raise ConfigError(
                f"{counted(figures.differences, 'row')} of {figures.rows:,} differ, but the newest resolved mark"
                f" {marks[-1]} at {self._feed.shown_destination} is from before the source was read"
                f" ({source.latest}), so a change that was not delivered yet looks like a loss. Audit"
                f" '{self._feed.name}' while it runs, or run it once more first"
            )

    def _open(self, schemas: Sequence[TableSchema]) -> Delivered:
        if self._feed.sink.registration.history:
            return DeliveredFiles(self._feed)
        feed = replace(self._feed, table_names=tuple(schema.name for schema in schemas))
        return DeliveredMessages(feed, schemas)

    def _require_mark(self, marks: Sequence[Timestamp]) -> None:
        """Raises: ConfigError when the mark to compare at does not exist."""
        place = self._feed.shown_destination
        if not marks:
            raise ConfigError(
                f"there is no resolved mark at {place} yet, so nothing to compare at. Audit '{self._feed.name}' after"
                " its initial scan"
            )
        if self._at is not None and self._at not in marks:
            near = [*[mark for mark in marks if mark < self._at][-1:], *[mark for mark in marks if mark > self._at][:1]]
            raise ConfigError(
                f"{self._at} is not a resolved mark at {place}. Choose {' or '.join(map(str, near))} with --at"
            )

    def _covering(self, delivered: Delivered, source: SourceRows) -> tuple[Sequence[Timestamp], bool]:
        """Return the marks up to the first one after *source*, and True; all marks and False if none comes in time.

        The last read begins when the time is over, however long one read takes: a mark that came in time is in it.
        """
        bound = Timestamp(source.latest.wall + _MARGIN_NS, source.latest.logical)
        deadline = time.monotonic() + self._wait_s
        while True:
            begun = time.monotonic()
            marks = delivered.marks()
            later = next((index for index, mark in enumerate(marks) if mark >= bound), None)
            if later is not None:
                return marks[: later + 1], True
            if begun >= deadline:
                return marks, False
            now = time.monotonic()
            time.sleep(max(0.0, min(max(_POLL_S, now - begun), deadline - now)))

    def _cut(self, marks: Sequence[Timestamp], source: SourceRows) -> Timestamp:
        if self._at is not None:
            return self._at
        before = [mark for mark in marks if mark <= source.resolved]
        if not before:
            raise ConfigError(
                f"the oldest resolved mark {marks[0]} at {self._feed.shown_destination} is from after the source was"
                " read. Run the audit again"
            )
        return before[-1]

    def _spilled(self, delivered: Delivered, source: SourceRows) -> dict[TableName, Spill]:
        spills = {name: Spill(self._directory / f"destination{number}") for number, name in enumerate(source.layouts)}
        schemas = [layout.schema for layout in source.layouts.values()]
        for rows in delivered.rows(schemas, self.figures.upto):
            spill, layout = spills[rows.schema.name], source.layouts[rows.schema.name]
            if len(rows):
                spill.add(layout.of(rows, sequence=spill.rows))
        for spill in spills.values():
            spill.flush()
        return spills

    def _compared(self, source: SourceRows, delivered: dict[TableName, Spill]) -> Iterator[Difference]:
        nulls_delete = self._feed.envelope().delete is DeleteForm.KEY_AND_NULLS
        for name, layout in source.layouts.items():
            comparison = Comparison(
                layout=layout,
                cut=self.figures.cut,
                figures=self.figures,
                most_shown=self._most_shown,
                nulls_delete=nulls_delete,
            )
            yield from comparison.differences(source.rows[name], delivered[name])
