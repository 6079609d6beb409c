"""The state of the simulated database: a pure function of its events."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cdc_conformance.simulated.errors import StatementError
from cdc_conformance.simulated.state import LEASE_NS, Node, Range, Status, Writes, table_name
from cdc_conformance.simulated.table import Shape, Table, key_of
from cdc_core import Frontier, Locality, Span, Timestamp

__all__ = ["Cluster", "table_name"]

_STATEMENT_NS = 1_000_000


class Cluster(Writes):
    """Nodes, ranges, tables and transactions after all events so far.

    Only `apply` changes it. If `apply` raises, the instance is in an undefined state: build a new one from the events.
    Timestamps come from the nodes' clocks, which are part of the events, so every process that has seen the same events
    has the same state.
    """

    def apply(self, event: Mapping[str, Any]) -> Any:
        """Apply *event* and return its outcome. Raises: StatementError when the event is refused."""
        fields = dict(event)
        op = fields.pop("op")
        if op != "tick":
            self._statements += 1
            self.now += _STATEMENT_NS + (self._statements * 2_654_435_761 + self._seed * 97_531) % _STATEMENT_NS
        outcome = getattr(self, f"_on_{op}")(**fields)
        self.events += 1
        return outcome

    def _on_cluster(self, seed: int, start: int, nodes: Sequence[tuple[str, int]], lag_ns: int, replicas: int) -> None:
        self._seed, self.now, self._lag_ns, self._replicas = seed, start, lag_ns, replicas
        for number, (locality, skew_ns) in enumerate(nodes, start=1):
            self.nodes[number] = Node(id=number, locality=Locality.parse(locality), skew_ns=skew_ns)
        self._happened(Timestamp(start))

    def _on_create(self, table: str, columns: Sequence[tuple[str, str]]) -> None:
        name = table_name(table)
        if name.full in self.tables:
            raise StatementError(f"table {name} already exists")
        created = self._happened(max(self.clock(), self._read.next()))
        self.tables[name.full] = Table(name, [(column, type_) for column, type_ in columns], created)
        chosen = self._random().sample(sorted(self.nodes), min(self._replicas, len(self.nodes)))
        leaseholder = next((node for node in chosen if self.nodes[node].alive), chosen[0])
        span = Span(name.full)
        range_ = Range(
            span=span, replicas=tuple(chosen), leaseholder=leaseholder, closed=created, lag_ns=self._some_lag_ns()
        )
        range_.tell_followers(chosen)
        self.ranges[name.full] = [range_]
        self._resolved[name.full] = Frontier([span], created)

    def _on_drop(self, table: str) -> None:
        name = self.table(table).name.full
        for transaction in list(self.transactions.values()):
            for row in [row for row in transaction.intents if row[0] == name]:
                del transaction.intents[row]
            self._forget_finished(transaction)
        del self.tables[name], self.ranges[name], self._resolved[name]

    def _on_tick(self, ns: int) -> None:
        """Time passes: leases expire, transactions of dead coordinators are cleaned up, timestamps are closed."""
        self.now += ns
        self._clean_up()
        for ranges in self.ranges.values():
            for range_ in ranges:
                holder = self.nodes[range_.leaseholder]
                if not holder.alive:
                    self._move_expired_lease(range_)
                    holder = self.nodes[range_.leaseholder]
                if holder.alive and self.has_quorum(range_):
                    closing = Timestamp(max(0, holder.clock(self.now).wall - range_.lag_ns))
                    range_.closed = max(range_.closed, closing)
                    range_.tell_followers([node for node in range_.replicas if self.nodes[node].alive])
        self._resolve()

    def _on_split(self, table: str, at: int) -> None:
        name, key = self.table(table).name.full, key_of(at)
        range_ = self.range_of(name, key)
        if range_.span.start == key:
            raise StatementError(f"table {table} already has a range that begins at {at}")
        left = Span(name, range_.span.start, key)
        right = Range(
            span=Span(name, key, range_.span.end),
            replicas=range_.replicas,
            leaseholder=range_.leaseholder,
            closed=range_.closed,
            lag_ns=self._some_lag_ns(),
            follower_lag_ns=dict(range_.follower_lag_ns),
            follower_closed=dict(range_.follower_closed),
        )
        range_.span = left
        self.ranges[name].insert(self.ranges[name].index(range_) + 1, right)

    def _on_merge(self, table: str, at: int) -> None:
        name, key = self.table(table).name.full, key_of(at)
        right = self.range_of(name, key)
        if right.span.start != key:
            raise StatementError(f"table {table} has no range that begins at {at}")
        ranges = self.ranges[name]
        left = ranges[ranges.index(right) - 1]
        left.span = Span(name, left.span.start, right.span.end)
        for node in left.replicas:
            left.follower_closed[node] = min(left.closed_on(node), right.closed_on(node))
        left.closed = max(left.closed, right.closed)
        ranges.remove(right)

    def _on_lease(self, table: str, at: int, node: int) -> None:
        range_ = self.range_of(self.table(table).name.full, key_of(at))
        self._await_lease(range_)
        if node not in range_.replicas or not self._node(node).alive:
            raise StatementError(f"node {node} has no live replica of the range of table {table} that holds {at}")
        self._move_lease(range_, node)

    def _on_replicas(self, table: str, at: int, nodes: Sequence[int]) -> None:
        range_ = self.range_of(self.table(table).name.full, key_of(at))
        self._await_lease(range_)
        down = [node for node in nodes if not self._node(node).alive and node not in range_.replicas]
        if down:
            raise StatementError(f"node {down[0]} is down and cannot get a replica")
        living = [node for node in nodes if self.nodes[node].alive]
        if len(set(nodes)) < len(nodes) or len(living) * 2 <= len(nodes):
            raise StatementError(
                f"{list(nodes)} cannot have replicas: name each node once; most of them must be running"
            )
        if range_.leaseholder not in nodes:
            self._move_lease(range_, living[0])
        range_.replicas = tuple(nodes)
        for known in (range_.follower_closed, range_.follower_lag_ns):
            for node in known.keys() - set(nodes):
                del known[node]

    def _on_lag(self, table: str, at: int, ns: int, node: int | None = None) -> None:
        range_ = self.range_of(self.table(table).name.full, key_of(at))
        if node is None:
            range_.lag_ns = ns
        elif node in range_.replicas:
            range_.follower_lag_ns[node] = ns
        else:
            raise StatementError(f"node {node} has no replica of the range of table {table} that holds {at}")

    def _on_skew(self, node: int, ns: int) -> None:
        self._node(node).skew_ns = ns

    def _on_crash(self, node: int) -> None:
        if not self._node(node).alive:
            raise StatementError(f"node {node} is already down")
        self.nodes[node].down_since = self.now

    def _on_restart(self, node: int) -> None:
        if self._node(node).alive:
            raise StatementError(f"node {node} is running")
        # The node lost the state of the transactions that it coordinated.
        for transaction in [one for one in self.transactions.values() if one.gateway == node]:
            self._end_abandoned(transaction)
        self.nodes[node].down_since = None

    def _on_add_column(self, table: str, column: str, type: str, default: Any = None) -> Timestamp:  # noqa: A002
        return self._reshape(table, lambda shape, at: shape.with_column(column, type, default=default, since=at))

    def _on_drop_column(self, table: str, column: str) -> Timestamp:
        return self._reshape(table, lambda shape, at: shape.without_column(column, since=at))

    def _on_rename_column(self, table: str, column: str, to: str) -> Timestamp:
        return self._reshape(table, lambda shape, at: shape.with_name(column, to, since=at))

    def _on_change_type(self, table: str, column: str, type: str) -> Timestamp:  # noqa: A002
        return self._reshape(table, lambda shape, at: shape.with_type(column, type, since=at))

    def _on_change_key(self, table: str, columns: list[str]) -> Timestamp:
        known = self.table(table)
        if any(name == known.name.full for txn in self.transactions.values() for name, _ in txn.intents):
            raise StatementError(f"table {table} cannot get another key while a transaction writes to it")

        def change(shape: Shape, at: Timestamp) -> Shape:
            following = shape.with_key(columns, since=at)
            for id_, version in self.rows(known, self.high):
                if version.cells is not None and None in following.key(following.row(version.cells)).values():
                    raise StatementError(f"table {table}: row {id_} has null in a column of the new key")
            return following

        return self._reshape(table, change)

    def _on_gc(self, threshold: str) -> None:
        at = Timestamp.parse(threshold)
        self.gc_threshold = max(self.gc_threshold, at)
        for table in self.tables.values():
            table.collect(at)

    def _reshape(self, table: str, change: Callable[[Shape, Timestamp], Shape]) -> Timestamp:
        """Give the table another shape from a timestamp on that is later than everything else, and no row's.

        Open transactions keep their timestamps: their rows are resolved before a reader comes to the change.
        """
        known = self.table(table)
        closed = (range_.closed for range_ in self.ranges[known.name.full])
        pending = (transaction.timestamp for transaction in self.transactions.values())
        since = max(self.clock(), max(self.high, *closed, *pending).next())
        known.shapes.append(change(known.newest_shape, since))
        return self._happened(since)

    def _clean_up(self) -> None:
        for transaction in list(self.transactions.values()):
            down_since = self.nodes[transaction.gateway].down_since
            if down_since is None:
                if transaction.status is Status.COMMITTED:
                    self._end_abandoned(transaction)
            elif self.now >= down_since + LEASE_NS:
                self._end_abandoned(transaction)

    def _resolve(self) -> None:
        """Advance the resolved timestamp of each range to its closed timestamp, but stay below its oldest intent."""
        for table, ranges in self.ranges.items():
            for range_ in ranges:
                oldest = [
                    intent.timestamp.prev()
                    for transaction in self.transactions.values()
                    for (name, id_), intent in transaction.intents.items()
                    if name == table and range_.holds(key_of(id_))
                ]
                self._resolved[table].forward(range_.span, min([range_.closed, *oldest]))
