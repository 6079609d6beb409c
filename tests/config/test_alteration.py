"""Changes of a definition: what they leave of it, and which are refused."""

from __future__ import annotations

from typing import Any

import pytest

from cdc_core.config.alteration import Alteration, changed_tables
from cdc_core.config.listed_tables import database_of, own_name
from cdc_core.errors import ConfigError

WRITTEN: dict[str, Any] = {
    "source": "paper://desk/db",
    "tables": ["${TABLES}", "b"],
    "sink": "shelf://room",
    "options": {"resolved": "1s", "AWS_REGION": "eu", "kafka": {"linger": {"ms": 5}, "acks": "all"}, "http.a": "x"},
    "spark": {"master": "local[2]", "spark.executor.memory": "1g"},
}
TABLES = ("a", "b")


def altered(
    *, add: tuple[str, ...] = (), drop: tuple[str, ...] = (), set_: tuple[str, ...] = (), unset: Any = ()
) -> Any:
    return Alteration.parse(add=add, drop=drop, assignments=set_, unset=unset).applied(WRITTEN, TABLES, "public")


def test_nothing_else_is_changed() -> None:
    assert altered() == WRITTEN
    changed = altered(set_=("format=avro",))
    assert changed == {**WRITTEN, "format": "avro"}


def test_tables_are_taken_as_they_are_now_and_literally() -> None:
    assert altered(add=("${c}",), drop=("b",))["tables"] == ["a", "$${c}"]


@pytest.mark.parametrize(
    ("assignment", "key", "value"),
    [
        ("resolved=10s", "resolved", "10s"),
        ("resolved=", "resolved", ""),
        ("header=a=b", "header", "a=b"),
        ("password=${PASSWORD}", "password", "${PASSWORD}"),
        ("aws_region=us", "aws_region", "us"),
        ("kafka.acks=1", "kafka.acks", "1"),
        ("kafka.linger.ms=9", "kafka.linger.ms", "9"),
    ],
)
def test_an_option_is_set_in_place_of_what_it_was(assignment: str, key: str, value: str) -> None:
    options = altered(set_=(assignment,))["options"]
    assert options[key] == value
    kafka = options["kafka"]
    assert ("AWS_REGION" in options) == (key != "aws_region")
    assert ("acks" in kafka) == (key != "kafka.acks")
    assert ("ms" in kafka["linger"]) == (key != "kafka.linger.ms")


def test_a_table_is_set_whole() -> None:
    assert altered(set_=('http={"b": "y"}',))["options"]["http"] == '{"b": "y"}'
    assert "http.a" not in altered(set_=('http={"b": "y"}',))["options"]


def test_options_and_spark_properties_are_unset() -> None:
    changed = altered(unset=("aws_region", "kafka", "master"), set_=("spark.executor.memory=2g",))
    assert changed["options"] == {"resolved": "1s", "http.a": "x"}
    assert changed["spark"] == {"spark.executor.memory": "2g"}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"set_": ("resolved",)}, "--set resolved: the value is missing; write --set NAME=VALUE"),
        ({"set_": ("=x",)}, "write --set NAME=VALUE"),
        ({"set_": ("a=1", "a=2")}, "--set a is given twice"),
        ({"set_": ("a=1",), "unset": ("a",)}, "'a' is both set and unset"),
        ({"set_": ("source=x://y",)}, "'source' cannot be altered; create another job"),
        ({"set_": ("tables=a",)}, "'tables' cannot be altered; use --add and --drop"),
        ({"unset": ("sink",)}, "'sink' cannot be unset; set another value with --set sink=VALUE"),
        ({"unset": ("resolve",)}, "'resolve' is not set; did you mean 'resolved'?"),
        ({"unset": ("kafka.retries",)}, "'kafka.retries' is not set"),
        ({"add": ("b",)}, "already has the table 'b'"),
        ({"drop": ("a", "b")}, "no table would be left"),
    ],
)
def test_what_cannot_be_altered_is_refused(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        altered(**arguments)
    assert told in str(refused.value)


def test_its_text_has_no_values() -> None:
    change = Alteration.parse(add=("a",), drop=("b",), assignments=("pin=hunter2",), unset=("c", "d"))
    assert str(change) == "added a; dropped b; set pin; unset c, d"


@pytest.mark.parametrize(
    ("tables", "drop", "left"),
    [
        (["public.*"], "public.gone", ["public.*", "!public.gone"]),
        (["public.*"], 'public."Gone"', ["public.*", '!public."Gone"']),
        (["public.*", "app.*", "!public.x"], "app.gone", ["public.*", "app.*", "!public.x", "!app.gone"]),
        (["public.*", "public.listed"], "public.listed", ["public.*"]),
        (["public.*"], "gone", ["public.*", "!public.gone"]),
        (["t*"], "public.t3", ["t*", "!public.t3"]),
        (["t*"], "t3", ["t*", "!public.t3"]),
    ],
)
def test_a_table_that_came_by_a_pattern_is_dropped_by_an_exclusion(
    tables: list[str], drop: str, left: list[str]
) -> None:
    assert changed_tables(tables, (), (drop,), "public") == left


def test_a_source_without_schemas_has_none_in_an_exclusion() -> None:
    assert changed_tables(["t*"], (), ("t3",), "") == ["t*", "!t3"]


@pytest.mark.parametrize("drop", ["other.gone", "public.x", "x", "public.y*", "!public.gone"])
def test_what_no_pattern_means_cannot_be_dropped(drop: str) -> None:
    with pytest.raises(ConfigError, match="the changefeed has no table"):
        changed_tables(["public.*", "!public.x"], (), (drop,), "public")


@pytest.mark.parametrize(
    ("listed", "spelled"),
    [
        ("t3", "public.t3"),
        ("public.t3", "t3"),
        ("T3", 'public."t3"'),
        ('"Odd Name"', 'PUBLIC."Odd Name"'),
        ("app.t3", 'app."t3"'),
        ("public.t*", "t*"),
    ],
)
def test_a_table_is_the_same_however_it_is_spelled(listed: str, spelled: str) -> None:
    tables = ["a", listed]
    assert changed_tables(tables, (), (spelled,), "public") == ["a"]
    with pytest.raises(ConfigError, match="is both added and dropped"):
        changed_tables(tables, (spelled,), (listed,), "public")
    with pytest.raises(ConfigError, match=r"already has the table .*, as "):
        changed_tables(tables, (spelled,), (), "public")
    with pytest.raises(ConfigError, match=r"already has the table .*, as "):
        changed_tables(["a"], (listed, spelled), (), "public")


@pytest.mark.parametrize("other", ["app.t3", '"T3"', '"t*"', "t*", "db.public.t3"])
def test_another_table_is_another_one(other: str) -> None:
    assert changed_tables(["t3"], (other,), (), "public") == ["t3", other]
    with pytest.raises(ConfigError, match="has no table"):
        changed_tables(["t3"], (), (other,), "public")


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ("shop.public.t3", "public.t3"),
        ('"Shop".public."Odd Name"', '"Shop".public."Odd Name"'),
        ("Shop.app.T3", "app.t3"),
        ("other.public.t3", "other.public.t3"),
        ("shop.t3", "shop.t3"),
        ("!shop.public.t3", "!shop.public.t3"),
    ],
)
def test_the_database_of_the_source_may_be_named(text: str, own: str) -> None:
    assert own_name(text, "postgresql://cdc@h,i/shop?sslmode=require") == own


@pytest.mark.parametrize(
    ("source", "database"),
    [
        ("postgresql://cdc:***@h:5432/my%20shop?sslmode=require", "my shop"),
        ("postgresql://cdc:${file:/run/secret}@h/shop", "shop"),
        ("postgresql://h/${DATABASE}", ""),
        ("${file:/run/source}", ""),
        ("paper://desk", ""),
    ],
)
def test_a_database_is_known_by_the_uri_of_its_source(source: str, database: str) -> None:
    assert database_of(source) == database


SECTIONS = {"public.users": {"mask": {"email": "hash"}}, "public.orders": {"mask": {"note": "redact"}}}
MASKED = {
    "source": "postgresql://h/d",
    "tables": ["public.*"],
    "table": SECTIONS,
    "options": {"MASK_KEY": "${MASK_KEY}", "updated": True},
}


def test_the_key_of_masks_goes_with_the_last_section_that_hashes() -> None:
    def changed(drop: str, *unset: str) -> dict[str, Any]:
        change = Alteration.parse(add=(), drop=(drop,), assignments=(), unset=unset)
        return change.applied(MASKED, MASKED["tables"], "public")

    assert changed("public.orders")["options"] == MASKED["options"]
    found = changed("public.users")
    assert (found["tables"], found["options"]) == (["public.*", "!public.users"], {"updated": True})
    assert list(found["table"]) == ["public.orders"]
    assert changed("public.users", "mask_key") == found
