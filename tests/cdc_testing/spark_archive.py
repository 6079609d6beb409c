"""The archive of Spark's classes for the tests, in `build`: a start of Spark takes two thirds of the time.

`python -m cdc_testing.spark_archive` makes it. Without it the tests use no cache at all.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from cdc_core.spark.class_archive import VARIABLE, ClassArchive

ROOT = Path(__file__).parents[2]
CACHE = ROOT / "build" / "cache"


def use() -> None:
    """Have every run that this process and its children start use the archive, if there is one."""
    os.environ[VARIABLE] = str(CACHE)
    archive = ClassArchive.find()
    if archive is None or not archive.file.exists():
        os.environ[VARIABLE] = "off"


def main() -> int:
    """Run a changefeed that leaves the archive; say why when that fails, which is no failure of what comes after."""
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT / "tests"), os.environ.get("PYTHONPATH")]))
    os.environ[VARIABLE] = str(CACHE)
    archive = ClassArchive.find()
    if archive is None or archive.file.exists():
        return 0
    from cdc_testing.engine import counter_feed, run_feed

    from cdc_core.store.progress import ProgressStore, store_url

    try:
        with tempfile.TemporaryDirectory(prefix="cdc-archive-", ignore_cleanup_errors=True) as scratch:
            directory = Path(scratch)
            run_feed(
                counter_feed(directory, total=1000, rows_per_step=1000),
                store=ProgressStore(store_url(directory)),
                state_dir=directory,
                once=True,
            )
    except Exception as error:  # the tests only take longer
        sys.stderr.write(f"Spark's classes are not archived: {error!r}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
