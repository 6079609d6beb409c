from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from cdc_testing.runs import eventually

from cdc_core.spark.log_file import keep_newest, open_log

PRINTS = """
import sys
for line in sys.stdin:
    print(line, end="", flush=True)
"""


def test_a_log_that_is_cut_goes_on_at_its_new_end(tmp_path: Path) -> None:
    log = tmp_path / "t.spark.log"
    with open_log(log) as output:
        printing = subprocess.Popen([sys.executable, "-c", PRINTS], stdin=subprocess.PIPE, stdout=output, text=True)
    with printing:
        assert printing.stdin is not None

        def say(text: str) -> None:
            print(text, file=printing.stdin, flush=True)
            eventually(f"{text} in the log", lambda: log.read_text().endswith(f"{text}\n"))

        say("one")
        keep_newest(log, limit_bytes=8)
        assert log.read_text() == "one\n"  # not yet too long
        say("two and three")
        keep_newest(log, limit_bytes=8)
        assert log.read_text() == ""
        say("four")
        assert log.read_text() == "four\n"
        printing.stdin.close()
    older = tmp_path / "t.spark.log.1"
    assert older.read_text() == "one\ntwo and three\n"
    assert {path.name for path in tmp_path.iterdir()} == {log.name, older.name}
    assert older.stat().st_mode & 0o777 == 0o600


def test_only_the_newest_part_is_kept(tmp_path: Path) -> None:
    log = tmp_path / "t.spark.log"
    for part in ("first", "second", "third"):
        log.write_text(part)
        keep_newest(log, limit_bytes=4)
    assert log.read_text() == ""
    assert (tmp_path / "t.spark.log.1").read_text() == "third"


def test_a_log_that_is_not_there_or_cannot_be_cut_is_left(tmp_path: Path) -> None:
    keep_newest(tmp_path / "t.spark.log", limit_bytes=0)
    log = tmp_path / "t.spark.log"
    log.write_text("text")
    (tmp_path / "t.spark.log.new").mkdir()
    keep_newest(log, limit_bytes=0)
    assert log.read_text() == "text"
