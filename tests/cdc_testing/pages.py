"""The packages that pages of the documents show, put together as a reader would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

_ROOT = Path(__file__).resolve().parents[2]


class Command(NamedTuple):
    """What a page tells its reader to type: below which heading, and in which language."""

    heading: str
    language: str
    text: str


@dataclass(frozen=True)
class Page:
    """A page of `docs`."""

    name: str

    @property
    def text(self) -> str:
        return (_ROOT / "docs" / self.name).read_text()

    def blocks(self, language: str) -> list[str]:
        """Return the fenced blocks in *language*."""
        return re.findall(rf"```{language}\n(.*?)```", self.text, re.DOTALL)

    def commands(self) -> list[Command]:
        """Return the commands of the page in order: what follows a prompt, and whole blocks of SQL and of scripts."""
        found: list[Command] = []
        for section in re.split(r"(?m)^## ", f"\n{self.text}"):
            heading, _, text = section.partition("\n")
            for language, block in re.findall(r"(?m)^ *```(console|sql|sh)\n((?s:.*?))^ *```$", text):
                typed = re.findall(r"(?m)^ *\$ ((?:.*\\\n)*.*)", block) if language == "console" else [block]
                found.extend(Command(heading, language, each) for each in typed)
        return found

    def function(self, name: str) -> Callable[..., Any]:
        """Return the function *name* that a block of the page defines."""
        (text,) = (text for text in self.blocks("python") if f"def {name}(" in text)
        found: dict[str, Any] = {}
        exec(text, found)
        return found[name]  # type: ignore[no-any-return]

    def section(self, heading: str) -> str:
        """Return the text below a heading."""
        return self.text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]

    def first_cells(self, heading: str) -> list[str]:
        """Return the code that the first cells of the tables below a heading name."""
        cells = re.findall(r"^\| (`.*?) \|", self.section(heading), re.MULTILINE)
        return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]

    def no_fixtures(self, suite: type) -> set[str]:
        """Return the names in the section on the suite that *suite* has no fixture of; capabilities are left out."""
        text = self.section("The suite").partition("<!-- capabilities")[0]
        named = set(re.findall(r"`([a-z_]+)`", text))
        return {name for name in named if not hasattr(suite, name)}

    def files(self) -> dict[str, str]:
        """Return the Python files that the page shows, by the path that stands in their first line."""
        found = ((re.match(r"# ((?:src|tests)/\S+)\n", text), text) for text in self.blocks("python"))
        return {match[1]: text for match, text in found if match is not None}

    def written(self, directory: Path) -> Path:
        """Return from where to import the page's Python files when they are below *directory*."""
        for path, text in self.files().items():
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            (directory / path).write_text(text)
        return directory / "src"

    def package(self, directory: Path) -> Path:
        """Return *directory* when the page's files make a package there, installed in its directory `site`."""
        sources = self.written(directory)
        (project,) = (text for text in self.blocks("toml") if "build-system" in tomllib.loads(text))
        (directory / "pyproject.toml").write_text(project)
        for package in sources.iterdir():
            (package / "__init__.py").touch()
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run(
            [*command, "--no-build-isolation", "--target", directory / "site", directory],
            check=True,
            stdin=subprocess.DEVNULL,
        )
        return directory

    def run(self, directory: Path, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a Python module with arguments where the package is installed."""
        return subprocess.run(
            [sys.executable, "-m", *command],
            cwd=directory,
            env={**os.environ, "PYTHONPATH": str(directory / "site")},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )

    def shell(self, directory: Path, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a script of bash with the commands of this installation in *directory*."""
        return subprocess.run(
            ["bash", "-c", script],
            cwd=directory,
            env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
        )
