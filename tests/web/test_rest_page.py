"""docs/rest.md: what curl prints there is what curl prints."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cdc_testing.imports import ROOT
from cdc_testing.rest_rig import serving_rest

from cdc_core.changefeeds import creating
from cdc_core.plugins.host import PluginHost

PAGE = (ROOT / "docs/rest.md").read_text()


def steps() -> Iterator[tuple[str, str]]:
    """Yield each command of the page with what it prints."""
    for block in re.findall(r"```(?:console|text)\n(.*?)```", PAGE, re.DOTALL):
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            lines = step.splitlines()
            for end in range(1, len(lines) + 1):
                command = "\n".join(lines[:end])
                if command.count("'") % 2 == 0:
                    yield command, "\n".join(lines[end:])
                    break


def test_the_commands_of_the_page_print_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(creating, "check_job", lambda *_args, **_options: None)  # there is no database
    with serving_rest(tmp_path, plugins=PluginHost.load(), PGPASSWORD="hunter2") as rest:
        asked = 0
        for command, printed in steps():
            assert shlex.split(command)[0] == "curl"
            here = command.replace("localhost:8083", rest.url)
            done = subprocess.run(["bash", "-c", here], capture_output=True, text=True, timeout=60)
            assert done.stdout == printed, command
            asked += 1
    assert asked > 8
