"""docs/write-a-function.md is complete, and its example keeps the promises."""

from __future__ import annotations

import dataclasses
import pickle
import tomllib
from pathlib import Path

import pyarrow as pa
import pytest
from cdc_testing.components import source_of
from cdc_testing.pages import Page

from cdc_core import FunctionRegistration
from cdc_core.delivery.called_function import CalledFunction
from cdc_core.errors import PluginLoadError
from cdc_core.plugins.host import PluginHost

PAGE = Page("write-a-function.md")


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FunctionRegistration:
    """The registration of the page's example, whose package can be imported."""
    monkeypatch.syspath_prepend(str(PAGE.written(tmp_path)))
    import cdc_places.plugin  # type: ignore[import-not-found]

    host = PluginHost([source_of(cdc_places.plugin, "cdc-places")])
    assert [row.problem for row in host.listing()] == [""]
    return host.function("distance_km")


def test_the_example_is_called_with_many_rows_and_fails_for_the_bad_one_only(example: FunctionRegistration) -> None:
    places = [[52.5, None, 48.9, 91.0, 0.0], [13.4, 0.0, 2.4, 0.0, 0.0]]
    berlin = [pa.repeat(pa.scalar(value), 5) for value in (52.5, 13.4)]
    values, failures = CalledFunction(example).values([*map(pa.array, places), *berlin])
    rounded = [None if value is None else round(value) for value in values.to_pylist()]
    assert rounded == [0, None, 871, None, 5970]
    assert failures == {3: "ValueError: a latitude is beyond a pole"}


def failing(values: pa.Array) -> pa.Array:
    raise ValueError(f"odd {chr(0xD800)} {values[0]}")


def test_any_text_of_an_error_can_be_kept(example: FunctionRegistration) -> None:
    function = f"{__name__}:failing"
    registration = dataclasses.replace(example, function=function, arguments=(pa.string(),), returns=pa.int64())
    values, failures = CalledFunction(registration).values([pa.array(["é"])])
    assert values.to_pylist() == [None]
    assert pa.array(failures.values(), pa.string()).to_pylist() == ["ValueError: odd \\ud800 é"]


def test_a_registration_crosses_a_process_border(example: FunctionRegistration) -> None:
    assert pickle.loads(pickle.dumps(example)) == example
    missing = dataclasses.replace(example, function="cdc_nowhere:f", install_hint="pip install cdc-nowhere")
    with pytest.raises(PluginLoadError, match=r"'distance_km' cannot be loaded: .*; pip install cdc-nowhere"):
        CalledFunction(missing)


def test_the_entry_point_of_the_page_names_its_plugin_module() -> None:
    (text,) = PAGE.blocks("toml")
    assert tomllib.loads(text)["project"]["entry-points"]["cdc_core.plugins"] == {"cdc_places": "cdc_places.plugin"}


@pytest.mark.slow
def test_the_package_of_the_page_passes_the_suite(tmp_path: Path) -> None:
    done = PAGE.run(PAGE.package(tmp_path), "pytest", "-q", "-p", "no:cacheprovider", "tests")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout
