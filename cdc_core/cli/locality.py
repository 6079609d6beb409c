"""`--locality`, and `cdc worker-resources`."""

from __future__ import annotations

from pathlib import Path

import click

from cdc_core.cli.session import debug_option
from cdc_core.errors import ConfigError
from cdc_core.locality import Locality
from cdc_core.spark.placement_settings import worker_resources


def _parsed(_context: click.Context, _parameter: click.Parameter, text: str) -> Locality:
    try:
        return Locality.parse(text)
    except ValueError as error:
        raise ConfigError(f"--locality: {error}") from None


locality_option = click.option(
    "--locality",
    metavar="TIERS",
    envvar="CDC_LOCALITY",
    default="",
    callback=_parsed,
    help="Locality of this process, such as region=eu-west-1,zone=a. Default: the environment variable CDC_LOCALITY.",
)


@click.command("worker-resources")
@click.argument("file", metavar="FILE.json", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--executors",
    default=64,
    type=click.IntRange(1, 10_000),
    show_default=True,
    help="Maximum number of executors that the worker starts for each tier.",
)
@locality_option
@debug_option
def worker_resources_command(file: Path, executors: int, locality: Locality) -> None:
    """Write the resources of this host's Spark worker to FILE.json, one for each tier of --locality.

    Prints the settings that make the worker use these resources. Append them to the worker's properties file. A
    changefeed with execution_locality then gets executors only from workers that have all of its tiers.
    """
    if not locality.tiers:
        raise ConfigError("the locality of the worker is not known; set --locality or CDC_LOCALITY")
    content, settings = worker_resources(locality, str(file.absolute()), executors=executors)
    try:
        file.write_text(content)
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror or error}") from None
    click.echo(settings)
