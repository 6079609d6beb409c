"""A list of sources: what is accepted, refused, remembered and masked."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from cdc_testing.local_engine import resolved_feed

from cdc_core import Changefeed
from cdc_core.config.definition import changefeed_from
from cdc_core.config.identity import require_same_source
from cdc_core.config.resolve import resolve
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.config.toml_file import read_changefeed
from cdc_core.errors import ConfigError, OptionError
from cdc_core.plugins.host import PluginHost

A, B = "postgresql://u:first@a/shop", "postgresql://u:second@b/shop"


def feed(*sources: str, **options: Any) -> ResolvedChangefeed:
    return resolved_feed(sources, "file:///tmp/x", "items", options=options)


def written(tmp_path: Path, source: str) -> Path:
    file = tmp_path / "feeds.toml"
    file.write_text(f'[changefeed.t]\nsource = {source}\ntables = ["items"]\nsink = "file:///tmp/x"\n')
    return file


def test_a_list_of_one_source_is_that_source(tmp_path: Path) -> None:
    listed = read_changefeed(written(tmp_path, f'["{A}"]'))
    assert listed.source == A
    plain = resolve(read_changefeed(written(tmp_path, f'"{A}"')), PluginHost.load())
    assert resolve(listed, PluginHost.load()).definition()["source"] == plain.definition()["source"]
    assert not plain.is_sharded


def test_references_and_passwords_of_every_source_stay_out_of_what_is_shown(tmp_path: Path) -> None:
    file = written(tmp_path, '["postgresql://u:${FIRST}@a/shop", "postgresql://u:second@b/shop"]')
    changefeed = read_changefeed(file, environ={"FIRST": "hush"})
    resolved = resolve(changefeed, PluginHost.load())
    definition = resolved.definition()
    assert definition["source"] == ["postgresql://u:***@a/shop", "postgresql://u:***@b/shop"]
    assert definition["written"]["source"] == ["postgresql://u:${FIRST}@a/shop", "postgresql://u:***@b/shop"]
    assert definition["literal_secrets"] == ["'source'"]
    again = changefeed_from({**definition, "literal_secrets": []}, "t", origin="a store", environ={"FIRST": "hush"})
    assert again.sources == ("postgresql://u:hush@a/shop", "postgresql://u:***@b/shop")
    assert {"hush", "second"} <= resolved.secrets()
    shown = f"{changefeed!r} {resolved!r} {definition}"
    assert "hush" not in shown
    assert "second" not in shown
    assert pickle.loads(pickle.dumps(resolved)).sources == resolved.sources


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("[]", "'source' must be a string, or a list of strings"),
        ("[1]", "'source' must be a string, or a list of strings"),
        ("7", "'source' must be a string, or a list of strings"),
        (f'["{A}", "postgresql://someone@a/shop"]', "lists source postgresql://a/shop twice; remove one"),
        (f'["{A}", "shop"]', "source is not a URI"),
    ],
)
def test_a_list_that_cannot_work_is_refused(tmp_path: Path, source: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_changefeed(written(tmp_path, source))


def test_sources_of_two_kinds_are_refused_by_name() -> None:
    with pytest.raises(
        ConfigError, match=r"postgresql://a/shop is of kind 'postgres', but simulated:///x is of kind 'sim"
    ):
        feed(A, "simulated:///x")


def test_a_position_is_no_cursor_of_several_sources() -> None:
    with pytest.raises(
        OptionError, match="cursor '0/1' is a position of one source, but there are several sources; set a time"
    ):
        feed(A, B, cursor="0/1")
    assert feed(A, B, cursor="2026-01-31T12:00:00Z").options.after


@pytest.mark.parametrize(
    ("known", "wanted", "said"),
    [
        ([A, B], [B, A], "lists its sources in a different order than before.*restore the order"),
        ([A, B], [A], "was started on the sources .*@b/shop, not .*@a/shop; give the new"),
        ([A], [A, B], "was started on the source .*@a/shop, not .*@b/shop; give the new"),
        ([A, B], [A, "postgresql://c/shop"], "was started on the sources .*, not .*//c/shop; give the new"),
    ],
)
def test_a_name_keeps_its_sources_and_their_order(known: list[str], wanted: list[str], said: str) -> None:
    before, now = feed(*known).definition(), feed(*wanted).definition()
    require_same_source("t", before, before, changes_tables=True)
    with pytest.raises(ConfigError, match=said):
        require_same_source("t", before, now, changes_tables=True)


def test_a_shard_may_get_another_host_after_a_failover() -> None:
    before = feed("postgresql://a,a2/shop", B).definition()
    now = feed("postgresql://a2,a3/shop", B).definition()
    require_same_source("t", before, now, changes_tables=True)


def test_python_may_give_a_list() -> None:
    changefeed = Changefeed(name="t", source=[A, B], tables=("items",), sink="file:///tmp/x")  # type: ignore[arg-type]
    assert changefeed.sources == (A, B)
