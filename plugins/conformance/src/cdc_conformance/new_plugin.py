"""`cdc new-plugin`: a new repository for a plugin, complete and tested."""

from __future__ import annotations

import keyword
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from cdc_core.errors import ConfigError

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_LONGEST = 24
_WORD = re.compile("cdc_(?:sink|encoder|rangefeed)_template|TEMPLATE|Template|template")
_TREE = {"sink": "template", "encoder": "template_encoder", "rangefeed": "template_rangefeed"}
"""The template of each kind: a directory in the tree, next to this distribution."""
_NOT_THE_TEMPLATE = {"__pycache__", ".pytest_cache", ".ruff_cache", ".mypy_cache", ".venv", "build", "dist"}
"""Directories that tools create in a template."""
_MARKERS = re.compile(r"<!-- options: (begin|end) -->\n")
"""Markers around the generated options table of the template. A new repository does not generate its table."""


@dataclass(frozen=True, slots=True)
class Names:
    """All forms of a plugin's name. `name` is the registered name, and the URI scheme if there is one."""

    kind: str
    name: str

    @classmethod
    def of(cls, kind: str, name: str) -> Names:
        """Return the forms of *name*. Raises: ConfigError unless it can name a distribution, a module and a scheme."""
        if not _NAME.fullmatch(name) or len(name) > _LONGEST:
            raise ConfigError(
                f"'{name}' cannot name a plugin: use up to {_LONGEST} lowercase letters and digits, start with a "
                "letter, and separate words by single hyphens, such as 'shelf' or 'redis-stream'"
            )
        if keyword.iskeyword(name):
            raise ConfigError(f"'{name}' cannot name a plugin: it is a Python keyword; choose another name")
        return cls(kind, name)

    @property
    def distribution(self) -> str:
        return f"cdc-{self.kind}-{self.name}"

    @property
    def package(self) -> str:
        return self.distribution.replace("-", "_")

    @property
    def prefix(self) -> str:
        """The start of class names."""
        return "".join(word.capitalize() for word in self.name.split("-"))

    @property
    def variables(self) -> str:
        """The start of environment variables."""
        return self.name.replace("-", "_").upper()

    @property
    def next_steps(self) -> tuple[str, ...]:
        """The next commands, to be run in the new repository and a virtual environment."""
        if self.kind == "sink":
            return ("pip install -e '.[test,pipeline]'", "pytest", f"cdc run {self.name}")
        where = f" --uri '{self.name}://…'" if self.kind == "rangefeed" else ""
        return ("pip install -e '.[test]'", "pytest", f"cdc verify {self.kind} {self.name}{where}")

    def put_into(self, text: str) -> str:
        """Return *text* of the template with this name in place of the template's name."""
        forms = {"TEMPLATE": self.variables, "Template": self.prefix, "template": self.name}
        return _WORD.sub(lambda found: forms.get(found[0], self.package), text)


@click.command("new-plugin", short_help="Create a repository for a new plugin.")
@click.argument("kind", type=click.Choice(["sink", "encoder", "rangefeed"]))
@click.argument("name")
@click.option(
    "--directory",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Where to create the repository. Default: cdc-KIND-NAME.",
)
def new_plugin(kind: str, name: str, directory: Path | None) -> int:
    """Create a repository for the plugin NAME: a working package, its conformance test, and CI.

    A new sink appends messages to a table in a SQLite file, and has a pipeline that you can run. A new encoder writes
    rows as web forms. A new rangefeed reads a journal, which is a file of transactions. Change the code to do what you
    need: the conformance test passes from the start, and shows what your changes break.
    """
    names = Names.of(kind, name)
    target = create(names, Path(names.distribution) if directory is None else directory)
    click.echo(f"created {names.distribution} in {target}. Next, in a virtual environment:\n")
    for command in (f"cd {shlex.quote(str(target))}", *names.next_steps):
        click.echo(f"  {command}")
    click.echo(f"\n`cdc docs write-{_article(kind).replace(' ', '-')}` explains the next steps.")
    return 0


def create(names: Names, target: Path) -> Path:
    """Create the repository of the plugin *names* in *target*, and return *target*.

    Raises: ConfigError when an installed component has the name, or *target* is neither new nor an empty directory.
    """
    _refuse_taken(names)
    try:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise ConfigError(f"'{target}' exists and is not an empty directory; choose another --directory")
        for source, relative in template_files(names.kind):
            path = target / names.put_into(relative)
            path.parent.mkdir(parents=True, exist_ok=True)
            text = _MARKERS.sub("", source.read_text(encoding="utf-8"))
            path.write_text(names.put_into(text), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write '{error.filename}': {error.strerror}") from error
    return target


def template_files(kind: str) -> Iterator[tuple[Path, str]]:
    """Yield each file of a template with its path in the template.

    In the tree the templates are next to this distribution. The wheel contains them, with `.py.txt` for `.py`.
    """
    shipped = Path(__file__).parent / "templates" / kind
    root = shipped if shipped.is_dir() else Path(__file__).parents[3] / _TREE[kind]
    for path in sorted(root.rglob("*")):
        relative = path.relative_to(root)
        if path.is_file() and not _NOT_THE_TEMPLATE & set(relative.parts):
            yield path, relative.as_posix().removesuffix(".txt")


def _refuse_taken(names: Names) -> None:
    # `cdc --help` imports this module; these import pyarrow.
    from cdc_core.config.pipelines import pipeline_names
    from cdc_core.plugins.host import PluginHost

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
