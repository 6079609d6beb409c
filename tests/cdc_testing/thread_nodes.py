"""`python -m cdc_testing.thread_nodes node ...` is `cdc node ...` with a host of threads in the place of Spark.

So is every other command. What sources retain is measured every two seconds instead of every minute.
"""

from __future__ import annotations

import sys

import pytest
from cdc_testing.thread_host import ThreadHost

from cdc_core.cli.main import main
from cdc_core.engine import history_meter
from cdc_core.spark import host

__all__: list[str] = []

if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host, "SparkHost", lambda *_, **__: ThreadHost())
        patch.setattr(history_meter, "EVERY_S", 2.0)
        patch.setattr(history_meter, "_POLL_S", 0.5)
        sys.exit(main(sys.argv[1:]))
