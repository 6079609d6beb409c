"""An archive has what the core and its plugins need, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from importlib.metadata import distribution
from pathlib import Path

import pytest

from cdc_core import ConfigError
from cdc_core.cli.main import main
from cdc_core.plugins.pack import Pack


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The metadata of an installed plugin, whose requirements a test adds."""
    info = tmp_path / "site" / "cdc_sink_shelf-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: cdc-sink-shelf\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text("[cdc_core.plugins]\ncdc_sink_shelf = cdc_sink_shelf.plugin\n")
    monkeypatch.syspath_prepend(str(info.parent))
    return info / "METADATA"


def test_it_has_the_plugins_and_what_they_require_but_not_spark() -> None:
    found = Pack.of_this_environment().distributions
    assert {"cdc-core", "cdc-sink-kafka", "confluent-kafka", "pyarrow"} <= set(found)
    assert not {"pyspark", "py4j", "ruff"} & set(found)


def test_an_extra_counts_when_all_that_it_requires_is_installed(plugin: Path) -> None:
    with plugin.open("a") as metadata:
        for extra, needs in {"lint": "ruff", "more": "no-such-library", "both": "cdc-sink-shelf[lint,more]"}.items():
            metadata.write(f"Provides-Extra: {extra}\nRequires-Dist: {needs}; extra == '{extra}'\n")
    found = Pack.of_this_environment().distributions
    assert {"cdc-sink-shelf", "ruff"} <= set(found)


@pytest.mark.parametrize(
    ("requirement", "told"),
    [
        (
            "no-such-library>=2",
            "needs no-such-library>=2, which is not installed. Install cdc-sink-shelf again, with its dependencies",
        ),
        (
            "click >=8.*",
            "cannot be packed: its requirement 'click >=8.*' is not valid; install another version of it",
        ),
    ],
)
def test_a_requirement_that_is_not_installed_or_not_valid_is_named(plugin: Path, requirement: str, told: str) -> None:
    with plugin.open("a") as metadata:
        metadata.write(f"Requires-Dist: {requirement}\n")
    with pytest.raises(ConfigError) as raised:
        Pack.of_this_environment()
    assert str(raised.value) == f"cdc-sink-shelf {told}"


def test_its_packages_work_where_nothing_else_is_installed(tmp_path: Path) -> None:
    """Among them one of several modules, and one whose extension modules bring their libraries along."""
    archive = tmp_path / "environment.tar.gz"
    archive.write_text("an earlier one")
    Pack({name: distribution(name) for name in ("psycopg", "psycopg-binary", "typing-extensions")}).write(archive)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["environment.tar.gz"]
    with tarfile.open(archive) as packed:
        assert not [name for name in packed.getnames() if name.startswith("..") or name.endswith(".pyc")]
        packed.extractall(tmp_path / "there", filter="data")
    code = "import importlib.metadata, psycopg; print(psycopg.pq.__impl__, importlib.metadata.version('psycopg'))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": str(tmp_path / "there")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["binary", distribution("psycopg").version]


def test_a_package_in_editable_mode_is_refused_and_leaves_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pack", str(tmp_path / "environment.tar.gz")]) == 2
    assert "cannot be packed: it is installed in editable mode" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_was_removed_is_named_with_its_package(plugin: Path, tmp_path: Path) -> None:
    (plugin.parent / "RECORD").write_text("hook.pth,,\ncdc_sink_shelf/plugin.py,,\n")
    (plugin.parents[1] / "hook.pth").write_text("")  # no sign of editable mode
    pack = Pack({"cdc-sink-shelf": distribution("cdc-sink-shelf")})
    missing = plugin.parents[1] / "cdc_sink_shelf" / "plugin.py"
    with pytest.raises(ConfigError) as raised:
        pack.write(tmp_path / "environment.tar.gz")
    assert str(raised.value) == (f"cdc-sink-shelf cannot be packed: its file {missing} is missing; install it again")


def test_a_file_that_is_a_link_is_packed_with_its_contents(plugin: Path, tmp_path: Path) -> None:
    (plugin.parent / "RECORD").write_text("hook.pth,,\n")
    (tmp_path / "cached").write_text("contents")
    (plugin.parents[1] / "hook.pth").symlink_to(tmp_path / "cached")
    Pack({"cdc-sink-shelf": distribution("cdc-sink-shelf")}).write(tmp_path / "environment.tar.gz")
    with tarfile.open(tmp_path / "environment.tar.gz") as packed:
        (tmp_path / "cached").unlink()
        packed.extractall(tmp_path / "there", filter="data")
    assert (tmp_path / "there" / "hook.pth").read_text() == "contents"


def test_an_archive_that_spark_would_not_unpack_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pack", "environment.zip"]) == 2
    assert capsys.readouterr().err == "error: environment.zip must end in .tar.gz, so that Spark unpacks it\n"
