"""What a user may write as a changefeed, and what its options forbid together."""

import pickle
from typing import Any

import pytest

from cdc_core import Timestamp
from cdc_core.config.changefeed import Changefeed
from cdc_core.config.changefeed_options import ChangefeedOptions
from cdc_core.errors import ConfigError, OptionError
from cdc_core.options import parse_options


def changefeed(**changes: Any) -> Changefeed:
    fields: dict[str, Any] = {
        "name": "orders",
        "source": "postgresql://user:hunter2@host/shop",
        "tables": ("public.orders",),
        "sink": "s3://bucket/x?AWS_SECRET_ACCESS_KEY=topsecret",
    }
    return Changefeed(**(fields | changes))


def options(**values: Any) -> ChangefeedOptions:
    return parse_options(ChangefeedOptions, values, owner="changefeed 'orders'")


def test_repr_shows_no_secret() -> None:
    options = {"api_token": "verysecret", "updated": True, "librdkafka": {"sasl.password": "verysecret"}}
    shown = repr(changefeed(options=options)) + repr(changefeed(sink="webhook-https://hooks.example/verysecret"))
    assert not any(secret in shown for secret in ("hunter2", "topsecret", "verysecret"))
    assert "'updated'" in shown


def test_a_changefeed_survives_pickling() -> None:
    assert pickle.loads(pickle.dumps(changefeed(options={"updated": True}))) == changefeed(options={"updated": True})


@pytest.mark.parametrize("name", [None, "", "a b", "ä", "x" * 41, "a/b", "a.b"])
def test_names_that_could_not_name_files_and_slots_are_refused(name: str | None) -> None:
    with pytest.raises(ConfigError, match="is not a valid changefeed name; use 1 to 40 of the characters"):
        changefeed(name=name)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"tables": ()}, "changefeed 'orders' watches no table"),
        ({"tables": ("",)}, "changefeed 'orders' watches no table"),
        ({"tables": "public.orders"}, "'tables' must be a list of table names"),
        ({"tables": None}, "'tables' must be a list of table names"),
        ({"source": None}, "'source' must be a string, or a list of strings"),
        ({"sink": b"file:///data"}, "'sink' must be a string"),
        ({"options": None}, "'options' must be a table of names and values"),
        ({"options": {1: 2}}, "'options' must be a table of names and values"),
        ({"functions": ["def f(): ..."]}, "'functions' must be a table of names and values"),
        ({"tables": ("a", "b", "a")}, "lists table 'a' twice"),
        ({"tables": (*map(str, range(60_000)), "7")}, "lists table '7' twice"),
        ({"source": "host=db password=pw"}, "source is not a URI; write it as postgresql://user@host:5432/database$"),
        ({"source": "postgresql://u:pa/ss@h/d"}, "the password in source must be percent-encoded: / is %2F"),
        ({"sink": "/data/out"}, "sink is not a URI; write it as file:///data/out$"),
    ],
)
def test_what_cannot_be_a_changefeed_is_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        changefeed(**changes)


def test_tables_may_come_as_a_list() -> None:
    assert changefeed(tables=["a", "b"]).tables == ("a", "b")


def test_defaults_are_those_of_the_documentation() -> None:
    plain = options()
    assert (plain.envelope, plain.initial_scan, plain.resolved, plain.min_checkpoint_frequency) == (
        "wrapped",
        "yes",
        None,
        None,
    )
    assert (plain.max_step_rows, plain.max_step_bytes) == (4_000_000, 128 * 1024 * 1024)


def test_resolved_is_a_flag_or_a_duration() -> None:
    assert options(resolved=True).resolved == 0.0
    assert options(resolved="10s").resolved == 10.0
    assert options(resolved=False).resolved is None


@pytest.mark.parametrize("name", ["resolved", "diff", "mvcc_timestamp", "updated"])
def test_a_scan_only_changefeed_has_no_time_to_speak_of(name: str) -> None:
    with pytest.raises(OptionError, match=f"initial_scan='only' cannot be combined with '{name}'"):
        options(initial_scan="only", **{name: True})
    assert options(initial_scan="only", **{name: False}).initial_scan == "only"


def test_end_time_is_a_timestamp_and_needs_one_of_its_own() -> None:
    end = options(end_time="2026-01-31T12:00:00.5Z")
    assert end.end_time == "1769860800500000000.0000000000"
    assert end.end == Timestamp(1769860800500000000)
    assert options().end is None
    with pytest.raises(OptionError, match="initial_scan='only' cannot be combined with 'end_time'"):
        options(initial_scan="only", end_time=1769860800500000000)


def test_a_cursor_is_a_timestamp_or_what_the_source_understands() -> None:
    assert options(cursor="2026-01-31T12:00:00Z").after == Timestamp(1769860800000000000)
    lsn = options(cursor="0/16B3748")
    assert (lsn.cursor, lsn.after) == ("0/16B3748", None)
    now = 1769860800 * 10**9
    assert options(cursor=now, end_time=now + 1).end == Timestamp(now + 1)


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        (
            {"end_time": 1764361590},
            "option 'end_time' is 1764361590: must be in nanoseconds since 1970, but is in seconds; write "
            "1764361590000000000",
        ),
        ({"cursor": "1764361590000"}, "but is in milliseconds; write 1764361590000000000"),
        (
            {"cursor": "6.0000000000", "end_time": "6.0000000000"},
            r"'end_time' \(6\.0+\) must be later than 'cursor' \(6\.0+\)",
        ),
        ({"cursor": ""}, "option 'cursor' is '': must be a time"),
        ({"end_time": "tomorrow"}, "option 'end_time' is 'tomorrow': must be a time with its time zone"),
        ({"end_time": 1769860800500000000.5}, "must be in quotes, because a number with a decimal point loses digits"),
        ({"max_step_rows": 0}, "'max_step_rows' must be at least 1"),
        ({"max_row_bytes": "0B"}, "'max_row_bytes' must be at least 1"),
        ({"max_row_bytes": "2GB"}, "'max_row_bytes' must be at most 1GB"),
        ({"max_step_bytes": "0B"}, "'max_step_bytes' must be at least 1"),
        ({"max_retry_backoff": "500ms"}, r"'max_retry_backoff' \(500ms\) must not be less than 'retry_backoff' \(1s\)"),
        ({"envelope": "wraped"}, "option 'envelope' is 'wraped': must be one of wrapped, bare"),
        ({"initial_scan": "maybe"}, "must be one of yes, no, only"),
        ({"updatd": True}, r"changefeed 'orders' has no option 'updatd'; did you mean 'updated'\?"),
    ],
)
def test_impossible_options_are_refused_in_a_sentence(values: dict[str, Any], complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        options(**values)
