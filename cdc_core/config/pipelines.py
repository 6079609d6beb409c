"""Changefeeds that an installed package publishes.

    [project.entry-points."cdc_core.pipelines"]
    orders = "my_package.pipelines:orders"

The value is a `Changefeed` or a function without arguments that returns one.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from cdc_core.config.changefeed import Changefeed
from cdc_core.errors import CdcError, ConfigError, PluginConflictError, PluginLoadError
from cdc_core.options import did_you_mean

__all__ = ["GROUP", "pipeline", "pipeline_names"]

GROUP = "cdc_core.pipelines"


def pipeline_names() -> list[str]:
    """Return the names of all published pipelines, loadable or not."""
    return sorted({entry_point.name for entry_point in entry_points(group=GROUP)})


def pipeline(name: str) -> Changefeed:
    """Return the changefeed published as *name*. Raises: ConfigError naming the distribution that is at fault."""
    found = list(entry_points(group=GROUP, name=name))
    if not found:
        raise ConfigError(f"no installed package publishes a pipeline '{name}'{did_you_mean(name, pipeline_names())}")
    if len(found) > 1:
        both = " and ".join(sorted(_origin(entry_point) for entry_point in found))
        raise PluginConflictError(f"pipeline '{name}' is published by both {both}; uninstall one of them")
    (entry_point,) = found
    owner = f"pipeline '{name}' of {_origin(entry_point)}"
    try:
        published = entry_point.load()
        changefeed = published() if callable(published) else published
    except CdcError:
        raise
    except Exception as error:  # a stranger's code
        raise PluginLoadError(f"{owner} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(changefeed, Changefeed):
        raise PluginLoadError(
            f"{owner} is {type(changefeed).__name__}, not a Changefeed or a function that returns one"
        )
    return changefeed


def _origin(entry_point: EntryPoint) -> str:
    dist = entry_point.dist
    return "an unknown distribution" if dist is None else f"{dist.name} {dist.version}"
