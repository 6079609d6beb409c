"""Where an attempt starts, when the rangefeed follows other tables than before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from cdc_testing.components import encoder, host, rangefeed, sink
from cdc_testing.stored import DEFINITION

from cdc_core import Changefeed, ConfigError, Frontier, Rangefeed, Span, TableName, TableSchema, Timestamp, Token
from cdc_core.config.parts import Parts
from cdc_core.config.resolve import resolve
from cdc_core.engine.attempt_progress import delivered
from cdc_core.engine.start_position import register, start_token
from cdc_core.store.progress import Progress, ProgressStore, store_url


class Growing(Rangefeed):
    """Follows the same table in one more schema at each start."""

    found: Sequence[str] = ()

    def check(self) -> None:
        pass

    def schemas(self) -> Sequence[TableSchema]:
        return [
            TableSchema(name=TableName("shop", schema, "orders"), version=1, columns=(), primary_key=())
            for schema in self.found
        ]

    def start(self, saved: Token | None, save: Callable[[Token], None]) -> Token:
        self.found = [*self.found, "public" if saved is None else "eu"]
        return {"tables": len(self.found)}


def test_a_table_that_joins_is_checked_like_those_at_the_first_start(tmp_path: Path) -> None:
    plugins = host(rangefeed(), encoder(), sink(destination="cdc_testing.components:SilentDestination"))
    changefeed = Changefeed(name="orders", source="paper://desk/shop", tables=("*.orders",), sink="shelf://room")
    feed = resolve(changefeed, plugins)
    with closing(ProgressStore(store_url(tmp_path))) as store:
        feed = feed.for_attempt(feed_id=register(feed, store).feed_id, epoch=store.changefeeds.begin_attempt("orders"))
        source = Growing(Parts(feed).rangefeed_context())
        assert start_token(feed, store, source) == {"tables": 1}
        with pytest.raises(ConfigError, match=r"^tables public\.orders and eu\.orders would share the topic 'orders'"):
            start_token(feed, store, source)
        saved = store.progress.load("orders")
        assert saved is not None
        assert saved.token == {"tables": 1}


def test_what_began_and_resolved_nothing_has_delivered_nothing(tmp_path: Path) -> None:
    frontier = Frontier([Span("shop.public.orders")])
    with closing(ProgressStore(store_url(tmp_path))) as store:
        store.changefeeds.register("orders", DEFINITION)
        epoch = store.changefeeds.begin_attempt("orders")
        assert not any(delivered("orders", store))
        store.progress.save("orders", epoch, Progress(token={"n": 1}, frontier=frontier, counters={"steps": 3}))
        assert not any(delivered("orders", store)), "an initial scan has begun, and no more"
        store.progress.save(
            "orders", epoch, Progress(token={"n": 2}, frontier=frontier, counters={"steps": 4, "rows": 1})
        )
        assert any(delivered("orders", store))
        frontier.forward(Span("shop.public.orders"), Timestamp(5))
        store.progress.save("orders", epoch, Progress(token={"n": 3}, frontier=frontier, counters={"steps": 4}))
        assert delivered("orders", store) == (0, Timestamp(5)), "a table without rows was read"
