"""`cdc new-plugin`: a repository for a plugin of one's own, complete and under test from its first minute."""

from __future__ import annotations

import keyword
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from cdc_core.errors import ConfigError
from cdc_core.pipelines import pipeline_names
from cdc_core.plugin_host import PluginHost

__all__ = ["Names", "create", "new_plugin", "template_files"]

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_LONGEST = 24
_WORD = re.compile("cdc_sink_template|TEMPLATE|Template|template")
_NOT_THE_TEMPLATE = {"__pycache__", ".pytest_cache", ".ruff_cache", ".mypy_cache", ".venv", "build", "dist"}
"""Directories that work in the template leaves behind."""


@dataclass(frozen=True, slots=True)
class Names:
    """Every form of a plugin's name. `name` is what it is registered under, and its URI scheme."""

    name: str

    @classmethod
    def of(cls, name: str) -> Names:
        """Return the forms of *name*. Raises: ConfigError when it cannot be a distribution, a module and a scheme."""
        if not _NAME.fullmatch(name) or len(name) > _LONGEST:
            raise ConfigError(
                f"'{name}' cannot name a plugin: a name has up to {_LONGEST} small letters and digits, begins with a "
                "letter, and may have single hyphens between words, such as 'shelf' or 'redis-stream'"
            )
        if keyword.iskeyword(name):
            raise ConfigError(f"'{name}' cannot name a plugin: it is a keyword of Python")
        return cls(name)

    @property
    def distribution(self) -> str:
        return f"cdc-sink-{self.name}"

    @property
    def package(self) -> str:
        return self.distribution.replace("-", "_")

    @property
    def prefix(self) -> str:
        """How class names begin."""
        return "".join(word.capitalize() for word in self.name.split("-"))

    @property
    def variables(self) -> str:
        """How environment variables begin."""
        return self.name.replace("-", "_").upper()

    def put_into(self, text: str) -> str:
        """Return *text* of the template with this name in the place of the template's."""
        forms = {
            "cdc_sink_template": self.package,
            "TEMPLATE": self.variables,
            "Template": self.prefix,
            "template": self.name,
        }
        return _WORD.sub(lambda found: forms[found[0]], text)


@click.command("new-plugin", short_help="Make a repository for a plugin of your own.")
@click.argument("kind", type=click.Choice(["sink", "encoder", "rangefeed"]))
@click.argument("name")
@click.option("--directory", metavar="DIR", type=click.Path(path_type=Path), help="Where. Default: cdc-sink-NAME.")
def new_plugin(kind: str, name: str, directory: Path | None) -> int:
    """Make a repository for the plugin NAME: a package that works, its conformance test, and CI.

    The sink that it begins with appends messages to a table of a SQLite file; change it until it writes where yours
    shall. Its suite is green before you begin, and says what is no longer true while you work.
    """
    if kind != "sink":
        article = "an" if kind == "encoder" else "a"
        raise ConfigError(
            f"there is no repository to copy for {article} {kind}: docs/write-{article}-{kind}.md of cdc-core shows "
            "what it needs"
        )
    names = Names.of(name)
    target = create(names, Path(names.distribution) if directory is None else directory)
    click.echo(f"{names.distribution} is in {target}. What comes next, in a virtual environment:\n")
    for command in (f"cd {shlex.quote(str(target))}", "pip install -e '.[test,pipeline]'", "pytest", f"cdc run {name}"):
        click.echo(f"  {command}")
    click.echo("\nThe last one says what it wants to know. docs/write-a-sink.md explains the rest.")
    return 0


def create(names: Names, target: Path) -> Path:
    """Write the repository of the plugin *names* to *target* and return that.

    Raises: ConfigError when something installed has the name, or *target* is not a new or empty directory.
    """
    _refuse_taken(names)
    try:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise ConfigError(f"'{target}' is there already and is not empty: choose another --directory")
        for source, relative in template_files():
            path = target / names.put_into(relative)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(names.put_into(source.read_text(encoding="utf-8")), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"'{error.filename}' cannot be written: {error.strerror}") from error
    return target


def template_files() -> Iterator[tuple[Path, str]]:
    """Yield each file of the template with its path inside: shipped in the wheel, beside this package in the tree.

    In the wheel its modules have the suffix `.py.txt`.
    """
    shipped = Path(__file__).parent / "template"
    root = shipped if shipped.is_dir() else Path(__file__).parents[3] / "template"
    for path in sorted(root.rglob("*")):
        relative = path.relative_to(root)
        if path.is_file() and not _NOT_THE_TEMPLATE & set(relative.parts):
            yield path, relative.as_posix().removesuffix(".txt")


def _refuse_taken(names: Names) -> None:
    for listed in PluginHost.load().listing():
        if listed.kind == "sink" and names.name in (listed.name, *listed.schemes):
            raise ConfigError(
                f"'{names.name}' is taken: {listed.distribution} {listed.version} registers a sink of that name or URI "
                "scheme; choose another name"
            )
    if names.name in pipeline_names():
        raise ConfigError(f"'{names.name}' is taken: an installed package publishes a pipeline of that name")
