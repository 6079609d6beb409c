"""A node takes the place of an earlier process only when that has certainly ended."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest
from cdc_testing.bare_nodes import bare_settings

from cdc_core.errors import ConfigError
from cdc_core.jobs import joining
from cdc_core.jobs.joining import LastSessionFile, join
from cdc_core.jobs.lease import Lease
from cdc_core.store.progress import ProgressStore, store_url


@pytest.fixture
def url(tmp_path: Path) -> str:
    return store_url(tmp_path / "store")


def former(directory: Path) -> LastSessionFile:
    directory.mkdir(exist_ok=True)
    (directory / "node.lock").touch()
    return LastSessionFile(directory / "node.lock")


def rest(limit_s: float) -> None:
    threading.Event().wait(limit_s)


def joined(store: ProgressStore, directory: Path, kept: LastSessionFile, **options: str) -> Lease:
    """Return the session of a node of *directory*, as it calls it, on a host where *kept* is what is there."""
    settings = bare_settings(store.url, directory, **options)
    lease = join(settings, store, kept, rest=rest, leaving=lambda: False)
    assert lease is not None
    return lease


def test_a_session_is_of_this_very_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = former(tmp_path / "one")
    assert first.read() is None
    first.write("s1")
    assert former(tmp_path / "one").read() == "s1"
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    assert former(tmp_path / "copy").read() is None
    for boot in ("another start of the system", ""):
        monkeypatch.setattr(joining, "_boot", lambda boot=boot: boot)
        assert former(tmp_path / "one").read() is None
        former(tmp_path / "two").write("s2")
        assert former(tmp_path / "two").read() == ("s2" if boot else None)
    (tmp_path / "one" / "node.session").write_text("{")
    assert former(tmp_path / "one").read() is None


def test_a_process_that_has_ended_is_replaced_at_once(store: ProgressStore, tmp_path: Path) -> None:
    ended = joined(store, tmp_path / "one", former(tmp_path / "one"), lease="10m")
    ended.end(leave=False)
    again = joined(store, tmp_path / "one", former(tmp_path / "one"))
    assert [node.node_id for node in store.nodes.living()] == [again.node.node_id]
    again.end(leave=True)


def test_a_node_of_another_container_is_not_replaced(store: ProgressStore, tmp_path: Path) -> None:
    alive = joined(store, tmp_path / "one", former(tmp_path / "one"))
    with pytest.raises(ConfigError, match=r"a node 'one' is alive on .*; give this node another --name"):
        joined(store, tmp_path / "one", former(tmp_path / "elsewhere"))
    assert alive.is_safe
    alive.end(leave=True)


def test_a_process_of_another_host_is_waited_for(store: ProgressStore, tmp_path: Path) -> None:
    ended = joined(store, tmp_path / "one", former(tmp_path / "one"), lease="1s")
    ended.end(leave=False)
    moved = joined(store, tmp_path / "one", former(tmp_path / "elsewhere"))
    assert moved.node.started >= ended.node.expires
    moved.end(leave=True)
