"""One Spark for many runs of this process, so that a test does not pay for a start that it proves nothing about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from cdc_testing.costs import start_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_holding: list[KeptSpark] = []
"""Whose session this process has: it can have one."""


class KeptSpark:
    """The session that runs inside `lent` share, with its JVM and Python workers; opened when the first one asks.

    It has these *settings*, and so must the changefeeds have. Of several objects, the last one that was asked has one.

    A run still believes that it opens and closes a session of its own; one whose JVM died gets a new one. What a
    session's own settings, start, log or end have to do with needs a run outside `lent`, after `close`. Its log and
    temporary files are in a directory of its own, as those of the run that began it may be gone before the last one.
    """

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self.settings = settings or {}
        self._session: SparkSession | None = None
        self._directory: TemporaryDirectory[str] | None = None

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Let runs inside the block have the kept session, without a warm-up."""
        from cdc_core.spark import host

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(host, "open_session", self._open)
            patch.setattr(host, "end_jvm", self._close_dead)
            patch.setattr(host, "warm_up", lambda *_, **__: None)
            yield

    def session(self) -> SparkSession:
        """Return the session, for a test that asks Spark itself."""
        return self._open("test", self.settings)

    @property
    def directory(self) -> Path:
        """Where the session has its log and its temporary files."""
        assert self._directory is not None, "no run has begun it yet"
        return Path(self._directory.name)

    def kill_jvm(self) -> None:
        """SIGKILL the JVM: a run that goes on has to start another one."""
        from pyspark import SparkContext

        assert SparkContext._gateway is not None, "no run has begun it yet"
        SparkContext._gateway.proc.kill()

    def close(self) -> None:
        """End the session of this process, also that of another object, and its JVM; the next run starts others."""
        while _holding:
            _holding.pop()._end()

    def _end(self) -> None:
        from cdc_core.spark.session import end_jvm

        if self._session is not None:
            end_jvm(self._session)
        self._session = None
        if self._directory is not None:
            self._directory.cleanup()
        self._directory = None

    def _open(self, name: str, spark: Mapping[str, str], **_: object) -> SparkSession:
        from cdc_core.spark.session import is_alive, open_session

        own = {key: value for key, value in spark.items() if key != "spark.log.level"}
        assert own == self.settings, "settings need a session of their own, but for what the log tells"
        if self._session is None or not is_alive(self._session):
            self.close()
            self._directory = TemporaryDirectory(prefix="cdc-spark-", ignore_cleanup_errors=True)
            with start_of("Spark"):
                self._session = open_session(name, self.settings, log_path=self.directory / "spark.log")
            _holding.append(self)
        return self._session

    def _close_dead(self, session: SparkSession) -> None:
        from cdc_core.spark.session import close_session, is_alive

        if not is_alive(session):
            close_session(session)
