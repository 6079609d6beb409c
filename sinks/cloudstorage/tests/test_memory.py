from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cdc_core.options import MB

WRITER = Path(__file__).with_name("much_writer.py")


@pytest.mark.parametrize(("compression", "tables"), [("none", 1), ("none", 40), ("zstd", 40)])
def test_a_process_holds_a_few_files_at_most_however_much_it_writes(root: Path, compression: str, tables: int) -> None:
    command = [sys.executable, str(WRITER), str(root), compression, "400", str(tables)]
    grown, _ = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    # 16 MB a file; 64 MB in all open files, or of compressors; the rest is what one batch takes on its way
    assert int(grown) < (48 * MB if tables == 1 else 112 * MB)
