from __future__ import annotations

import pytest
from cdc_encoder_avro.names import avro_name, avro_namespace, is_avro_name, sql_name
from hypothesis import given, settings
from hypothesis import strategies as st

NEAR_ESCAPES = st.lists(st.sampled_from(["_", "u", "002d", "00e9", "-", "é", "😀", "a", "1", "_u002d_"]), max_size=8)
NAMES = (st.text(min_size=1, max_size=12) | NEAR_ESCAPES.map("".join)).filter(bool)


@pytest.mark.parametrize(
    ("name", "escaped"),
    [
        ("orders", "orders"),
        ("Orders_2", "Orders_2"),
        ("_", "_"),
        ("2nd", "_u0032_nd"),
        ("total (EUR)", "total_u0020__u0028_EUR_u0029_"),
        ("größe", "gr_u00f6__u00df_e"),
        ("😀", "_u1f600_"),
        ("a_u002d_b", "a_u005f_u002d_b"),
        ("shop.public.orders", "shop_u002e_public_u002e_orders"),
    ],
)
def test_names_that_avro_does_not_accept_are_escaped(name: str, escaped: str) -> None:
    assert avro_name(name) == escaped


@settings(deadline=None)
@given(NAMES)
def test_escaping_every_name_is_reversible(name: str) -> None:
    assert is_avro_name(avro_name(name))
    assert sql_name(avro_name(name)) == name


@pytest.mark.parametrize(
    ("prefix", "namespace"),
    [("", ""), ("super", "super"), ("com.example.", "com.example"), ("dev-", "dev_u002d_"), (".", "")],
)
def test_the_prefix_becomes_a_namespace(prefix: str, namespace: str) -> None:
    assert avro_namespace(prefix) == namespace
