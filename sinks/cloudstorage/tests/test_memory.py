from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cdc_testing.cloud_rig import CloudRig

from cdc_core import MB

pytestmark = pytest.mark.slow

WRITER = Path(__file__).with_name("memory_writer.py")


@pytest.mark.parametrize(("compression", "tables"), [("none", 1), ("none", 40), ("zstd", 40)])
def test_memory_does_not_grow_with_the_bytes_written(cloud: CloudRig, compression: str, tables: int) -> None:
    command = [sys.executable, str(WRITER), str(cloud.root), compression, "200", str(tables)]
    grown, _ = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    # 16 MB for one file; 64 MB for all open files or compressors; the rest for one batch in transit
    assert int(grown) < (48 * MB if tables == 1 else 112 * MB)
