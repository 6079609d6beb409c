"""PostgreSQL servers of a test's own, without the seconds that `initdb` takes."""

from __future__ import annotations

import atexit
import shutil
import subprocess
from pathlib import Path

from cdc_rangefeed_postgres.demo import account
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_testing.documented_role import OWNER, create_roles, superusers

QUIET = {"fsync": "off", "autovacuum_naptime": "24d", "full_page_writes": "off"}
"""Settings of a server that no test kills. Its log has what a test writes, and little else: with steps of a few rows, a
changefeed would take minutes to pass what autovacuum writes. Autovacuum sleeps rather than being off, because
PostgreSQL 18 would then count no rows when it rewrites a table."""

_initialized: dict[Path, Path] = {}
"""By binaries, a directory with a server that this process has made, with the roles of tests."""


class CopiedPostgres(EmbeddedPostgres):
    """A server whose first start copies an empty one of this process, with the password and the system identifier.

    Tests connect as the owner of what they create, and changefeeds as the documented role. Both have the password.
    `stop` fails when a changefeed connected as a superuser.
    """

    def uri(self, database: str = "postgres", *, user: str = OWNER, password: str | None = None) -> str:
        return super().uri(database, user=user, password=password)

    def stop(self) -> None:
        log = self.log_path.read_text(errors="replace") if self.log_path.exists() else ""
        super().stop()
        refused = superusers(log)
        assert not refused, f"a changefeed of a test connected as a superuser, give it documented(URI): {refused[0]}"

    def _command(self, program: str, *arguments: str) -> list[str]:
        # Otherwise its processes return memory and take it again: an eighth of the processor time that they use.
        return ["env", "MALLOC_TOP_PAD_=4194304", *super()._command(program, *arguments)]

    def _initialize(self) -> None:
        if self.binaries not in _initialized:
            directory = account.temporary_directory()
            atexit.register(shutil.rmtree, directory, ignore_errors=True)
            with EmbeddedPostgres(directory, settings={"fsync": "off"}, binaries=self.binaries) as server:
                create_roles(server.uri(), server.password)
            _initialized[self.binaries] = directory
        self.directory.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "-a", "--reflink=auto", f"{_initialized[self.binaries]}/.", self.directory], check=True)
