"""Whoever follows docs/write-a-sink.md gets what it says: its files make a sink that keeps every promise."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from cdc_conformance import SinkConformance
from cdc_conformance.new_plugin import Names, create
from cdc_conformance.rows import INT8, Change, rows, table
from cdc_conformance.sinks import rig
from cdc_encoder_json.encoder import JsonEncoder
from cdc_encoder_json.options import JsonOptions

from cdc_core import (
    Changefeed,
    ConfigError,
    EncoderContext,
    EnvelopeOptions,
    PartialWriteError,
    Sink,
    SinkContext,
    SinkRegistration,
)
from cdc_core.options import parse_options

PAGE = (Path(__file__).parents[1] / "docs" / "write-a-sink.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
FILES: dict[str, str] = {
    found[1]: text for text in BLOCKS if (found := re.match(r"# ((?:src|tests)/\S+)\n", text)) is not None
}


def block(mark: str) -> str:
    """Return the one piece of Python that has *mark* in it and is no file."""
    (text,) = (text for text in BLOCKS if mark in text and text not in FILES.values())
    return str(text)


def run(text: str, **names: Any) -> dict[str, Any]:
    """Return the names that a piece of Python leaves behind."""
    module: dict[str, Any] = {"__name__": "an_example_of_the_page", **names}
    exec(compile(text, "write-a-sink.md", "exec", dont_inherit=True), module)
    return module


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository of a reader of the page, who has put its files in; installed in its directory `site`."""
    repository = create(Names.of("sink", "demo"), tmp_path_factory.mktemp("reader") / "demo")
    (repository / "src" / "cdc_sink_demo" / "database.py").unlink()
    for path, text in FILES.items():
        (repository / path).write_text(text)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run(
        [*command, "--no-build-isolation", "--target", repository / "site", repository],
        check=True,
        stdin=subprocess.DEVNULL,
    )
    return repository


def test_the_files_of_the_page_keep_every_promise(made: Path) -> None:
    assert sorted(Path(path).name for path in FILES) == ["options.py", "reader.py", "sink.py", "test_conformance.py"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(made)]
    environment: Mapping[str, str] = {**os.environ, "PYTHONPATH": str(made / "site")}
    done = subprocess.run(command, cwd=made, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_entry_points_of_the_page_are_those_that_are_made(made: Path) -> None:
    declared = tomllib.loads((made / "pyproject.toml").read_text())["project"]["entry-points"]
    shown = [tomllib.loads(text).get("project") for text in re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)]
    plugins, pipelines = (project["entry-points"] for project in shown if project)
    assert plugins["cdc_core.plugins"] == declared["cdc_core.plugins"]
    assert pipelines.keys() <= declared.keys()


def test_the_registration_of_the_page_is_the_one_that_is_made(made: Path) -> None:
    (shown,) = run(block("def cdc_register_sinks"))["cdc_register_sinks"]()
    (found,) = run((made / "src" / "cdc_sink_demo" / "plugin.py").read_text())["cdc_register_sinks"]()
    assert shown == dataclasses.replace(found, summary=shown.summary)


def test_every_field_of_a_registration_is_explained() -> None:
    section = PAGE.partition("## Registration")[2].partition("\n## ")[0]
    explained = {name for cell in re.findall(r"^\| (`.*?) \|", section, re.M) for name in re.findall(r"`(\w+)`", cell)}
    assert explained == {field.name for field in dataclasses.fields(SinkRegistration)}


def test_all_that_a_sink_knows_is_explained() -> None:
    section = PAGE.partition("What a sink knows")[2].partition("\n## ")[0]
    explained = set(re.findall(r"^\| `(\w+)` \|", section, re.M))
    assert explained == {field.name for field in dataclasses.fields(SinkContext)}


def test_every_method_of_a_sink_is_explained() -> None:
    explained = re.findall(r"^\*\*`(\w+)\(", PAGE, re.M)
    public = [name for name in vars(Sink) if not name.startswith("_") and callable(getattr(Sink, name))]
    assert sorted(explained) == sorted(["__init__", *public])


def test_the_ways_from_arrow_to_bytes_are_what_they_are_called() -> None:
    context = EncoderContext(changefeed="demo", envelope=EnvelopeOptions(), options=JsonOptions())
    orders = table("orders", {"id": INT8})
    batch = JsonEncoder(context).encode(rows(orders, [Change({"id": number}) for number in range(3)]), topic="orders")
    left = run(block("joined_lines"), batch=batch)
    assert left["keys"] == [b"[0]", b"[1]", b"[2]"]


def test_rows_that_are_too_large_are_named_as_on_the_page() -> None:
    send, posted = run(block("failures.append"))["send"], list[bytes]()
    with pytest.raises(PartialWriteError) as refused:
        send([b"a", b"large", b"c"], 7, 4, posted.append)
    assert posted == [b"a", b"c"]
    assert refused.value.failures == ((8, "the message has 5 bytes, the destination takes 4"),)


def test_the_options_of_the_page_are_parsed() -> None:
    cls = run(block("class ShelfOptions"))["ShelfOptions"]
    options = parse_options(cls, {"bucket": "b", "timeout": "500ms", "buffer_size": "1MB"}, owner="sink 'shelf'")
    assert (options.timeout, options.buffer_size, options.token) == (0.5, 1024 * 1024, None)
    with pytest.raises(ConfigError, match="'timeout' must be more than 0"):
        parse_options(cls, {"bucket": "b", "timeout": "0s"}, owner="sink 'shelf'")
    with pytest.raises(ConfigError, match="needs option 'bucket'"):
        parse_options(cls, {}, owner="sink 'shelf'")


def test_the_pipeline_of_the_page_asks_for_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    orders = run(block("def orders"))["orders"]
    monkeypatch.delenv("ORDERS_SOURCE", raising=False)
    with pytest.raises(ConfigError, match="ORDERS_SOURCE"):
        orders()
    monkeypatch.setenv("ORDERS_SOURCE", "postgresql://u@h/d")
    assert isinstance(orders(), Changefeed)


def test_a_promise_is_waived_as_the_page_shows() -> None:
    text = block("class TestShelf")
    suite = run(text, pytest=pytest, SinkRig=rig.SinkRig, TestDemo=SinkConformance)["TestShelf"]
    (name,) = (name for name in vars(suite) if name.startswith("test_"))
    assert hasattr(SinkConformance, name)


def test_the_server_of_the_page_serves_until_enter() -> None:
    command = [sys.executable, "-c", block("EmbeddedPostgres")]
    done = subprocess.run(command, input="\n", capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^export DEMO_SOURCE=postgresql://\S+ DEMO_TABLES=public.orders$", done.stdout, re.M)
