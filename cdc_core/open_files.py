"""How many files this process may open: connections count too. When that is the reason, it is named."""

from __future__ import annotations

import errno
import os
import resource

REMEDY = "raise the limit, for example with `ulimit -n 4096`"


def open_files_limit() -> int | None:
    """Return how many files this process may have open, None without a limit."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if limit == resource.RLIM_INFINITY else limit


def with_open_files_limit(text: str, error: BaseException) -> str:
    """Return *text* about *error*, with the limit and what helps if this process can open no file, or could not then.

    Libraries say it in many ways: that a database file cannot be opened, or no host be resolved.
    """
    if not (_is_about_limit(error) or _has_reached_limit()):
        return text
    return f"{text}; this process may open {open_files_limit()} files: {REMEDY}"


def _is_about_limit(error: BaseException | None) -> bool:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, OSError) and error.errno == errno.EMFILE:
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def _has_reached_limit() -> bool:
    try:
        os.close(os.dup(0))
    except OSError as error:
        return error.errno == errno.EMFILE
    return False
