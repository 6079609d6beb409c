"""The parts of a sink below a directory of the test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from cdc_testing.cloud_rig import CloudRig


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[CloudRig]:
    """A rig whose parts are closed at the end of the test."""
    with ExitStack() as opened:
        yield CloudRig(tmp_path / "out", opened)


@pytest.fixture
def no_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not retry when the store is down: gcsfs would retry for half a minute."""
    from cdc_sink_cloudstorage import azure, s3

    monkeypatch.setitem(s3._CLIENT, "retries", {"mode": "standard", "max_attempts": 1})
    monkeypatch.setitem(azure._RETRY, "retry_total", 0)
    monkeypatch.setattr("gcsfs.retry.is_retriable", lambda _: False)
