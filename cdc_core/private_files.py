"""Directories and files that other users of the host must not be able to change."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from cdc_core.errors import ConfigError

_ANYBODY = stat.S_IWOTH
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def others_may_write(path: Path, *, bits: int = _OTHERS) -> str | None:
    """Return a sentence that says who else may change the directory *path*, with the remedy; None if nobody may.

    For every directory from which code is loaded. Of its mode, *bits* are looked at. Where the sticky bit is set,
    others may add to it, but not replace what is there. Raises: OSError.
    """
    found = path.stat()
    owners = {found.st_uid, path.lstat().st_uid}  # also who may let a symbolic link lead elsewhere
    if strangers := owners - {0, os.geteuid()}:
        return f"'{path}' belongs to another user ({strangers.pop()}); use a directory of your own"
    if found.st_mode & bits and not found.st_mode & stat.S_ISVTX:
        return f"other users may write to '{path}'; run `chmod go-w {path}`"
    return None


def make_state_directory(directory: Path) -> None:
    """Return when *directory* is there, which only this user can enter if it is new. Raises: ConfigError.

    Spark loads code from directories in it that are made for each start. The group of one that is there is trusted.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        refused = others_may_write(directory, bits=_ANYBODY)
    except OSError as error:
        raise ConfigError(f"'{directory}' cannot be used as the state directory: {error.strerror}") from error
    if refused:
        raise ConfigError(f"'{directory}' cannot be used as the state directory: {refused}")


def check_state_directory(directory: Path) -> None:
    """Return if a run could have its files in *directory*, which this does not create. Raises: ConfigError."""
    there = next(each for each in (directory, *directory.parents) if os.path.lexists(each))
    if not os.path.isdir(there) or not os.access(there, os.W_OK | os.X_OK):
        raise ConfigError(
            f"'{directory}' cannot be used as the state directory: '{there}' is not a directory that you may write to"
        )
    if there == directory:
        make_state_directory(directory)
