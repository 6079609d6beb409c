"""`python -m cdc_testing.thread_nodes node ...` is `cdc node ...` with a host of threads in the place of Spark."""

from __future__ import annotations

import sys

import pytest
from cdc_testing.thread_host import ThreadHost

from cdc_core.cli.main import main
from cdc_core.spark import host

__all__: list[str] = []

if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host, "SparkHost", lambda *_, **__: ThreadHost())
        sys.exit(main(sys.argv[1:]))
