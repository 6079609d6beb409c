"""`cdc new-plugin`: a repository for a plugin of one's own, complete and under test from its first minute."""

from __future__ import annotations

import keyword
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from cdc_core.config.pipelines import pipeline_names
from cdc_core.errors import ConfigError
from cdc_core.plugins.host import PluginHost

__all__ = ["Names", "create", "new_plugin", "template_files"]

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_LONGEST = 24
_WORD = re.compile("cdc_(?:sink|encoder|rangefeed)_template|TEMPLATE|Template|template")
_TREE = {"sink": "template", "encoder": "template_encoder", "rangefeed": "template_rangefeed"}
"""By kind, the template's directory beside this distribution's in the tree."""
_NOT_THE_TEMPLATE = {"__pycache__", ".pytest_cache", ".ruff_cache", ".mypy_cache", ".venv", "build", "dist"}
"""Directories that work in the template leaves behind."""
_MARKERS = re.compile(r"<!-- options: (begin|end) -->\n")
"""Between these the options table of the template is generated; a new repository keeps its table itself."""


@dataclass(frozen=True, slots=True)
class Names:
    """Every form of a plugin's name. `name` is what it is registered under, and its URI scheme if it has one."""

    kind: str
    name: str

    @classmethod
    def of(cls, kind: str, name: str) -> Names:
        """Return the forms of *name*. Raises: ConfigError when it cannot be a distribution, a module and a scheme."""
        if not _NAME.fullmatch(name) or len(name) > _LONGEST:
            raise ConfigError(
                f"'{name}' cannot name a plugin: a name has up to {_LONGEST} small letters and digits, begins with a "
                "letter, and may have single hyphens between words, such as 'shelf' or 'redis-stream'"
            )
        if keyword.iskeyword(name):
            raise ConfigError(f"'{name}' cannot name a plugin: it is a keyword of Python")
        return cls(kind, name)

    @property
    def distribution(self) -> str:
        return f"cdc-{self.kind}-{self.name}"

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

    @property
    def next_steps(self) -> tuple[str, ...]:
        """The commands that come next, in the new repository and a virtual environment."""
        if self.kind == "sink":
            return ("pip install -e '.[test,pipeline]'", "pytest", f"cdc run {self.name}")
        where = f" --uri '{self.name}://…'" if self.kind == "rangefeed" else ""
        return ("pip install -e '.[test]'", "pytest", f"cdc verify {self.kind} {self.name}{where}")

    def put_into(self, text: str) -> str:
        """Return *text* of the template with this name in the place of the template's."""
        forms = {"TEMPLATE": self.variables, "Template": self.prefix, "template": self.name}
        return _WORD.sub(lambda found: forms.get(found[0], self.package), text)


@click.command("new-plugin", short_help="Make a repository for a plugin of your own.")
@click.argument("kind", type=click.Choice(["sink", "encoder", "rangefeed"]))
@click.argument("name")
@click.option("--directory", metavar="DIR", type=click.Path(path_type=Path), help="Where. Default: cdc-KIND-NAME.")
def new_plugin(kind: str, name: str, directory: Path | None) -> int:
    """Make a repository for the plugin NAME: a package that works, its conformance test, and CI.

    A sink begins as one that appends messages to a table of a SQLite file, with a pipeline to run; an encoder as one
    that writes rows as forms of the web; a rangefeed as one that reads a journal, a file of transactions. Change it
    until it does what yours shall. Its suite is green before you begin, and says what is no longer true while you work.
    """
    names = Names.of(kind, name)
    target = create(names, Path(names.distribution) if directory is None else directory)
    click.echo(f"{names.distribution} is in {target}. What comes next, in a virtual environment:\n")
    for command in (f"cd {shlex.quote(str(target))}", *names.next_steps):
        click.echo(f"  {command}")
    click.echo(f"\ndocs/write-{_article(kind).replace(' ', '-')}.md of cdc-core explains the rest.")
    return 0


def create(names: Names, target: Path) -> Path:
    """Write the repository of the plugin *names* to *target* and return that.

    Raises: ConfigError when something installed has the name, or *target* is not a new or empty directory.
    """
    _refuse_taken(names)
    try:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise ConfigError(f"'{target}' is there already and is not empty: choose another --directory")
        for source, relative in template_files(names.kind):
            path = target / names.put_into(relative)
            path.parent.mkdir(parents=True, exist_ok=True)
            text = _MARKERS.sub("", source.read_text(encoding="utf-8"))
            path.write_text(names.put_into(text), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"'{error.filename}' cannot be written: {error.strerror}") from error
    return target


def template_files(kind: str) -> Iterator[tuple[Path, str]]:
    """Yield each file of a template with its path inside: shipped in the wheel, beside this distribution in the tree.

    In the wheel its modules have the suffix `.py.txt`.
    """
    shipped = Path(__file__).parent / "templates" / kind
    root = shipped if shipped.is_dir() else Path(__file__).parents[3] / _TREE[kind]
    for path in sorted(root.rglob("*")):
        relative = path.relative_to(root)
        if path.is_file() and not _NOT_THE_TEMPLATE & set(relative.parts):
            yield path, relative.as_posix().removesuffix(".txt")


def _refuse_taken(names: Names) -> None:
    for listed in PluginHost.load().listing():
        if listed.kind == names.kind and names.name in (listed.name, *listed.schemes):
            raise ConfigError(
                f"'{names.name}' is taken: {listed.distribution} {listed.version} registers {_article(names.kind)} of "
                f"that name{'' if names.kind == 'encoder' else ' or URI scheme'}; choose another name"
            )
    if names.kind == "sink" and names.name in pipeline_names():
        raise ConfigError(f"'{names.name}' is taken: an installed package publishes a pipeline of that name")


def _article(kind: str) -> str:
    return f"an {kind}" if kind == "encoder" else f"a {kind}"
