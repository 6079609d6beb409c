"""What the status says first when Spark ends a query."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from cdc_core.spark.query import RunningQuery

_OF_SPARK = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception:\x20
Error from python worker:
  Traceback (most recent call last):
    File "/opt/cdc/python_forkserver.py", line 190, in run
      os.chdir(request["directory"])
      ~~~~~~~~^^^^^^^^^^^^^^^^^^^^^^
  FileNotFoundError: [Errno 2] No such file or directory: '/srv/feeds'
PYTHONPATH was:
  /opt/cdc SQLSTATE: XXKST
"""


def _failure(text: str) -> str:
    query: Any = SimpleNamespace(exception=lambda: ValueError(text))
    return str(RunningQuery(query).failure())


def test_the_error_of_a_python_worker_is_in_the_first_line() -> None:
    first, _, rest = _failure(_OF_SPARK).partition("\n")
    assert first == (
        "a Python worker of Spark failed: FileNotFoundError: [Errno 2] No such file or directory: '/srv/feeds'"
    )
    assert rest == _OF_SPARK


def test_any_other_error_stays_as_spark_says_it() -> None:
    assert _failure("Job aborted\n\tat org.apache") == "ValueError: Job aborted\n\tat org.apache"
