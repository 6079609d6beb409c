"""The tree itself: every distribution has the one shape, is installed for development, and says what it needs."""

from __future__ import annotations

import re
import subprocess
import tomllib
from importlib.metadata import distributions, entry_points
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
TEMPLATES = [ROOT / "plugins" / name for name in ("template", "template_encoder", "template_rangefeed")]
"""What `cdc new-plugin` copies: strangers' repositories, which are installed by no one here."""
MEMBERS = sorted(path.parent for path in ROOT.glob("*/*/pyproject.toml") if path.parent not in TEMPLATES)
EVERY = [ROOT, *MEMBERS]
TOOLS = ("conformance",)
"""Members that add to pytest and to the command, and no component."""
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
"""What every distribution runs on. .ci/check_pythons.py tries those that are here."""
_PLUGIN_NAME = re.compile("cdc-(rangefeed|encoder|sink)-")


def project(member: Path) -> dict[str, Any]:
    return tomllib.loads((member / "pyproject.toml").read_text())


def names(paths: list[Path]) -> list[str]:
    return [project(path)["project"]["name"] for path in paths]


def plugins() -> list[Path]:
    return [member for member in MEMBERS if _PLUGIN_NAME.match(project(member)["project"]["name"])]


def libraries() -> list[Path]:
    """Return the members that only other members use."""
    return [member for member in MEMBERS if member not in plugins() and member.name not in TOOLS]


def package(member: Path) -> Path:
    (source,) = project(member)["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    return member / source


def test_there_are_members() -> None:
    assert {"cdc-encoder-json", "cdc-rangefeed-postgres", "cdc-sink-cloudstorage"} <= set(names(MEMBERS))


def test_plain_pip_installs_every_member_for_development() -> None:
    lines = (ROOT / "requirements-dev.txt").read_text().splitlines()
    editable = {re.sub(r"\[.*", "", line.removeprefix("-e ./")) for line in lines if line.startswith("-e ./")}
    assert editable == {str(member.relative_to(ROOT)) for member in MEMBERS}
    assert any(line.startswith("-e .[") for line in lines)


@pytest.mark.parametrize("member", MEMBERS, ids=names(MEMBERS))
def test_a_member_has_the_shape_of_all(member: Path) -> None:
    assert (member / "README.md").read_text().startswith("# ")
    source = package(member)
    assert source.parent == member / "src"
    assert {"__init__.py", "py.typed"} <= {path.name for path in source.iterdir()}
    assert list((member / "tests").glob("test_*.py"))
    assert not list((member / "tests").rglob("__init__.py"))


@pytest.mark.parametrize("member", MEMBERS, ids=names(MEMBERS))
def test_a_member_is_named_after_its_package(member: Path) -> None:
    assert project(member)["project"]["name"].replace("-", "_") == package(member).name


@pytest.mark.parametrize("member", [*plugins(), *TEMPLATES], ids=names([*plugins(), *TEMPLATES]))
def test_a_plugin_registers_like_a_stranger(member: Path) -> None:
    source = package(member)
    assert {"options.py", "plugin.py"} <= {path.name for path in source.iterdir()}
    registered = project(member)["project"]["entry-points"]["cdc_core.plugins"]
    assert registered == {source.name: f"{source.name}.plugin"}


@pytest.mark.parametrize("member", libraries(), ids=names(libraries()))
def test_a_library_registers_nothing_and_says_what_is_public(member: Path) -> None:
    source = package(member)
    assert "entry-points" not in project(member)["project"]
    assert not (source / "plugin.py").exists()
    assert "__all__ = [" in (source / "__init__.py").read_text()


@pytest.mark.parametrize("member", [*EVERY, *TEMPLATES], ids=names([*EVERY, *TEMPLATES]))
def test_every_distribution_is_typed_and_of_one_python(member: Path) -> None:
    declared = project(member)["project"]
    assert (package(member) / "py.typed").exists()
    assert declared["requires-python"] == f">={PYTHONS[0]}"
    versions = [line.rpartition(" ")[2] for line in declared["classifiers"] if re.search(r"Python :: 3\.\d", line)]
    assert versions == PYTHONS
    assert "Typing :: Typed" in declared["classifiers"]
    assert declared["description"]


@pytest.mark.parametrize("member", MEMBERS, ids=names(MEMBERS))
def test_tools_are_configured_at_the_root_alone(member: Path) -> None:
    assert set(project(member)["tool"]) == {"hatch", "uv"}
    assert not [
        name for name in ("ruff.toml", "mypy.ini", "pytest.ini", "setup.cfg", "tox.ini") if (member / name).exists()
    ]


@pytest.mark.parametrize("template", TEMPLATES, ids=names(TEMPLATES))
def test_a_template_is_a_stranger(template: Path) -> None:
    assert str(template.relative_to(ROOT)) in project(ROOT)["tool"]["uv"]["workspace"]["exclude"]
    assert "uv" not in project(template)["tool"]
    assert project(template)["project"]["name"] not in {distribution.name for distribution in distributions()}


def test_the_types_of_every_member_are_checked() -> None:
    sources = {str(package(member).parent.relative_to(ROOT)) for member in [*MEMBERS, *TEMPLATES]}
    assert sources <= set(project(ROOT)["tool"]["mypy"]["mypy_path"])
    assert "$(wildcard */*/src)" in (ROOT / "Makefile").read_text()


def test_the_image_contains_every_member_but_the_kit() -> None:
    text = (ROOT / "deploy" / "container" / "Containerfile").read_text()
    (command,) = re.findall(r"pip wheel (.*?)\nARG", text.replace("\\\n", ""), re.DOTALL)
    sources = [pattern.removeprefix("/src").lstrip("/") or "." for pattern in command.split() if "/src" in pattern]
    installed = {path for pattern in sources for path in ([ROOT] if pattern == "." else ROOT.glob(pattern))}
    assert installed == {*EVERY} - {ROOT / "plugins" / "conformance"}


def test_no_committed_file_names_a_package_server_or_pins_one() -> None:
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    files = [ROOT / name for name in tracked.stdout.split("\0") if name]
    assert not [path for path in files if path.name in ("uv.lock", "pip.conf", "settings.xml", ".npmrc")]
    server = re.compile("--(extra-)?" + "index-url|" + "find-" + "links|trusted-" + "host")
    texts = (path for path in files if path.is_file() and path.suffix not in (".png", ".gz", ".zst"))
    assert not [path for path in texts if server.search(path.read_text(errors="replace"))]


@pytest.mark.parametrize("name", ["kafka", "postgres"])
def test_a_demo_is_found_by_its_entry_point(name: str) -> None:
    (found,) = entry_points(group="cdc_core.demos", name=name)
    assert callable(found.load())
