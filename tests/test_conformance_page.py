"""docs/conformance.md shows the real output of the kit."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cdc_conformance import validators
from cdc_conformance.guard import complaint
from cdc_conformance.sinks import SinkConformance
from cdc_conformance.validators import OrderValidator, ResolvedValidator
from cdc_testing.decoders import KEYED, json_decoder
from cdc_testing.pages import Page
from cdc_testing.seen import feed, mark, row

from cdc_core import Endpoint, StoredMessage

PAGE = Page("conformance.md")
SABOTEUR = """
import pytest
from cdc_conformance.sabotage.sinks import SABOTEURS, SUITE

class TestShelf(SUITE):
    sink = SABOTEURS["test_flush_is_a_barrier"]
"""


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines()]


@pytest.mark.slow
def test_the_failure_on_the_page_is_that_of_a_saboteur(tmp_path: Path) -> None:
    (tmp_path / "test_shelf.py").write_text(SABOTEUR)
    chosen = ["-k", "test_flush_is_a_barrier"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen, str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    (shown,) = (text for text in PAGE.blocks("text") if "def test_flush_is_a_barrier" in text)
    said = lines(done.stdout)
    first = said.index(lines(shown)[0])
    assert said[first : first + len(lines(shown))] == lines(shown)


def test_the_refusal_on_the_page_is_that_of_an_override() -> None:
    class TestShelf(SinkConformance):
        sink = "cloudstorage"

        def test_flush_is_a_barrier(self) -> None:  # type: ignore[override]
            """Overridden without a reason."""

    (shown,) = (text for text in PAGE.blocks("text") if "overrides a promise" in text)
    assert complaint(TestShelf) == shown.strip()


@pytest.mark.slow
def test_the_table_of_saboteurs_is_that_on_the_page() -> None:
    command = [sys.executable, "-m", "cdc_conformance.sabotage", "--kind", "sink", "--only", "test_flush_is_a_barrier"]
    done = subprocess.run(command, capture_output=True, text=True)
    (shown,) = (text for text in PAGE.blocks("text") if "SABOTEUR" in text)
    assert lines(done.stdout)[:2] == lines(shown), done.stderr


def test_every_validator_is_on_the_page() -> None:
    table = PAGE.section("Validators")
    for name in validators.__all__:
        if inspect.isclass(getattr(validators, name)) and name.endswith("Validator") and name != "Validator":
            assert f"`{name}`" in table, name


def test_messages_are_validated_as_on_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    class Reader:
        def endpoints(self) -> list[Endpoint]:
            return [("orders", 0)]

        def read(self) -> Iterator[StoredMessage]:
            for key, value in (
                (b"[1]", b'{"after": null, "updated": "1.0000000000"}'),
                (None, b'{"resolved": "1.0000000000"}'),
            ):
                yield StoredMessage(topic="orders", partition=0, key=key, value=value)

    names: dict[str, Any] = {"reader": Reader(), "decoder": json_decoder(), "schema": KEYED}
    (text,) = (text for text in PAGE.blocks("python") if "validate(" in text)
    exec(compile(text, PAGE.name, "exec", dont_inherit=True), names)
    assert capsys.readouterr().out == "1 rows 1 marks\n"


def test_failures_of_validators_are_those_on_the_page() -> None:
    table = PAGE.section("Validators").replace("orders", "t")
    moved = [row(7, 5, at=1), row(7, 3, at=1), mark(5, at=1), row(8, 5, at=1), row(7, 6, at=0)]  # type: ignore[arg-type]
    later, resolved, partitions = feed(OrderValidator(), *moved)
    (unmarked,) = feed(ResolvedValidator([("t", 0), ("t", 1)]), mark(5, at=0), mark(6, at=0), mark(6, at=1))
    assert f"`{later}`" in table
    assert f"`… {resolved.partition('timestamp 5.0000000000 ')[2]}`" in table
    assert partitions.replace("1 and 0", "0 and 1") in table
    assert f"`{unmarked}`" in table
