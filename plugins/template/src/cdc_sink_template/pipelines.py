"""The changefeed that `cdc run template` runs."""

import os

from cdc_core import Changefeed, ConfigError


def pipeline() -> Changefeed:
    """Return the changefeed that environment variables describe. Raises: ConfigError when one is missing."""
    source, tables, sink = (os.environ.get(f"TEMPLATE_{name}", "") for name in ("SOURCE", "TABLES", "SINK"))
    if not (source and tables and sink):
        raise ConfigError("pipeline 'template': set TEMPLATE_SOURCE, TEMPLATE_TABLES and TEMPLATE_SINK, see the README")
    options = {"updated": True, "resolved": True}
    return Changefeed(name="template", source=source, tables=tuple(tables.split(",")), sink=sink, options=options)
