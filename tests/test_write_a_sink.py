"""The pages for authors of sinks are correct: the tutorial makes a sink that keeps every promise, and examples run."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from cdc_conformance import SinkConformance
from cdc_conformance.new_plugin import Names, create
from cdc_conformance.rows import INT8, Change, rows, table
from cdc_conformance.sinks import rig
from cdc_encoder_json.encoder import JsonEncoder
from cdc_encoder_json.options import JsonOptions
from cdc_testing.pages import Page

from cdc_core import (
    Changefeed,
    ConfigError,
    EncoderContext,
    Envelope,
    Flushed,
    RefusedRow,
    parse_options,
)

PAGE = Page("write-a-sink.md")
CONTRACT = Page("sink-contract.md")
OPTIONS, PLUGINS = Page("api/options.md"), Page("api/plugins.md")
FILES = PAGE.files()


def block(page: Page, mark: str) -> str:
    """Return the one block of Python that contains *mark* and is not a file."""
    (text,) = (text for text in page.blocks("python") if mark in text and text not in FILES.values())
    return text


def run(text: str, **names: Any) -> dict[str, Any]:
    """Return the names that a block of Python defines."""
    module: dict[str, Any] = {"__name__": "example", **names}
    exec(compile(text, "page", "exec", dont_inherit=True), module)
    return module


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new repository with the files of the page, installed in its directory `site`."""
    made = create(Names.of("sink", "demo"), tmp_path_factory.mktemp("reader") / "demo")
    (made / "src" / "cdc_sink_demo" / "database.py").unlink()
    for path, text in FILES.items():
        (made / path).write_text(text)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run(
        [*command, "--no-build-isolation", "--target", made / "site", made], check=True, stdin=subprocess.DEVNULL
    )
    return made


@pytest.mark.slow
def test_the_files_of_the_page_keep_every_promise(made: Path) -> None:
    names = ["destination", "files", "options", "plugin", "reader", "resolved_sink", "sink", "test_conformance"]
    assert sorted(Path(path).stem for path in FILES) == names
    done = PAGE.run(made, "pytest", "-q", "-p", "no:cacheprovider", "tests")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_the_changefeed_of_the_page_delivers_its_rows(made: Path) -> None:
    (commands,) = (text for text in PAGE.blocks("console") if "cdc run demo" in text)
    command = [sys.executable, "-c", block(PAGE, "EmbeddedPostgres")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            printed = re.fullmatch(
                r"(export DEMO_SOURCE=postgresql://\S+ DEMO_TABLES=public.orders)\n", server.stdout.readline()
            )
            assert printed is not None
            typed = re.sub(r"\$ export DEMO_SOURCE.*", f"$ {printed[1]}", commands)
            script = "set -e\n" + re.sub(r"^\$ ", "", typed, flags=re.M)
            found = os.pathsep.join([str(made / "site"), *filter(None, [os.environ.get("PYTHONPATH")])])
            done = PAGE.shell(made, script, PYTHONPATH=found)
        finally:
            server.communicate("\n", timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split() for line in (made / "out" / "orders.lines").read_text().splitlines() if line]
    assert [key for key, _, _ in lines][:2] == ["5b315d", "5b325d"]
    assert lines[-1][0] == "-"
    assert b"resolved" in bytes.fromhex(lines[-1][1])
    assert done.stdout.endswith((made / "out" / "orders.lines").read_text())


def test_the_entry_points_on_the_pages_are_those_of_a_new_repository(tmp_path: Path) -> None:
    made = create(Names.of("sink", "demo"), tmp_path / "demo")
    declared = tomllib.loads((made / "pyproject.toml").read_text())["project"]["entry-points"]
    (plugins,) = map(tomllib.loads, PAGE.blocks("toml"))
    (pipelines,) = map(tomllib.loads, PLUGINS.blocks("toml"))
    assert plugins["project"]["entry-points"]["cdc_core.plugins"] == declared["cdc_core.plugins"]
    assert pipelines["project"]["entry-points"].keys() <= declared.keys()


def test_the_registration_on_the_page_is_that_of_a_new_repository(tmp_path: Path) -> None:
    repository = create(Names.of("sink", "demo"), tmp_path / "demo")
    (shown,) = run(FILES["src/cdc_sink_demo/plugin.py"])["cdc_register_sinks"]()
    (created,) = run((repository / "src" / "cdc_sink_demo" / "plugin.py").read_text())["cdc_register_sinks"]()
    assert shown == dataclasses.replace(created, summary=shown.summary, refuses_rows=False)


@pytest.mark.parametrize("name", ["write-a-sink", "write-an-encoder", "write-a-rangefeed"])
def test_a_tutorial_for_authors_has_at_most_eight_screens(name: str) -> None:
    assert len(Page(f"{name}.md").text.split()) <= 8 * 170


def test_the_conversions_from_arrow_to_bytes_work() -> None:
    context = EncoderContext(changefeed="demo", envelope=Envelope(), options=JsonOptions())
    orders = table("orders", {"id": INT8})
    batch = JsonEncoder(context).encode(rows(orders, [Change({"id": number}) for number in range(3)]), topic="orders")
    defined = run(block(CONTRACT, "joined_lines(batch"), batch=batch)
    assert defined["keys"] == [b"[0]", b"[1]", b"[2]"]


def test_the_sender_on_the_page_lists_messages_that_are_too_large() -> None:
    posted: list[bytes] = []
    sender = run(block(CONTRACT, "class Sender"))["Sender"](posted.append, 4)
    sender.send([b"a"])
    sender.send([b"large", b"c"])
    refused = RefusedRow(index=1, reason="the message has 5 bytes, the limit is 4")
    assert (sender.flush(), posted) == (Flushed(messages=2, refused=(refused,)), [b"a", b"c"])
    sender.send([b"d"])
    assert sender.flush() == Flushed(messages=1)


def test_the_options_on_the_page_are_parsed() -> None:
    cls = run(block(OPTIONS, "class ShelfOptions"))["ShelfOptions"]
    options = parse_options(cls, {"bucket": "b", "timeout": "500ms", "buffer_size": "1MB"}, owner="sink 'shelf'")
    assert (options.timeout, options.buffer_size, options.token) == (0.5, 1024 * 1024, None)
    with pytest.raises(ConfigError, match="'timeout' must be more than 0"):
        parse_options(cls, {"bucket": "b", "timeout": "0s"}, owner="sink 'shelf'")
    with pytest.raises(ConfigError, match="needs option 'bucket'"):
        parse_options(cls, {}, owner="sink 'shelf'")


def test_the_pipeline_on_the_page_needs_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    orders = run(block(PLUGINS, "def orders"))["orders"]
    monkeypatch.delenv("ORDERS_SOURCE", raising=False)
    with pytest.raises(ConfigError, match="ORDERS_SOURCE"):
        orders()
    monkeypatch.setenv("ORDERS_SOURCE", "postgresql://u@h/d")
    assert isinstance(orders(), Changefeed)


def test_the_overridden_promise_on_the_page_exists() -> None:
    text = block(CONTRACT, "class TestShelf")
    suite = run(text, pytest=pytest, SinkRig=rig.SinkRig, TestDemo=SinkConformance)["TestShelf"]
    (name,) = (name for name in vars(suite) if name.startswith("test_"))
    assert hasattr(SinkConformance, name)
