"""Changefeeds in TOML files: every mistake names the file and the place."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from cdc_core.config.toml_file import read_changefeed
from cdc_core.errors import ConfigError, OptionError

PLAIN = """
    [changefeed.orders]
    source = "postgresql://user@host:5432/shop"
    tables = ["public.orders", "public.customers"]
    sink = "file:///data/out"
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "shop.toml"
    path.write_text(textwrap.dedent(text))
    return path


def test_a_whole_changefeed_is_read(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        PLAIN
        + """
    format = "json"
    [changefeed.orders.options]
    updated = true
    resolved = "1s"
    since = 2024-01-31T01:02:03Z
    [changefeed.orders.spark]
    master = "local[2]"
    "spark.driver.memory" = "2g"
    spark.ui.enabled = false
    spark.task.maxFailures = 4
    """,
    )
    read = read_changefeed(path)
    assert (read.name, read.source, read.sink, read.format) == (
        "orders",
        "postgresql://user@host:5432/shop",
        "file:///data/out",
        "json",
    )
    assert read.tables == ("public.orders", "public.customers")
    assert read.options == {"updated": True, "resolved": "1s", "since": "2024-01-31T01:02:03+00:00"}
    assert read.spark == {
        "master": "local[2]",
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.task.maxFailures": "4",
    }


def test_format_is_json_unless_it_is_given(tmp_path: Path) -> None:
    assert read_changefeed(written(tmp_path, PLAIN)).format == "json"


def test_a_byte_order_mark_and_line_ends_of_windows_do_no_harm(tmp_path: Path) -> None:
    path = written(tmp_path, PLAIN)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert read_changefeed(path).name == "orders"


def test_one_of_several_must_be_named(tmp_path: Path) -> None:
    path = written(tmp_path, PLAIN + PLAIN.replace("orders]", "users]"))
    assert read_changefeed(path, "users").name == "users"
    with pytest.raises(ConfigError, match=r"shop\.toml has several changefeeds; name one of them: orders, users"):
        read_changefeed(path)
    with pytest.raises(ConfigError, match=r"shop\.toml has no changefeed 'user'; did you mean 'users'\?"):
        read_changefeed(path, "user")


def test_secrets_come_from_outside_only_for_the_changefeed_that_is_used(tmp_path: Path) -> None:
    other = PLAIN.replace("orders]", "users]").replace("user@", "user:${NOT_SET}@")
    path = written(tmp_path, PLAIN.replace("user@", "user:${PW}@") + other)
    assert read_changefeed(path, "orders", environ={"PW": "hunter2"}).source == (
        "postgresql://user:hunter2@host:5432/shop"
    )
    with pytest.raises(
        ConfigError, match=r"shop\.toml: changefeed 'users', source needs the environment variable 'NOT_"
    ):
        read_changefeed(path, "users", environ={})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('[changefeed.orders]\nsource = "x\n', "shop.toml, line 2, column 12: Illegal character"),
        ("[changefeed.orders\n", "shop.toml, line 1, column 19: Expected ']'"),
        ("", "shop.toml has no changefeed; add a table [changefeed.NAME]"),
        (
            "[changefeeds.a]\n",
            "shop.toml: unknown key 'changefeeds'; name the tables [changefeed.NAME]",
        ),
        ('[changefeed]\nsource = "x"\n', "[changefeed] has no name; write [changefeed.NAME] above 'source'"),
        ('[changefeed.a]\ntables = ["x"]\nsink = "y"\n', "changefeed 'a' has no 'source'; set it to a URI"),
        (PLAIN + '    formt = "json"\n', "changefeed 'orders': unknown key 'formt'; did you mean 'format'?"),
        (PLAIN + "    updated = true\n", "write options in the table [changefeed.NAME.options]"),
        (PLAIN + "    options = 5\n", "changefeed 'orders': 'options' must be a table"),
        (PLAIN + "    format = 5\n", "changefeed 'orders': 'format' must be a string"),
        (PLAIN.replace('["public.orders", "public.customers"]', '"x"'), "'tables' must be a list of table names"),
        (PLAIN.replace('"file:///data/out"', '"/data/out"'), "shop.toml: changefeed 'orders': sink is not a URI"),
        (PLAIN.replace("changefeed.orders", 'changefeed."a b"'), "'a b' is not a valid changefeed name"),
        (
            PLAIN + "    [changefeed.orders.spark]\n    cores = 2\n",
            "'cores' is neither 'master' nor a Spark property",
        ),
        ("changefeed.orders.options." + "a." * 2000 + "a = 1", "keys or values are nested too deeply"),
        (PLAIN + "    [changefeed.orders.options]\n    total = 0x" + "f" * 5000, "an integer has more than 64 bits"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(complaint)) as raised:
        read_changefeed(written(tmp_path, text))
    assert "shop.toml" in str(raised.value)
    assert not isinstance(raised.value, OptionError)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nope\.toml cannot be read: No such file"):
        read_changefeed(tmp_path / "nope.toml")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        read_changefeed(tmp_path)
    (tmp_path / "blob.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"blob\.toml is not UTF-8 text"):
        read_changefeed(tmp_path / "blob.toml")
