"""The driver's part: checks the journal, and says where a changefeed starts."""

from collections.abc import Callable, Sequence

from cdc_core import (
    START_OVER,
    ConfigError,
    HistoryLostError,
    Rangefeed,
    RangefeedContext,
    ScanProgress,
    TableSchema,
    Token,
)

from cdc_rangefeed_template.journal import Journal, schema_of, translated


class TemplateRangefeed(Rangefeed):
    """A token is {"offset": bytes of the journal, "clock": ns, "scan": [table, id] or None}.

    "scan" is the last row that the initial scan has read, and None after the scan. During the scan "offset" and "clock"
    do not change.
    """

    def __init__(self, context: RangefeedContext) -> None:
        super().__init__(context)
        self._journal = Journal(context.uri)

    def check(self) -> None:
        try:
            tables = self._journal.tables()
        except OSError as error:
            raise ConfigError(f"journal '{self._journal.path}' cannot be read: {error.strerror}. Create it") from error
        for table in self.context.tables:
            if table not in tables:
                raise ConfigError(f"journal '{self._journal.path}' has no table '{table}'. Create it")

    def schemas(self) -> Sequence[TableSchema]:
        return [schema_of(table) for table in self.context.tables]

    def start(self, saved: Token | None, save: Callable[[Token], None]) -> Token:
        with translated():
            size, now = self._journal.tip()
        if saved is None:
            return {"offset": size, "clock": now, "scan": ["", 0] if self.context.initial_scan else None}
        if saved["offset"] > size:
            raise HistoryLostError(f"journal '{self._journal.path}' was cut off: changes are lost. {START_OVER}")
        return saved

    def scan_progress(self, token: Token) -> ScanProgress | None:
        if token["scan"] is None:
            return None
        done = sum(table < token["scan"][0] for table in self.context.tables)
        return ScanProgress(done=done, total=len(self.context.tables), unit="tables")
