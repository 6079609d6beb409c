"""`cdc pack`."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import click

from cdc_core.cli.session import debug_option
from cdc_core.errors import ConfigError
from cdc_core.options import counted

_ENVIRONMENT = "cdc-environment"


@click.command
@click.argument("archive", metavar="ARCHIVE.tar.gz", type=click.Path(dir_okay=False, path_type=Path))
@debug_option
def pack(archive: Path) -> None:
    """Pack what Spark tasks need into ARCHIVE.tar.gz: cdc-core, all installed plugins, and their dependencies.

    Executors then need Spark and the same version of Python, but no other packages and no internet access. Prints the
    Spark settings that send the archive to them.
    """
    from cdc_core.plugins.pack import Pack

    if not archive.name.endswith(".tar.gz"):
        raise ConfigError(f"{archive} must end in .tar.gz, so that Spark unpacks it")
    found = Pack.of_this_environment()
    try:
        found.write(archive)
    except OSError as error:
        raise ConfigError(f"{archive} cannot be written: {error.strerror or error}") from None
    plugins = [f"{name} {dist.version}" for name, dist in found.distributions.items() if name.startswith("cdc-")]
    others = counted(len(found.distributions) - len(plugins), "other package")
    click.echo(
        f"{archive} has {', '.join(plugins)} and {others}, {archive.stat().st_size / 1e6:.0f} MB, for Python"
        f" {sys.version_info.major}.{sys.version_info.minor} on {platform.system()} {platform.machine()}. Set:\n\n"
        "[changefeed.NAME.spark]\n"
        f'"spark.archives" = "{archive.absolute()}#{_ENVIRONMENT}"\n'
        f'"spark.executorEnv.PYTHONPATH" = "{_ENVIRONMENT}"'
    )
