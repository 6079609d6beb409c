"""One preview in a process of its own: `python -m cdc_core.changefeeds.preview_main`, which `preview_apart` starts.

It lives no longer than the process that started it.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import threading
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict
from typing import Any, BinaryIO, NoReturn

from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.ipc import line, outcome_values, unpacked
from cdc_core.engine.process_session import kill_session
from cdc_core.engine.supervisor import Outcome
from cdc_core.masking import MaskingFilter
from cdc_core.watching.preview import preview


def main() -> None:
    """Make the preview that the first line of standard input describes, and write its messages, a line each.

    The last line is the outcome: the exit status says nothing.
    """
    orders, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")  # no process that this one starts has them
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    job = json.loads(orders.readline())
    watcher = threading.Thread(target=_end_with, args=(orders, job["scratch"]), name="end of the server", daemon=True)
    watcher.start()
    try:
        _answer(job, answers)
    except BrokenPipeError:  # the server has ended
        watcher.join()


def _answer(job: Mapping[str, Any], answers: BinaryIO) -> None:
    feed: ResolvedChangefeed = unpacked(job["feed"])
    secrets = feed.secrets()
    _log_without(secrets)
    outcome = Outcome("complete")
    try:
        with closing(preview(feed, rows=job["rows"], live=False)) as messages:
            for message in messages:
                answers.write(line(**asdict(message)))
                answers.flush()
    except Exception as error:
        outcome = Outcome("failed", error)
    answers.write(line(**outcome_values(outcome, secrets)))
    answers.flush()


def _end_with(orders: BinaryIO, scratch: str) -> NoReturn:
    """Wait for the end of *orders*, which is that of the server, and end this process and all that it has started.

    It removes *scratch*, the directory of its files, as no other process will.
    """
    orders.read()
    kill_session(os.getpid(), but=os.getpid())
    shutil.rmtree(scratch, ignore_errors=True)
    os._exit(1)


def _log_without(secrets: frozenset[str]) -> None:
    handler = logging.StreamHandler()
    handler.addFilter(MaskingFilter(secrets))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    logging.getLogger("py4j").setLevel(logging.ERROR)


if __name__ == "__main__":
    main()
