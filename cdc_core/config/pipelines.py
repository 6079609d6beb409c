"""Changefeeds that an installed package publishes.

    [project.entry-points."cdc_core.pipelines"]
    orders = "my_package.pipelines:orders"

The value is a `Changefeed` or a function without arguments that returns one.
"""

from __future__ import annotations

from cdc_core.config.changefeed import Changefeed
from cdc_core.errors import CdcError, ConfigError, PluginLoadError
from cdc_core.options import did_you_mean
from cdc_core.plugins.entry_points import PIPELINES, published


def pipeline_names() -> list[str]:
    """Return the names of all published pipelines, loadable or not."""
    return list(published(PIPELINES))


def pipeline(name: str) -> Changefeed:
    """Return the changefeed published as *name*. Raises: ConfigError, which names the distribution at fault."""
    found = published(PIPELINES)
    if name not in found:
        raise ConfigError(f"no installed package publishes a pipeline '{name}'{did_you_mean(name, found)}")
    claim = found[name][0]
    owner = f"pipeline '{name}' of {claim.origin}"
    try:
        value = claim.load()
        changefeed = value() if callable(value) else value
    except CdcError:
        raise
    except Exception as error:  # a stranger's code
        raise PluginLoadError(f"{owner} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(changefeed, Changefeed):
        raise PluginLoadError(
            f"{owner} is {type(changefeed).__name__}, not a Changefeed or a function that returns one"
        )
    return changefeed
