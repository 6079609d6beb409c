"""Which of source and endpoints a changefeed reads: the closest that can decode, later the one that has its slot."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing, nullcontext

from cdc_core import ConfigError, HistoryLostError, RangefeedContext, RetryableRangefeedError
from cdc_rangefeed_postgres.checks import check_server, check_version
from cdc_rangefeed_postgres.client_errors import ClientError, is_refused, text_of
from cdc_rangefeed_postgres.connection import Connection, KeptConnection, Server
from cdc_rangefeed_postgres.endpoints import closer_first
from cdc_rangefeed_postgres.primary import Primary
from cdc_rangefeed_postgres.remedies import NEW_SLOT
from cdc_rangefeed_postgres.slot import Slot

log = logging.getLogger(__name__)

_UNREACHABLE = "cannot connect: "
_REFUSED = "it refuses the connection: "
_SYSTEM = "SELECT system_identifier, current_database()::text FROM pg_control_system()"
_IS_COPY = """
SELECT FROM pg_replication_slots s
WHERE slot_name = %s AND to_jsonb(s) ->> 'synced' = 'true' AND pg_is_in_recovery()
"""


class EndpointChoice:
    """Chooses for one changefeed. Its methods return the name of an endpoint, "" for the source."""

    def __init__(self, context: RangefeedContext, server: Server, slot: Slot) -> None:
        self._context = context
        self._server = server
        self._slot = slot
        self._primary = Primary(server)
        self._told: set[str] = set()

    def first(self, *, all_checked: bool = False) -> str:
        """Return the endpoint with the most tiers in common that can decode, for a changefeed that has no slot yet.

        Without a tier in common it is the source. Raises: ConfigError for an endpoint that is another database, with
        *all_checked* also for one that is not needed; client errors when the primary cannot be reached.
        """
        endpoints, here = self._server.endpoints, self._context.locality
        if not endpoints:
            return ""
        chosen: str | None = None
        with closing(self._primary.connect()) as primary:
            identity = _identity(primary)
        for endpoint in closer_first(endpoints, here):
            locality, place = endpoints[endpoint].locality, self._server.place_of(endpoint)
            if chosen is not None or not locality.common(here):
                if all_checked:
                    self._why_not(endpoint, identity)
                continue
            reason = self._why_not(endpoint, identity)
            if reason is None:
                chosen = endpoint
                log.info("first start: reads from endpoint %s (%s), the closest to %s", place, locality, here)
            else:
                log.info("first start: does not read from endpoint %s (%s): %s", place, locality, reason)
        if chosen is None:
            why = f"no usable endpoint is close to {here}" if here.tiers else "its own locality is unknown"
            log.info("first start: reads from the source, %s, because %s", self._server.place_of(""), why)
        return chosen or ""

    def again(self, known: str) -> str:
        """Return the endpoint that has the slot of the changefeed: *known* as long as it has it, otherwise another one.

        Another one has it when it is a standby that was promoted and to which the slot had been synchronized.
        If none has it, and *known* answers or refuses the connection, it is *known*: using it shows what is wrong.
        Raises: HistoryLostError, or RetryableRangefeedError when *known* cannot be reached and no other one has it.
        """
        endpoints = self._server.endpoints
        if not endpoints and not known:
            return ""
        reasons: dict[str, str] = {}
        for endpoint in dict.fromkeys((known, *closer_first(endpoints, self._context.locality), "")):
            reason = self._why_not_again(endpoint)
            if reason is None:
                self._tell(known, endpoint, reasons.get(known))
                return endpoint
            reasons[endpoint] = reason
        place, slot = self._server.place_of(known), self._slot.name
        if not self._is_listed(known):
            raise HistoryLostError(
                f"replication slot {slot} is on endpoint {place}, which option 'endpoints' no longer lists, and on no"
                f" other endpoint. List the endpoint again. {NEW_SLOT}"
            )
        if reasons[known].startswith(_UNREACHABLE):
            what = "endpoint" if known else "the source"
            raise RetryableRangefeedError(
                f"{what} {place} cannot be reached ({reasons[known].removeprefix(_UNREACHABLE)}), and no other "
                f"endpoint has replication slot {slot}. Start that server again. {NEW_SLOT}",
                outage=True,
            )
        return known

    def everywhere(self, visit: Callable[[Connection, str], None], kept: KeptConnection) -> None:
        """Call *visit* with a connection to the source and to each endpoint, and the endpoint's name.

        *kept* is the connection to the one that is used. One that cannot be reached is left out with a warning. Raises:
        client errors when that is so for all of them.
        """
        failures: list[BaseException] = []
        endpoints = tuple(dict.fromkeys(("", *self._server.endpoints)))
        for endpoint in endpoints:
            try:
                used = endpoint == self._server.used
                connection = kept.open() if used else self._server.connect_to(endpoint, "driver")
            except ClientError as error:
                failures.append(error)
                if len(failures) == len(endpoints):
                    raise
                self._tell_unreachable(endpoint, error)
                continue
            with nullcontext() if used else closing(connection):
                visit(connection, endpoint)

    def _why_not(self, endpoint: str, identity: tuple[object, object]) -> str | None:
        """Return why a changefeed without a slot cannot begin at *endpoint*, None if it can. Raises: ConfigError."""
        slot, place = self._slot, self._server.place_of(endpoint)
        try:
            connection = self._server.connect_to(endpoint, "check")
        except ClientError as error:
            return _UNREACHABLE + self._server.mask(text_of(error))
        with closing(connection):
            system, database = _identity(connection)
            if system != identity[0]:
                raise ConfigError(
                    f"endpoint {place} belongs to a different database system than the source, "
                    f"{self._server.place_of('')}. List only the primary and its standbys in option 'endpoints'"
                )
            if database != identity[1]:
                raise ConfigError(
                    f"endpoint {place} is database {database}, but the source is database {identity[1]}. Name the same "
                    "database in option 'endpoints'"
                )
            try:
                check_version(connection)
                exists = slot.state(connection) is not None
                if slot.given and not exists:
                    return f"it does not have replication slot {slot.name}, which slot_name names"
                scan = self._context.initial_scan
                check_server(connection, slot=not exists, publication=False, scan=scan, failover=slot.failover)
            except ConfigError as error:
                return str(error)
        return None

    def _why_not_again(self, endpoint: str) -> str | None:
        """Return why the changefeed cannot continue at *endpoint*, None if it can."""
        if not self._is_listed(endpoint):
            return "option 'endpoints' no longer lists it"
        try:
            connection = self._server.connect_to(endpoint, "check")
        except ClientError as error:
            return (_REFUSED if is_refused(error) else _UNREACHABLE) + self._server.mask(text_of(error))
        with closing(connection):
            state = self._slot.state(connection)
            if state is None:
                return "it does not have the slot"
            if state.invalid is not None:
                return f"the slot was invalidated there ({state.invalid})"
            if connection.execute(_IS_COPY, [self._slot.name]).rowcount:
                return "it has a copy of the slot, which can be read after a promotion"
        return None

    def _is_listed(self, endpoint: str) -> bool:
        return not endpoint or endpoint in self._server.endpoints

    def _tell_unreachable(self, endpoint: str, error: BaseException) -> None:
        if endpoint not in self._told:
            self._told.add(endpoint)
            log.warning(
                "%s cannot be reached: %s. If replication slot %s is there, it retains the log until you run SELECT "
                "pg_drop_replication_slot('%s'); there",
                self._server.place_of(endpoint),
                self._server.mask(text_of(error)),
                self._slot.own,
                self._slot.own,
            )

    def _tell(self, known: str, endpoint: str, reason: str | None) -> None:
        place, endpoints, here = self._server.place_of, self._server.endpoints, self._context.locality
        if reason is not None:
            log.warning("continues on %s, which has the slot, instead of %s: %s", place(endpoint), place(known), reason)
        closest = max(endpoints, key=lambda name: endpoints[name].locality.common(here), default="")
        far = endpoints[endpoint].locality.common(here) if endpoint in endpoints else 0
        if closest != endpoint and closest in endpoints and endpoints[closest].locality.common(here) > far:
            log.info(
                "reads from %s, which has the slot, although %s is closer. To move, use `cdc rescan FILE NAME --all "
                "--new-slot`",
                place(endpoint),
                place(closest),
            )


def _identity(connection: Connection) -> tuple[object, object]:
    """Return the identifier of the database system, which a standby has from its primary, and the database."""
    row = connection.execute(_SYSTEM).fetchone()
    assert row is not None
    return row[0], row[1]
