""".ci/release.py finds what keeps a tree from being released, and lists what a release is made of."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / ".ci"))
    return importlib.import_module("release")


@pytest.fixture
def tree(release: ModuleType, tmp_path: Path) -> object:
    """What a release reads of the tree, in a repository of its own."""
    wanted = ["pyproject.toml", "*/*/pyproject.toml", "CHANGELOG.md", "deploy/**/*.yaml", "docs/**/*.md"]
    for path in {path for pattern in wanted for path in ROOT.glob(pattern)}:
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    commit(tmp_path, "v0.0.1")
    return release.Tree(tmp_path)


def commit(directory: Path, tag: str) -> None:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
    for command in (["add", "."], [*who, "commit", "-qm", "all"], ["tag", tag]):
        subprocess.run(["git", *command], cwd=directory, check=True)


def test_this_tree_can_become_a_release(release: ModuleType) -> None:
    assert list(release.Tree().problems(released=False)) == []


def test_a_prepared_and_tagged_tree_can_be_released(tree: ModuleType) -> None:
    tree.prepare("1.20.3", "2027-01-31")
    assert "## 1.20.3 (2027-01-31)\n" in tree.changelog.read_text()
    assert "version: 1.20.3\nappVersion: 1.20.3" in tree.chart.read_text()
    assert '"cdc-core>=1.20"' in (tree.root / "sinks" / "kafka" / "pyproject.toml").read_text()
    assert '"cdc-conformance>=1.20"' in (tree.root / "plugins" / "template" / "pyproject.toml").read_text()
    for path in ("docs/deploy.md", "deploy/kubernetes/nodes.yaml"):
        assert set(re.findall(r"cdc-node:([\d.]+)", (tree.root / path).read_text())) == {"1.20.3"}
    assert list(tree.problems(released=True)) == ["files are not committed", "the commit has no tag v1.20.3"]
    commit(tree.root, "v1.20.3")
    assert list(tree.problems(released=True)) == []


def test_a_version_after_a_release_has_a_section_of_its_own(tree: ModuleType) -> None:
    tree.prepare("1.0.0", "2027-01-31")
    tree.prepare("1.0.1", "2027-02-01")
    assert tree.changelog.read_text().startswith("# Changelog\n\n## 1.0.1 (2027-02-01)\n\n## 1.0.0 (2027-01-31)\n")


def test_a_version_that_is_prepared_twice_has_one_section(tree: ModuleType) -> None:
    tree.prepare("1.0.0", "2027-01-31")
    once = tree.changelog.read_text()
    tree.prepare("1.0.0", "2027-02-01")
    assert tree.changelog.read_text() == once.replace("1.0.0 (2027-01-31)", "1.0.0 (2027-02-01)")


def test_what_is_wrong_is_named(tree: ModuleType) -> None:
    kafka = tree.root / "sinks" / "kafka" / "pyproject.toml"
    kafka.write_text(
        kafka.read_text().replace('version = "0.1.0"', 'version = "0.2.0"').replace("core>=0.1", "core>=0.2")
    )
    template = tree.root / "plugins" / "template" / "pyproject.toml"
    template.write_text(template.read_text().replace("conformance>=0.1", "conformance>=0.0"))
    tree.changelog.write_text("# Changelog\n\n## 0.2.0 (unreleased)\n")
    tree.chart.write_text("version: 0.1.0\nappVersion: 0.0.9\n")
    assert list(tree.problems(released=False)) == [
        "cdc-sink-kafka has version 0.2.0, cdc-core has 0.1.0",
        "cdc-sink-kafka requires cdc-core>=0.2; require cdc-core>=0.1",
        "cdc-sink-template requires cdc-conformance>=0.0; require cdc-conformance>=0.1",
        "the first section of CHANGELOG.md is not that of 0.1.0",
        "deploy/helm/cdc/Chart.yaml has another version than 0.1.0",
    ]
    tree.changelog.write_text("# Changelog\n\n## 0.1.0 (soon)\n")
    assert "the section of 0.1.0 in CHANGELOG.md has no date" in list(tree.problems(released=False))


def test_what_others_need_is_uploaded_before_them(release: ModuleType) -> None:
    order = list(release.Tree().projects())
    assert order[0] == "cdc-core"
    assert order.index("cdc-schema-registry") < order.index("cdc-encoder-avro")
    assert not [name for name in order if "template" in name]


def test_the_bill_of_materials_names_what_is_installed_with_each_distribution(release: ModuleType) -> None:
    names = list(release.Tree().projects())
    bill = json.loads(importlib.import_module("bill_of_materials").bill_of_materials("0.1.0", names))
    found = {each["name"]: each for each in bill["components"]}
    assert {*names, "click", "confluent-kafka", "pyarrow", "pyspark", "htmx.min.js"} <= found.keys()
    assert not {"mypy", "ruff", "sphinx"} & found.keys()
    assert found["click"]["purl"].startswith("pkg:pypi/click@")
    needs = {each["ref"]: each.get("dependsOn", []) for each in bill["dependencies"]}
    assert "pypi:cdc-core" in needs["pypi:cdc-sink-kafka"]
    assert "pypi:mako" in needs["pypi:alembic"]
