"""A process that runs one changefeed in a child process, as a node does: for tests that hurt the node.

`python -m cdc_testing.child_parent DIRECTORY LEASE_S` runs the feed in the file `job` of DIRECTORY, renews the
lease all the time, and writes the error of the outcome to the file `outcome`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from cdc_core.engine.ipc import lease_clock, unpacked
from cdc_core.jobs.subprocess_run import SubprocessRun
from cdc_core.store.progress import store_url


def main(directory: Path, lease_s: float) -> None:
    feed = unpacked((directory / "job").read_text())
    run = SubprocessRun(feed, store=store_url(directory), state_dir=directory, until=lease_clock() + lease_s)
    run.start()
    while (outcome := run.wait(0.1)) is None:
        run.extend(lease_clock() + lease_s)
    (directory / "outcome").write_text(str(outcome.error))


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
