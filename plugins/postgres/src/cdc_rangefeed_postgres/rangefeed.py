"""The driver's part of PostgreSQL: checks and starts a changefeed, and drops what it created."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

from cdc_core import (
    ConfigError,
    HistoryLostError,
    Move,
    Rangefeed,
    RangefeedContext,
    RetryableRangefeedError,
    ScanProgress,
    SourceObjects,
    TableSchema,
    Token,
)
from cdc_rangefeed_postgres.catalog import Catalog
from cdc_rangefeed_postgres.checks import check_publisher, check_server, check_tables, check_version
from cdc_rangefeed_postgres.client_errors import ClientError, text_of
from cdc_rangefeed_postgres.connection import Connection, KeptConnection, Server
from cdc_rangefeed_postgres.cursor import check_cursor
from cdc_rangefeed_postgres.endpoint_choice import EndpointChoice
from cdc_rangefeed_postgres.filtered_tables import RowFilters, check_row_filter
from cdc_rangefeed_postgres.inheritance import warn_of_children
from cdc_rangefeed_postgres.inventory import SLOT, created_in, require_no_namesake
from cdc_rangefeed_postgres.large_values import log_large_values
from cdc_rangefeed_postgres.members import followed_before, left_behind, load_members, present, unmatched
from cdc_rangefeed_postgres.moving import moved
from cdc_rangefeed_postgres.primary import Primary
from cdc_rangefeed_postgres.privileges import check_privileges
from cdc_rangefeed_postgres.publication_changes import require_unaltered
from cdc_rangefeed_postgres.row_filter import RowFilter, explained
from cdc_rangefeed_postgres.selection import Selection
from cdc_rangefeed_postgres.slot import Slot
from cdc_rangefeed_postgres.slot_use import log_idle_limit
from cdc_rangefeed_postgres.starting import Start, require_given
from cdc_rangefeed_postgres.temporary import TemporaryObjects
from cdc_rangefeed_postgres.timeline import followed
from cdc_rangefeed_postgres.token import PostgresToken, TableState, endpoint_of, is_intent
from cdc_rangefeed_postgres.versions import first_states, schemas_of

log = logging.getLogger(__name__)


class PostgresRangefeed(Rangefeed):
    """See `cdc_core.Rangefeed`. Opens one connection, and another one for `check`."""

    def __init__(self, context: RangefeedContext) -> None:
        super().__init__(context)
        self._server = Server(context)
        self._slot = Slot.of(context)
        self._connection = KeptConnection(self._server, "driver")
        self._primary = Primary(self._server)
        self._choice = EndpointChoice(context, self._server, self._slot)
        self._token: PostgresToken | None = None

    def check(self) -> None:
        selection = Selection.parse(self.context.tables)
        check_cursor(self.context, self._slot)
        slot = self._slot
        self._choose_to_check()
        connection = self._server.connect_checked()
        try:
            check_version(connection)
            database: Any = connection.execute("SELECT current_database()::text").fetchone()
            selection.require_database(database[0])
            check_row_filter(connection, self.context, slot.publication, endpoint=bool(self._server.used))
            if self.context.saved is None:
                require_no_namesake(connection, self.context, slot)
            state = slot.state(connection)
            # A first start, also one with a new slot, creates what it needs, and drops before what there is.
            token = self.context.saved
            saved = None if token is None or is_intent(token) else self._followed(connection, token)
            first = saved is None
            publication = not slot.publication.given and first
            if publication and self._server.used:
                with closing(self._primary.connect()) as primary:
                    check_publisher(primary)
            check_server(
                connection,
                slot=not slot.given and state is None,
                publication=publication and not self._server.used,
                scan=self.context.initial_scan and first,
                failover=slot.failover,
            )
            if state is not None:
                slot.require_failover(state)
            if not slot.temporary:
                log_idle_limit(connection)
            catalog = self._load(connection, followed_before(self.context))
            for pattern in unmatched(selection, catalog):
                log.info("'%s' in 'tables' matches no table yet", pattern.text)
            tables = [table for table in catalog.tables.values() if not table.gone]
            if publication:
                tables = [replace(table, published=False) for table in tables]
            check_tables(connection, tables, diff=self.context.diff)
            check_privileges(connection, tables, slot.publication, first=first)
            slot.publication.check_owner(
                connection, altered=self.context.options.row_filter or not all(table.published for table in tables)
            )
            require_given(connection, slot, self.context, tables)
            if saved is not None:
                require_unaltered(slot.publication, catalog, saved)
            if first:
                warn_of_children(connection, tables)
                log_large_values(connection, tables, unchanged_toast=self.context.options.unchanged_toast)
        except ClientError as error:
            raise ConfigError(
                self._server.mask(f"the check of PostgreSQL at {self._server.place} failed: {text_of(error)}"),
                repairable=True,
            ) from None
        finally:
            connection.close()

    def schemas(self) -> Sequence[TableSchema]:
        with self._server.translated("reading the schemas of the tables"):
            connection = self._connection.open()
            if self._token is not None:
                known = self._token.tables
                catalog = present(connection, self._slot.publication, known)
            else:
                known = followed_before(self.context)
                catalog = self._load(connection, known)
            tables = {name: table for name, table in catalog.tables.items() if not table.gone}
            catalog = replace(catalog, tables=tables)
            states = {name: known[name] for name in tables if name in known}
            return schemas_of(connection, catalog, {**first_states(connection, catalog), **states})

    def explain(self, schema: TableSchema) -> Sequence[tuple[str, Sequence[str]]]:
        with self._server.translated("explaining row filters"):
            connection = self._connection.open()
            known = followed_before(self.context) if self._token is None else self._token.tables
            catalog = self._load(connection, known)
            name = schema.name.qualified
            one = replace(catalog, tables={name: catalog.tables[name]})
            found = RowFilters(self.context, self._slot.publication).possible(connection, one).get(name, RowFilter())
        return explained(found, on=self.context.options.row_filter)

    def start(self, saved: Token | None, save: Callable[[Token], None]) -> Token:
        with self._server.translated("starting"):
            self._server.use(self._chosen(saved))
            connection = self._connection.open()
            if saved is None:
                require_no_namesake(connection, self.context, self._slot)
            token = None if saved is None or is_intent(saved) else self._followed(connection, saved)
            states: Mapping[str, TableState] = {}
            if token is not None:
                if self.context.temporary:
                    TemporaryObjects.of(self._slot)
                over = left_behind(connection, self._slot.publication, token)
                states = {name: state for name, state in token.tables.items() if name not in over}
            start = Start(
                connection=connection,
                slot=self._slot,
                context=self.context,
                primary=self._primary,
                load=partial(self._load, connection, states),
                save=save,
            )
            if token is None:
                self._token = start.first(drop=partial(self._drop, everywhere=saved is not None), hold=self._hold)
            else:
                self._token = start.resumed(token).following(token)
            self._token = replace(self._token, endpoint=self._server.used)
            return self._token.to_json()

    def move(self, saved: Token, to: str | Token) -> Move:
        if is_intent(saved):
            raise ConfigError("nothing has been read yet; to begin at a position, set the option cursor")
        with self._server.translated("looking for a position in the log"):
            self._server.use(self._chosen(saved))
            connection = self._connection.open()
            try:
                token = self._followed(connection, saved)
            except HistoryLostError as error:
                raise ConfigError(str(error)) from error
            return moved(connection, self._slot, token, to)

    def scan_progress(self, token: Token) -> ScanProgress | None:
        scan = token.get("scan")
        return None if scan is None else ScanProgress(done=scan["done"], total=scan["total"], unit="blocks")

    def drop(self, saved: Token | None) -> None:  # noqa: ARG002
        with self._server.translated("dropping the replication slot"):
            self._somewhere()
            self._drop()

    def created(self) -> Sequence[SourceObjects]:
        found: list[SourceObjects] = []

        def look(connection: Connection, endpoint: str) -> None:
            for entry in created_in(connection):
                if not endpoint:
                    found.append(entry)
                elif SLOT in entry.kinds:  # publications are those of the source
                    found.append(replace(entry, name=f"{entry.name} at {endpoint}", kinds=(SLOT,)))

        with self._server.translated("listing replication slots and publications"):
            self._somewhere()
            self._choice.everywhere(look, self._connection)
        return found

    def close(self) -> None:
        if self.context.temporary:
            self._let_go()
        self._connection.close()

    def _hold(self) -> TemporaryObjects:
        return TemporaryObjects(self._server, self._slot, self._primary)

    def _let_go(self) -> None:
        held = TemporaryObjects.find(self._slot)
        if held is not None:
            held.close()

    def _chosen(self, saved: Token | None, *, all_checked: bool = False) -> str:
        """Return where the slot is after the token *saved*, or where it will be created."""
        if saved is None or is_intent(saved):
            return self._choice.first(all_checked=all_checked)
        return self._choice.again(endpoint_of(saved))

    def _choose_to_check(self) -> None:
        server = self._server
        try:
            server.use(self._chosen(self.context.saved, all_checked=True))
        except (RetryableRangefeedError, HistoryLostError) as error:
            raise ConfigError(str(error), repairable=isinstance(error, RetryableRangefeedError)) from None
        except ClientError as error:
            raise ConfigError(
                server.mask(f"cannot connect to PostgreSQL at {server.place}: {text_of(error)}. Fix the source URI"),
                repairable=True,
            ) from None

    def _drop(self, *, everywhere: bool = True) -> None:
        """Drop the slot, *everywhere* or on the server that is used, and the publication."""
        if self.context.temporary:
            self._let_go()
            return
        if everywhere:
            self._choice.everywhere(lambda connection, _: self._slot.drop(connection), self._connection)
        else:
            self._slot.drop(self._connection.open())
        if not self._server.endpoints:
            self._slot.publication.drop(self._connection.open())
            return
        with closing(self._primary.connect()) as primary:
            self._slot.publication.drop(primary)

    def _followed(self, connection: Connection, saved: Token) -> PostgresToken:
        token = PostgresToken.from_json(saved)
        if not self.context.temporary:  # without the slot, it does not matter what else is missing
            self._slot.require_kept(connection, needed=token.lsn)
        return followed(self._server, connection, token, remedy=self._slot.remedy)

    def _somewhere(self) -> None:
        """Use the source, unless something else was chosen."""
        if not self._server.uses:
            self._server.use("")

    def _load(self, connection: Connection, states: Mapping[str, TableState]) -> Catalog:
        selection = Selection.parse(self.context.tables)
        return load_members(connection, self._slot.publication, selection, states, diff=self.context.diff)
