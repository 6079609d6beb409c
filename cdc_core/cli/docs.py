"""`cdc docs`."""

from __future__ import annotations

from pathlib import Path

import click

from cdc_core.cli.session import debug_option
from cdc_core.errors import ConfigError
from cdc_core.options import did_you_mean

_PACKAGE = Path(__file__).parents[1]
_PLACES = (_PACKAGE / "docs", _PACKAGE.parent / "docs")
"""Where the pages are: in the package as it is installed, or next to it in the repository."""


@click.command
@click.argument("page", required=False)
@debug_option
def docs(page: str | None) -> None:
    """Print the page PAGE of the documentation, in Markdown. Without PAGE, list all pages."""
    directory = next(place for place in _PLACES if place.is_dir())
    paths = [path.relative_to(directory) for path in directory.glob("**/*.md") if path.parent.name != "api"]
    pages = {path.with_suffix("").as_posix(): directory / path for path in sorted(paths)}
    if page is None:
        for name, path in pages.items():
            title = path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
            click.echo(f"{name:<28}  {title}")
    elif page in pages:
        click.echo(pages[page].read_text(encoding="utf-8"), nl=False)
    else:
        raise ConfigError(f"there is no page '{page}'{did_you_mean(page, pages)}; `cdc docs` lists all pages")
