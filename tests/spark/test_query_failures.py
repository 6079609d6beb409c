"""What the status says first when Spark ends a query."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cdc_core.errors import is_outage
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


def _failed(text: str) -> Exception:
    query: Any = SimpleNamespace(exception=lambda: ValueError(text))
    return RunningQuery(query).failure()


def _failure(text: str) -> str:
    return str(_failed(text))


def test_the_error_of_a_python_worker_is_in_the_first_line() -> None:
    first, _, rest = _failure(_OF_SPARK).partition("\n")
    assert first == (
        "a Python worker of Spark failed: FileNotFoundError: [Errno 2] No such file or directory: '/srv/feeds'"
    )
    assert rest == _OF_SPARK


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "Traceback (most recent call last):\n  File 'a', line 1, in f\n\n  File 'a', line 2, in g\nKeyError: 'x'",
            "KeyError: 'x'",
        ),
        (
            "Traceback (most recent call last):\n  File 'a', line 1, in f\n    f()\n"
            "  [Previous line repeated 967 more times]\nRecursionError: too deep\n\tat org.apache",
            "RecursionError: too deep",
        ),
        (
            "  Traceback (most recent call last):\n    File 'a', line 1, in f\n  KeyError: 'x'\n\n"
            "  During handling of the above exception, another exception occurred:\n\n"
            "  Traceback (most recent call last):\n    File 'b', line 1, in g\n  OSError: no space\n",
            "OSError: no space",
        ),
    ],
    ids=["no source line", "repeated", "chained"],
)
def test_it_is_the_last_line_of_the_last_traceback(text: str, said: str) -> None:
    assert _failure(f"Job aborted:\n{text}").startswith(f"a Python worker of Spark failed: {said}\n")


@pytest.mark.parametrize("reason", ["No space left on device", "Disk quota exceeded"])
def test_a_full_disk_of_spark_is_an_outage(reason: str) -> None:
    failure = _failed(f"java.io.IOException: {reason}\n\tat org.apache")
    assert is_outage(failure)
    assert str(failure).startswith(f"Spark cannot write its files: {reason}; free space where the state directory is,")


def test_a_worker_that_was_killed_is_said_to_be_with_its_host() -> None:
    text = (
        "Job aborted: Lost task 0.3 in stage 0.0 (TID 3) (10.0.0.7 executor 2): org.apache.spark.SparkException: "
        "Python worker exited unexpectedly (crashed). Consider setting 'x' to 'true'."
    )
    assert _failure(text).startswith("a Python worker of Spark on 10.0.0.7 was killed, or crashed. If memory ran out, ")


def test_any_other_error_stays_as_spark_says_it() -> None:
    assert _failure("Job aborted\n\tat org.apache") == "ValueError: Job aborted\n\tat org.apache"
