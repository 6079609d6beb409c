"""What modules of a plugin import, as a new process sees it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from cdc_conformance.processes import assert_light

from cdc_core import SinkRegistration

REGISTRATION = SinkRegistration(
    name="mine",
    summary="",
    options="",
    schemes=("mine",),
    sink="mine:Sink",
    resolved_sink="mine:ResolvedSink",
    destination="mine:Destination",
    output="messages",
)


@pytest.mark.parametrize(("imported", "found"), [("pyarrow.parquet", "pyarrow"), ("psutil", "psutil")])
def test_a_library_is_found_even_if_the_core_loads_other_parts_of_it(
    imported: str, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"with_{found}.py").write_text(f"import {imported}\nfrom cdc_core import RowBatch, SinkContext")
    monkeypatch.syspath_prepend(tmp_path)
    registration = replace(REGISTRATION, options=f"with_{found}:Options")
    with pytest.raises(AssertionError, match=rf"importing with_{found} also imports \['{found}'\]"):
        assert_light("sink", registration)
