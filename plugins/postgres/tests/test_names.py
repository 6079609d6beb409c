from __future__ import annotations

import pytest
from cdc_rangefeed_postgres.names import application_name, object_name, quoted_table

FEED = "0123456789ab"


def test_quotes_in_names_are_doubled() -> None:
    assert quoted_table('a"b', "c") == '"a""b"."c"'


@pytest.mark.parametrize(
    ("changefeed", "name"),
    [
        ("orders", "cdc_orders_0123456789ab"),
        ("My Orders-2", "cdc_my_orders_2_0123456789ab"),
        ("x" * 100, "cdc_" + "x" * 46 + "_0123456789ab"),
        ("żółw", "cdc_w_0123456789ab"),
    ],
)
def test_a_slot_has_the_changefeeds_name_as_far_as_postgresql_allows(changefeed: str, name: str) -> None:
    assert object_name(changefeed, FEED) == name
    assert len(name) <= 63


def test_an_application_name_keeps_feed_and_role_when_the_changefeeds_name_is_long() -> None:
    assert application_name("orders", FEED, "scan") == f"cdc/orders/{FEED}/scan"
    long = application_name("x" * 100, FEED, "coordinator")
    assert long.endswith(f"/{FEED}/coordinator")
    assert len(long) == 63
