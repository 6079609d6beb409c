"""The changefeed that `cdc run template` runs."""

import os
from urllib.parse import quote

from cdc_core import Changefeed, ConfigError

VARIABLES = ("TEMPLATE_SOURCE", "TEMPLATE_TABLES", "TEMPLATE_PATH")
"""URI of the database, names of tables with commas between them, path of the SQLite file."""


def pipeline() -> Changefeed:
    """Return the changefeed that the environment describes. Raises: ConfigError naming what is missing."""
    missing = [name for name in VARIABLES if not os.environ.get(name)]
    if missing:
        raise ConfigError(f"pipeline 'template' needs {', '.join(missing)} in the environment, see its README")
    source, tables, file = (os.environ[name] for name in VARIABLES)
    sink, options = f"template://{quote(os.path.abspath(file))}", {"updated": True, "resolved": True}
    return Changefeed(name="template", source=source, tables=tuple(tables.split(",")), sink=sink, options=options)
