"""The command `cdc` in this process."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest
from _pytest.capture import CaptureResult

from cdc_core.cli.main import main


class Cdc(NamedTuple):
    """Runs the command as a user does, and returns what it has printed."""

    capsys: pytest.CaptureFixture[str]

    def __call__(self, *words: object, status: int = 0) -> CaptureResult[str]:
        """Raises: AssertionError with what it printed if it ends with another *status*."""
        ended = main([str(word) for word in words])
        printed = self.capsys.readouterr()
        assert ended == status, printed
        return printed

    def refused(self, *words: object) -> str:
        """Return what it says of a command that is wrong."""
        return self(*words, status=2).err

    def sentence(self, *words: object) -> str:
        """Return the one sentence with which a command is refused."""
        [line] = self.refused(*words).splitlines()
        return line.removeprefix("error: ")

    def json(self, *words: object) -> dict[str, Any]:
        """Return the one value that it prints with `--json`."""
        found: dict[str, Any] = json.loads(self(*words, "--json").out)
        return found
