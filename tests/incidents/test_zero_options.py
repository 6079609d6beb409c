from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cdc_conformance.simulated import SimulatedDatabase
from cdc_testing.local_engine import LocalEngine, resolved_feed

from cdc_core import ConfigError
from cdc_core.config.changefeed_options import ChangefeedOptions
from cdc_core.config.parts import Parts
from cdc_core.plugins.classes import load_class
from cdc_core.plugins.host import PluginHost

POSTGRES = "postgresql://user@localhost/db"
SINKS = {"kafka": "kafka://localhost:9092", "webhook": "webhook-http://127.0.0.1:9/hook"}
SCAN = {"initial_scan": "only", "updated": False, "resolved": False}


def declared() -> Iterator[tuple[str, str, type]]:
    """Yield kind, name and options class of every installed component, and of the core."""
    host = PluginHost.load()
    yield "core", "", ChangefeedOptions
    for listed in host.listing():
        if listed.kind:
            registration = host.component(listed.kind, listed.name)
            yield listed.kind, listed.name, load_class(registration.options, owner=listed.name)


def numbers(cls: type) -> list[str]:
    """Return the options of *cls* that can be given as 0: numbers, durations and sizes."""
    hints = typing.get_type_hints(cls)
    found = []
    for field in dataclasses.fields(cls):
        choices = typing.get_args(hints[field.name]) or (hints[field.name],)
        if any(getattr(choice, "__supertype__", choice) in (int, float) for choice in choices):
            found.append(field.name)
    return found


def all_options(cls: type) -> list[str]:
    return [field.name for field in dataclasses.fields(cls)]


LOCAL = {("core", ""), ("rangefeed", "simulated"), ("encoder", "json"), ("sink", "cloudstorage")}
"""What a run needs no server for."""
CASES = [
    pytest.param(kind, name, option, value, id=f"{name or kind}.{option}={value!r}")
    for kind, name, cls in declared()
    for value, options in ((0, numbers(cls)), ("", all_options(cls)))
    for option in options
]


@pytest.mark.parametrize(("kind", "name", "option", "value"), CASES)
def test_an_option_of_zero_or_nothing_works_or_is_refused_with_a_sentence(
    db: SimulatedDatabase,
    tmp_path: Path,
    faults: Callable[..., list[str]],
    kind: str,
    name: str,
    option: str,
    value: Any,
) -> None:
    """#164894: a checkpoint frequency of 0 was accepted, and then nothing ever advanced."""
    db.create_table("t")
    db.put("t", id=1, n=1)
    source = POSTGRES if name == "postgres" else db.uri
    sink = SINKS.get(name, f"file://{tmp_path}/out")
    options: dict[str, Any] = {option: value, **(SCAN if name == "csv" else {})}
    if option == "max_retry_backoff":
        options["retry_backoff"] = 0
    try:
        resolved = resolved_feed(source, sink, "t", format_=name if kind == "encoder" else "json", options=options)
        if (kind, name) not in LOCAL:
            Parts(resolved).open_rangefeed().close()
            Parts(resolved).open_sink().close()
            return
        feed = LocalEngine(resolved, tmp_path)
        feed.run()
        feed.until(db.now, most=100)
        db.put("t", id=1, n=2)
        feed.until(db.now, most=100)
    except ConfigError as error:
        text = str(error)
        assert option in text.lower(), f"the refusal does not name the option: {text}"
        assert len(text.split()) > 4, f"the refusal is no sentence: {text}"
        return
    topic = "sim.public.t" if option == "full_table_name" else "t"
    assert faults([topic], exact=False, least=2) == []
