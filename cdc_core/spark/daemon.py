"""The process that Spark forks its Python workers from. It loads what they need once, and they share its memory."""

from __future__ import annotations

import gc
import sys

import cdc_core.spark.query_layout
import cdc_core.store.progress  # noqa: F401
from cdc_core.spark.private_api import run_daemon


def leave_out_jars() -> None:
    """Let this process and its children not look for modules in jars.

    Spark puts its own among the directories of modules. A child would read the names of its six thousand files when it
    starts, and once more when something asks for the version of a distribution.
    """
    sys.path[:] = [path for path in sys.path if not path.endswith(".jar")]
    for path in [path for path in sys.path_importer_cache if path.endswith(".jar")]:
        del sys.path_importer_cache[path]


if __name__ == "__main__":
    leave_out_jars()
    gc.collect()
    gc.freeze()  # a collection in a child would write to every page of it
    run_daemon()
