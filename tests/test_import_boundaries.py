"""Who may import whom. The tree itself is checked, and the checker is checked on trees that break the rules."""

from __future__ import annotations

import importlib.util
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from cdc_testing.imports import LAYERS, ROOT, core_violations, cycles, imported_by, plugin_violations

import cdc_core
from cdc_core.cli.main import cdc
from cdc_core.spark.daemon import leave_out_jars
from cdc_core.store.database import Aggregate, Database

HEAVY = ("pyspark", "py4j", "polars", "fsspec", "psycopg", "adbc_driver_postgresql", "pytest", "pandas")


def test_the_core_imports_downwards_and_only_the_spark_package_imports_pyspark() -> None:
    assert core_violations(ROOT) == []


def test_plugins_import_from_the_core_itself_and_their_plugin_modules_only_describe() -> None:
    assert plugin_violations(ROOT) == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert cycles(ROOT) == []


OPENS_A_STORE = {"ProgressStore", "sqlite_file", "store_exists", "store_url", "stored_names"}


def test_doors_ask_the_service_and_know_of_the_store_only_values_and_errors() -> None:
    for path in [path for door in ("cli", "web") for path in (ROOT / "cdc_core" / door).rglob("*.py")]:
        imported = {name for _, name in imported_by(path) if name.startswith("cdc_core.store.")}
        found = {name: pkgutil.resolve_name(name) for name in imported if name.rsplit(".")[-1] not in OPENS_A_STORE}
        assert [name for name, each in found.items() if works_with_a_store(each)] == [], path
        assert re.findall(r"store\.\w+\.\w+\(", path.read_text()) == [], path


def works_with_a_store(imported: object) -> bool:
    """Return whether *imported* is not a value, an error or a function of these."""
    if not inspect.isroutine(imported):
        return inspect.ismodule(imported) or (inspect.isclass(imported) and issubclass(imported, Aggregate | Database))
    return bool({"store", "connection", "engine", "url"} & inspect.signature(imported).parameters.keys())


def test_no_door_over_http_takes_anything_from_another() -> None:
    doors = {door: list((ROOT / "cdc_core/web" / door).glob("*.py")) for door in ("connect", "page", "v1")}
    for door, paths in doors.items():
        imported = {name.split(".")[2] for path in paths for _, name in imported_by(path) if "_core.web." in name}
        assert imported & doors.keys() <= {door}


def test_every_module_and_package_of_the_core_has_its_layer() -> None:
    core = ROOT / "cdc_core"
    packages = {path.name for path in core.iterdir() if path.is_dir() and path.name != "__pycache__"}
    modules = {path.stem for path in core.glob("*.py") if not path.stem.startswith("__")}
    assert {name for layer in LAYERS for name in layer} == packages | modules


def test_each_package_of_the_core_says_in_one_sentence_what_belongs_there() -> None:
    for path in sorted((ROOT / "cdc_core").glob("*/__init__.py")):
        text = path.read_text()
        assert text.startswith('"""'), path
        assert text.endswith('."""\n'), path
        assert text.count("\n") == 1, path


COMMANDS = ("click", "rich", "alembic", "packaging", "cronsim")
PARSERS = ("sqlglot",)
STORE = ("sqlalchemy", "alembic")
OTHER_COMMANDS = ("cdc_core.cli.create", "cdc_core.cli.node", "cdc_core.cli.sql", "cdc_core.statements.parsing")


def test_a_command_loads_none_of_the_others_and_the_core_with_every_plugin_nothing_heavy() -> None:
    """`cdc run` would start Spark's JVM a quarter of a second later. The help lists all commands and loads none."""
    modules = "cdc_core, cdc_core.config.resolved, cdc_core.plugins.host, cdc_core.store.progress"
    helped, run, everything, runner = loaded_by(
        "import click\nfrom cdc_core.cli.main import cdc\nassert 'worker-res' in cdc.get_help(click.Context(cdc))",
        "from cdc_core.cli.main import cdc\nassert cdc.commands['run'].name == 'run'",
        f"import {modules}\ncdc_core.plugins.host.PluginHost.load()",
        "import cdc_core.spark.runner",
    )
    assert (
        helped & {*OTHER_COMMANDS, *PARSERS, *STORE, "cdc_core.cli.run", "cdc_core.config", "pyarrow", "numpy"} == set()
    )
    assert run & {*OTHER_COMMANDS, *PARSERS} == set()
    assert everything & set(HEAVY) == set()
    assert runner & set(PARSERS) == set()


def test_the_core_and_the_processes_of_spark_load_only_what_they_use() -> None:
    """Spark starts a dozen of them before the first row, most of them one after another.

    One interpreter imports all of them, as each may load what those before it may, and more.
    """
    unused = {
        "cdc_core": ("numpy", "pyarrow", "pluggy", *COMMANDS, *PARSERS, *STORE),
        "cdc_core.spark.data_sources": ("pyarrow", "numpy", "psycopg", *COMMANDS, *PARSERS, *STORE),
        "cdc_core.spark.query_layout": (*COMMANDS, *PARSERS, *STORE),
        "cdc_core.spark.daemon": ("click", "rich", "cronsim", *PARSERS),
    }
    loaded = loaded_by(*(f"import {process}" for process in unused))
    found = {process: names & {*unused[process]} for process, names in zip(unused, loaded, strict=True)}
    assert found == {process: set() for process in unused}


def test_workers_look_for_no_module_in_the_jar_that_spark_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python reads the names of all of its files, which takes longer than all that a worker imports itself."""
    jar = tmp_path / "spark-core.jar"
    with ZipFile(jar, "w") as archive:
        archive.writestr("in_the_jar.py", "")
    monkeypatch.setattr(sys, "path", [str(jar), *sys.path])
    monkeypatch.setattr(sys, "path_importer_cache", {**sys.path_importer_cache})
    assert importlib.util.find_spec("in_the_jar") is not None
    assert str(jar) in sys.path_importer_cache
    leave_out_jars()
    assert not {str(jar)} & {*sys.path, *sys.path_importer_cache}
    assert importlib.util.find_spec("in_the_jar") is None
    assert importlib.util.find_spec("cdc_core.uris") is not None


def test_every_command_has_the_name_that_it_is_found_by() -> None:
    assert {name: command.name for name, command in cdc.commands.items()} == {name: name for name in cdc.commands}


def test_every_public_name_is_found_in_one_module() -> None:
    for name in cdc_core.__all__:
        assert getattr(cdc_core, name) is not None
    assert set(cdc_core.__all__) <= set(dir(cdc_core))
    with pytest.raises(AttributeError, match="module 'cdc_core' has no attribute 'KafkaSink'"):
        _ = cdc_core.KafkaSink  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("place", "text", "complaint"),
    [
        (
            "cdc_core/config/a.py",
            "def f():\n    import cdc_sink_x.sink\n",
            "cdc_core/config/a.py:2 imports the plugin package cdc_sink_x",
        ),
        (
            "cdc_core/engine/a.py",
            "from pyspark.sql import Row\n",
            "cdc_core/engine/a.py:1 imports pyspark; only cdc_core/spark may",
        ),
        (
            "cdc_core/engine/a.py",
            "import cdc_core.spark.runner\n",
            "cdc_core/engine/a.py:1 imports cdc_core.spark.runner; spark is not below engine",
        ),
        (
            "cdc_core/options.py",
            "from cdc_core.config.resolve import resolve\n",
            "cdc_core/options.py:1 imports cdc_core.config.resolve.resolve; config is not below options",
        ),
        (
            "cdc_core/delivery/a.py",
            "from cdc_core.readback.reader import ChangeReader\n",
            "cdc_core/delivery/a.py:1 imports cdc_core.readback.reader.ChangeReader; readback is not below delivery",
        ),
        ("cdc_core/helpers.py", "import cdc_core.rows\n", "cdc_core/helpers.py:1 imports cdc_core.rows; no layer"),
        ("cdc_core/spark/a.py", "import cdc_sink_x\n", "cdc_core/spark/a.py:1 imports the plugin package cdc_sink_x"),
    ],
)
def test_the_checker_sees_what_the_core_must_not_import(tmp_path: Path, place: str, text: str, complaint: str) -> None:
    tree(tmp_path, {place: text})
    (found,) = core_violations(tmp_path)
    assert found.startswith(complaint)


@pytest.mark.parametrize("text", ["import fsspec", "from cdc_sink_x.sink import Sink", "from . import sink"])
def test_the_checker_sees_what_a_plugin_module_must_not_import(tmp_path: Path, text: str) -> None:
    tree(tmp_path, {"sinks/x/src/cdc_sink_x/plugin.py": text})
    (found,) = plugin_violations(tmp_path)
    assert found.startswith("sinks/x/src/cdc_sink_x/plugin.py:1 imports")


def test_the_checker_sees_a_plugin_that_imports_a_module_of_the_core(tmp_path: Path) -> None:
    tree(tmp_path, {"sinks/x/src/cdc_sink_x/sink.py": "from cdc_core import Sink\nfrom cdc_core.sink import Flushed\n"})
    (found,) = plugin_violations(tmp_path)
    assert found == (
        "sinks/x/src/cdc_sink_x/sink.py:2 imports cdc_core.sink.Flushed; a plugin imports from cdc_core itself"
    )


def test_the_checker_sees_a_circle_even_if_only_types_close_it(tmp_path: Path) -> None:
    back = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from cdc_sink_x.a import A\n"
    tree(tmp_path, {"sinks/x/src/cdc_sink_x/a.py": "from cdc_sink_x.b import B\n", "sinks/x/src/cdc_sink_x/b.py": back})
    assert set(cycles(tmp_path)) == {"cdc_sink_x.a", "cdc_sink_x.b"}


def test_the_checker_allows_what_is_allowed(tmp_path: Path) -> None:
    tree(
        tmp_path,
        {
            "cdc_core/spark/a.py": "import pyspark\nimport cdc_core.spark.b\nimport cdc_core.engine.c",
            "cdc_core/engine/c.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pyspark\n",
            "cdc_core/cli/d.py": "def f():\n    from cdc_core.spark.a import run\n",
            "sinks/x/src/cdc_sink_x/plugin.py": "import os\nimport pluggy\nfrom cdc_core import hookimpl",
        },
    )
    assert core_violations(tmp_path) + plugin_violations(tmp_path) + cycles(tmp_path) == []


def tree(root: Path, files: dict[str, str]) -> None:
    for place, text in {"sinks/x/src/cdc_sink_x/__init__.py": "", **files}.items():
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).write_text(text)


def loaded_by(*statements: str) -> list[set[str]]:
    """Return the modules that a new interpreter has after each of *statements*."""
    shown = "print(*sys.modules)"
    code = "\n".join(["import sys", *(line for statement in statements for line in (statement, shown))])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=180)
    return [set(line.split()) for line in done.stdout.splitlines()]
