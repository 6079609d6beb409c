"""A run continues on the standby that is promoted after its primary was killed."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from cdc_testing.bank import TABLES, Bank, assert_faithful, open_bank
from cdc_testing.copied_postgres import CopiedPostgres
from cdc_testing.files import last_resolved
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.runs import Feed, eventually
from cdc_testing.standby import both_hosts, slot_is_synchronised, standby_of


@pytest.mark.slow
def test_a_run_continues_on_the_promoted_standby_and_nothing_is_lost(tmp_path: Path, kept_spark: KeptSpark) -> None:
    with CopiedPostgres(settings={"fsync": "off"}) as primary:
        open_bank(primary.uri())
        with standby_of(primary) as standby:
            uri = both_hosts(primary, standby)
            options = {"failover": True, "retry_backoff": "100ms", "max_retry_backoff": "1s"}
            with Feed(tmp_path, uri, TABLES, options=options) as feed, Bank(uri):

                def work() -> None:
                    feed.until("a resolved mark", lambda: bool(last_resolved(feed.files)))
                    with psycopg.connect(primary.uri(), autocommit=True) as sql:
                        ((slot,),) = sql.execute("SELECT slot_name FROM pg_replication_slots WHERE failover")
                    eventually("the slot on the standby", lambda: slot_is_synchronised(standby, slot))
                    primary.kill()
                    with psycopg.connect(standby.uri(), autocommit=True) as sql:
                        sql.execute("SELECT pg_promote()")
                    seen = last_resolved(feed.files)
                    feed.until("a later resolved mark", lambda: last_resolved(feed.files) > seen)

                feed.during(kept_spark, work)
            feed.once(kept_spark)
            assert assert_faithful(feed.files, uri) > 0
            assert primary.password not in feed.log()
