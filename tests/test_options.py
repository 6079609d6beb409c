"""Declared options: parsing, errors, documentation, secrets."""

import json
import pickle
from dataclasses import dataclass, make_dataclass
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_core.errors import OptionError
from cdc_core.options import (
    MB,
    ByteSize,
    Duration,
    counted,
    describe,
    fault_of,
    format_bytes,
    format_duration,
    option,
    option_names,
    parse_options,
    secret_values,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    path: str = option(doc="Where files go.")
    file_size: ByteSize = option(ByteSize(16 * MB), doc="Size of a file.")
    timeout: Duration = option(Duration(3.0), doc="How long to wait.")
    resolved: Duration | None = option(None, doc="Emit resolved marks.", flag=True)
    pause: Duration | None = option(None, doc="How long to pause.")
    compression: Literal["none", "gzip"] = option("none", doc="How files are compressed.")
    sorted: bool = option(False, doc="Whether rows are sorted.")
    workers: int = option(1, doc="How many workers.")
    ratio: float = option(0.5, doc="Some ratio.")
    columns: tuple[str, ...] = option((), doc="Which columns.")
    headers: dict[str, Any] | None = option(None, doc="More headers.")
    password: str | None = option(None, doc="Password.", secret=True)

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise ValueError("'workers' must be at least 1")


def parse(**values: Any) -> Sample:
    return parse_options(Sample, {"path": "/x", **values}, owner="sink 'sample'")


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("file_size", "32MB", 32 * MB),
        ("file_size", "64KiB", 65536),
        ("file_size", "1.5 g", int(1.5 * 1024 * MB)),
        ("file_size", 100, 100),
        ("file_size", "100B", 100),
        ("timeout", "500ms", 0.5),
        ("timeout", "1h30m", 5400.0),
        ("timeout", 2, 2.0),
        ("timeout", "0", 0.0),
        ("resolved", True, 0.0),
        ("resolved", "true", 0.0),
        ("resolved", "", 0.0),
        ("resolved", "10s", 10.0),
        ("resolved", False, None),
        ("compression", "GZIP", "gzip"),
        ("sorted", "", True),
        ("sorted", "yes", True),
        ("sorted", "off", False),
        ("workers", "4", 4),
        ("ratio", "0.25", 0.25),
        ("columns", "a, b,", ("a", "b")),
        ("columns", ["a", "b"], ("a", "b")),
        ("headers", {"x": "y"}, {"x": "y"}),
        ("password", "pw", "pw"),
    ],
)
def test_values_are_read_from_text_and_from_toml(name: str, text: Any, value: Any) -> None:
    assert getattr(parse(**{name: text}), name) == value


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("file_size", "big", "must be a size such as"),
        ("file_size", "9" * 400, "must be less than 8388608TB"),
        ("file_size", True, "must be a size such as"),
        ("file_size", "-1MB", "must be a size such as"),
        ("timeout", "10 parsecs", "must be a duration such as"),
        ("timeout", "36501d", "must be at most 36500d"),
        ("timeout", "9" * 400, "must be at most 36500d"),
        ("timeout", "-1s", "must be a duration such as"),
        ("timeout", True, "must be a duration such as"),
        ("pause", True, "must be a duration such as"),
        ("resolved", "often", "must be a duration such as"),
        ("compression", "lz4", "must be one of none, gzip"),
        ("sorted", "perhaps", "must be true or false"),
        ("workers", "1.5", "must be a whole number"),
        ("workers", True, "must be a whole number"),
        ("workers", 2.5, "must be a whole number"),
        ("workers", float("inf"), "must be a whole number"),
        ("ratio", "x", "must be a number"),
        ("ratio", float("nan"), "must be a number"),
        ("path", 5, "must be a string"),
        ("headers", "x", "must be a table"),
        pytest.param("headers", '{"x": ' * 100_000, "must be a table .*nested too deeply", id="deep table"),
        pytest.param("columns", "[" * 100_000, "nested too deeply", id="deep list"),
        ("columns", {"a": 1}, "must be a list"),
    ],
)
def test_a_malformed_value_is_named_with_its_option_and_owner(name: str, text: Any, complaint: str) -> None:
    with pytest.raises(OptionError, match=rf"sink 'sample': option '{name}'( is .*)?: {complaint}"):
        parse(**{name: text})


@pytest.mark.parametrize(
    "written",
    [
        {"headers": {"a.b": "1", "c": "2"}},
        {"headers": '{"a.b": "1", "c": "2"}'},
        {"headers.a.b": "1", "headers.c": "2"},
        {"headers": {"c": "2"}, "headers.a.b": "1"},
    ],
)
def test_a_table_may_be_written_whole_as_json_or_by_entry(written: dict[str, Any]) -> None:
    parsed = parse_options(Sample, {"path": "p", **written}, owner="sink 's'")
    assert parsed.headers == {"a.b": "1", "c": "2"}


def test_an_entry_that_is_given_twice_is_refused() -> None:
    with pytest.raises(OptionError, match=r"sink 's' sets 'headers\.a' twice; keep one of them"):
        parse_options(Sample, {"path": "p", "headers": {"a": "1"}, "headers.a": "2"}, owner="sink 's'")


def test_an_entry_of_an_option_that_is_no_table_is_unknown() -> None:
    with pytest.raises(OptionError, match=r"has no option 'path\.a'"):
        parse_options(Sample, {"path": "p", "path.a": "1"}, owner="sink 's'")


def test_secrets_in_a_table_are_found_by_their_names() -> None:
    parsed = parse_options(Sample, {"path": "p", "headers": '{"sasl.password": "hush", "b": "c"}'}, owner="sink 's'")
    assert secret_values(parsed) == ["hush"]


def test_secrets_in_a_table_do_not_show() -> None:
    headers = {"a": 1, "tls": {"key": "public", "key.password": "hush"}, "sasl.password": "hush"}
    parsed = parse_options(Sample, {"path": "p", "headers": headers}, owner="sink 's'")
    assert "headers={'a': 1, 'tls': {'key': 'public', 'key.password': '***'}, 'sasl.password': '***'}" in repr(parsed)
    assert parsed.headers == headers
    assert pickle.loads(pickle.dumps(parsed)) == parsed


def test_an_unknown_option_suggests_the_nearest() -> None:
    with pytest.raises(OptionError, match=r"sink 'sample' has no option 'file_sise'; did you mean 'file_size'\?"):
        parse(file_sise="1MB")


def test_an_unknown_option_near_nothing_lists_what_there_is() -> None:
    with pytest.raises(OptionError, match="has no option 'qqq'; known: columns, compression"):
        parse(qqq="1MB")


def test_a_missing_option_says_what_it_is_for() -> None:
    with pytest.raises(OptionError, match=r"sink 'sample' needs option 'path': Where files go\."):
        parse_options(Sample, {}, owner="sink 'sample'")


def test_a_rule_of_the_class_becomes_an_option_error() -> None:
    with pytest.raises(OptionError, match="sink 'sample': 'workers' must be at least 1"):
        parse(workers=0)


def test_a_secret_value_is_not_in_the_complaint_about_it() -> None:
    with pytest.raises(OptionError) as raised:
        parse(password=12345678)
    assert "12345678" not in str(raised.value)
    assert "***" in str(raised.value)


def test_secret_values_are_those_of_secret_options() -> None:
    assert secret_values(parse(password="hunter2")) == ["hunter2"]
    assert secret_values(parse()) == []


def test_the_longer_words_of_a_secret_are_secrets_by_themselves() -> None:
    assert secret_values(parse(password="Bearer c2VjcmV0")) == ["Bearer c2VjcmV0", "c2VjcmV0"]


def test_every_text_of_a_secret_table_is_a_secret() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        headers: dict[str, Any] = option(None, doc="Headers.", secret=True)

    parsed = parse_options(Options, {"headers": '{"X-Team": "blue", "X-Key": "Key dG9rZW5z"}'}, owner="sink 's'")
    assert secret_values(parsed) == ["blue", "Key dG9rZW5z", "dG9rZW5z"]
    assert "blue" not in repr(parsed)


@pytest.mark.parametrize("as_text", [False, True])
def test_the_secrets_of_every_url_in_a_list_of_tables_are_secrets(as_text: bool) -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        mirrors: tuple[dict[str, Any], ...] = option((), doc="Mirrors.", uri=True)

    written: Any = [{"uri": "x://me:hunter2@a", "at": "1"}, {"uri": "x://me:hunter3@b,c"}]
    parsed = parse_options(Options, {"mirrors": json.dumps(written) if as_text else written}, owner="source 's'")
    assert parsed.mirrors == tuple(written)
    assert secret_values(parsed) == ["hunter2", "hunter3"]
    assert "hunter" not in repr(parsed)


def test_the_secrets_in_a_secret_url_are_secrets_by_themselves() -> None:
    url = "https://me:hun%2Fter@host?client_key=LS0tLS1&timeout=1s"
    assert secret_values(parse(password=url)) == [url, "LS0tLS1", "hun%2Fter", "hun/ter"]


@pytest.mark.parametrize(
    ("url", "secrets"),
    [
        ("https://host:8081/ccompat?timeout=1s", []),
        ("https://token@host", ["https://token@host"]),
        ("https://host?client_key=LS0tLS1", ["https://host?client_key=LS0tLS1", "LS0tLS1"]),
    ],
)
def test_a_url_that_may_have_secrets_is_shown_if_it_has_none(url: str, secrets: list[str]) -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        registry: str = option(doc="URL of a registry.", secret=True, uri=True)

    assert secret_values(parse_options(Options, {"registry": url}, owner="encoder 'e'")) == secrets


@pytest.mark.parametrize(
    ("type_", "default", "fault"),
    [
        ("list[str]", option((), doc="x"), "declares 'size' as list[str], which cannot be the type of an option"),
        ("int | str", option(1, doc="x"), "declares 'size' as int | str, which cannot be the type of an option"),
        (Literal["None"], option("None", doc="x"), "declares 'size' as typing.Literal['None'], which cannot be"),
        ("int", 1, "declares 'size' without cdc_core.option(…, doc=…)"),
        (tuple[Literal["a"], ...] | None, option(None, doc="x"), ""),
    ],
)
def test_a_field_that_no_user_could_set_is_a_fault(type_: Any, default: Any, fault: str) -> None:
    cls = make_dataclass("Faulty", [("size", type_, default)], frozen=True)
    assert fault_of(cls).startswith(fault)
    assert bool(fault_of(cls)) == bool(fault)


def test_the_table_has_a_row_for_each_option_in_order() -> None:
    rows = {row.name: row for row in describe(Sample)}
    assert tuple(rows) == option_names(Sample)
    assert (rows["path"].type, rows["path"].default) == ("text", "(required)")
    assert (rows["file_size"].type, rows["file_size"].default) == ("size", "16MB")
    assert (rows["timeout"].type, rows["timeout"].default) == ("duration", "3s")
    assert (rows["resolved"].type, rows["resolved"].default) == ("flag or duration", "(none)")
    assert rows["pause"].type == "duration"
    assert (rows["compression"].type, rows["sorted"].default) == ("none | gzip", "false")
    assert (rows["columns"].type, rows["columns"].default) == ("list of text", "(none)")
    assert rows["password"].secret


@given(st.integers(0, 10**6))
def test_formatted_durations_read_back(milliseconds: int) -> None:
    seconds = milliseconds / 1000
    assert parse(timeout=format_duration(seconds)).timeout == pytest.approx(seconds)


@given(st.integers(0, 10**13))
def test_formatted_sizes_read_back(size: int) -> None:
    assert parse(file_size=format_bytes(size)).file_size == size


@pytest.mark.parametrize(("number", "text"), [(0, "0 rows"), (1, "1 row"), (2, "2 rows"), (12345, "12,345 rows")])
def test_a_number_and_its_noun_agree(number: int, text: str) -> None:
    assert counted(number, "row") == text
