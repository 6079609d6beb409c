"""The changefeed that `cdc run template` runs."""

import os

from cdc_core import Changefeed, ConfigError

VARIABLES = ("TEMPLATE_SOURCE", "TEMPLATE_TABLES", "TEMPLATE_SINK")
"""URI of the database, names of tables with commas between them, URI of this sink."""


def pipeline() -> Changefeed:
    """Return the changefeed that the environment describes. Raises: ConfigError naming what is missing."""
    missing = [name for name in VARIABLES if not os.environ.get(name)]
    if missing:
        raise ConfigError(f"pipeline 'template' needs {', '.join(missing)} in the environment, see its README")
    source, tables, sink = (os.environ[name] for name in VARIABLES)
    options = {"updated": True, "resolved": True}
    return Changefeed(name="template", source=source, tables=tuple(tables.split(",")), sink=sink, options=options)
