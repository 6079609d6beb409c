"""The part that runs before any row: checks and prepares the file."""

import os

from cdc_core import ConfigError, Destination

from cdc_sink_template.database import path_of, transaction

_COLUMNS = "sequence INTEGER PRIMARY KEY AUTOINCREMENT, topic TEXT NOT NULL, key BLOB, value BLOB"


class TemplateDestination(Destination):
    """A SQLite file with the table `messages`."""

    def check(self) -> None:
        """Return when the file is writable or can be created. Changes nothing. Raises: ConfigError."""
        path = path_of(self.context)
        if ":///" not in self.context.uri or not os.access(path if path.exists() else path.parent, os.W_OK):
            raise ConfigError(f"'{path}' is not a writable file. Write the sink URI as template:///path/to/file")

    def prepare(self) -> None:
        """Create the file and the table if they do not exist. In WAL mode consumers can read while sinks write."""
        with transaction(self.context, "rwc") as database:
            database.executescript(f"PRAGMA journal_mode = WAL; CREATE TABLE IF NOT EXISTS messages ({_COLUMNS})")
