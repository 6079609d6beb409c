"""What becomes of bad rows: they end the changefeed, or they become dead letters."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.delivery.dead_letters import BLOCKED, BadRow, BlockedKeys, dead_letter_batch
from cdc_core.delivery.delivery import BadRows, Delivery
from cdc_core.errors import BadRowError, TerminalError
from cdc_core.masking import mask
from cdc_core.options import counted
from cdc_core.rows import RowBatch
from cdc_core.sink import Sink, SliceInfo
from cdc_core.store.values import DeadLetter
from cdc_core.telemetry.stages import ENCODE, QUERY, SINK, SOURCE

_BATCH_BYTES = 4 * 1024 * 1024
"""Dead letters are passed to their sink whenever their rows take this much memory, and at the end."""


_CURES = {SOURCE: "raise max_row_bytes", QUERY: "change the row, or run a changefeed with another query"}


class SliceBadRows(BadRows):
    """The bad rows of one slice. They are durable when `flush` has returned."""

    @abstractmethod
    def begin(self, slice_: SliceInfo, blocked: Sequence[Sequence[str]]) -> None:
        """Note that the rows which follow belong to *slice_*, and that rows of the keys *blocked* must wait."""

    @abstractmethod
    def flush(self) -> tuple[DeadLetter, ...]:
        """Return the rows that became dead letters, durable."""


class StopAtBadRow(SliceBadRows):
    """on_error = 'fail' or 'pause': the first bad row ends the slice. *owners* are who refuses rows, by stage."""

    def __init__(self, owners: Mapping[str, str]) -> None:
        self._owners = owners

    def begin(self, slice_: SliceInfo, blocked: Sequence[Sequence[str]]) -> None:
        pass

    def add(self, bad: BadRow) -> None:
        cure = _CURES.get(bad.stage, "change the row, or fix the cause of the refusal")
        raise BadRowError(
            f"{bad} was refused by {self._owners[bad.stage]} (stage {bad.stage}): {bad.shown_reason}; {cure}, or set"
            " on_error='dead_letter' to store such rows as dead letters and deliver the others"
        )

    def blocked(self, rows: RowBatch) -> Sequence[int]:  # noqa: ARG002
        return ()

    def flush(self) -> tuple[DeadLetter, ...]:
        return ()


class DeadLetterRows(SliceBadRows):
    """on_error = 'dead_letter': bad rows go to the sink that *open_sink* returns, which is called for the first one.

    More than dead_letter_max of them in one slice end the slice, so that a sink that refuses everything is not given
    everything a row at a time.
    """

    def __init__(self, feed: ResolvedChangefeed, *, open_sink: Callable[[], Sink]) -> None:
        assert feed.dead_letter is not None
        self._feed = feed
        self._dead_letter = feed.dead_letter
        self._secrets = feed.secrets()
        self._block_key = feed.options.dead_letter_order == "block_key"
        self._open_sink = open_sink
        self._slice: SliceInfo | None = None
        self._blocked = BlockedKeys()
        self._delivery: Delivery | None = None
        self._collected: list[BadRow] = []
        self._bytes = 0
        self._letters: list[DeadLetter] = []

    def begin(self, slice_: SliceInfo, blocked: Sequence[Sequence[str]]) -> None:
        self._slice = slice_
        self._blocked = BlockedKeys(blocked)

    def add(self, bad: BadRow) -> None:
        # A slice of a batch would keep the whole batch in memory.
        row = RowBatch(schema=bad.row.schema, batch=bad.row.batch.take(pa.array([0])))
        bad = BadRow(row=row, stage=bad.stage, reason=mask(bad.reason, self._secrets))
        letter = DeadLetter(table=bad.table, key=bad.key, updated=bad.updated, stage=bad.stage, error=bad.shown_reason)
        self._letters.append(letter)
        limit = self._feed.options.dead_letter_max
        if len(self._letters) > limit:
            raise too_many(self._feed.name, f"more than {counted(limit, 'row')} of one slice were refused", letter)
        if self._block_key and bad.stage != BLOCKED:
            self._blocked.add(letter.table, letter.key)
        self._collected.append(bad)
        self._bytes += row.nbytes
        if self._bytes >= _BATCH_BYTES:
            self._hand_over()

    def blocked(self, rows: RowBatch) -> Sequence[int]:
        return self._blocked.find(rows)

    def flush(self) -> tuple[DeadLetter, ...]:
        if self._letters:
            self._hand_over().flush()
        return tuple(self._letters)

    def _hand_over(self) -> Delivery:
        if self._delivery is None:
            assert self._slice is not None
            owners, sink = _owners(self._dead_letter), self._dead_letter.sink
            self._delivery = Delivery(
                self._open_sink(),
                _Undeliverable(owners),
                owner=sink.owner,
                refuses_rows=sink.registration.refuses_rows,
            )
            self._delivery.begin(self._slice)
        if self._collected:
            self._delivery.emit(dead_letter_batch(self._feed.name, self._collected))
        self._collected, self._bytes = [], 0
        return self._delivery


class _Undeliverable(StopAtBadRow):
    """Bad rows among the dead letters themselves: there is nowhere else to write them."""

    def add(self, bad: BadRow) -> None:
        letter = bad.row.column("after")[0]
        raise BadRowError(
            f"the row of table {letter['table']} with key {letter['key']}, updated {letter['updated']}, was refused"
            f" ({letter['error']}), and {self._owners[bad.stage]} of the dead letters refuses it too:"
            f" {bad.shown_reason}; choose another dead_letter"
        )


def bad_rows_of(feed: ResolvedChangefeed, *, open_sink: Callable[[], Sink]) -> SliceBadRows:
    """Return what *feed* does with bad rows of a slice; *open_sink* opens the sink of its dead letters."""
    return StopAtBadRow(_owners(feed)) if feed.dead_letter is None else DeadLetterRows(feed, open_sink=open_sink)


def too_many(changefeed: str, what: str, last: DeadLetter) -> TerminalError:
    """Return the error that ends *changefeed* when more rows are bad than dead_letter_max allows."""
    return TerminalError(
        f"changefeed '{changefeed}': {what}; the last one is in table {last.table} with key {last.key}, updated"
        f" {last.updated}, stage {last.stage}: {last.error}; fix the cause of the refusals, or raise dead_letter_max"
    )


def _owners(feed: ResolvedChangefeed) -> Mapping[str, str]:
    return {SOURCE: feed.rangefeed.owner, QUERY: "the query", ENCODE: feed.encoder.owner, SINK: feed.sink.owner}
