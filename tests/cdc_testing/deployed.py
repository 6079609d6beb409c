"""What is in `deploy/`, and the tools that check it."""

from __future__ import annotations

import functools
import re
import subprocess
from pathlib import Path

import click
import pytest
from cdc_testing.imports import ROOT

from cdc_core.cli.main import cdc
from cdc_core.cli.node import _settings as parsed_settings
from cdc_core.cli.node import node
from cdc_core.jobs.settings import NodeSettings

DEPLOY = ROOT / "deploy"
CONTAINERFILE = (DEPLOY / "container" / "Containerfile").read_text()


@functools.cache
def tools() -> Path:
    """Return the directory of helm and the schemas."""
    done = subprocess.run([ROOT / ".ci" / "deploy-tools"], capture_output=True, text=True)
    assert done.returncode == 0, f".ci/deploy-tools failed: {done.stderr}"
    return Path(done.stdout.strip())


def settings(words: list[str], environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> NodeSettings:
    """Return what `cdc` with the arguments *words* makes of them in this environment, of which it knows every name."""
    name, command, arguments = cdc.resolve_command(click.Context(cdc), words)
    assert command is node
    known = {str(parameter.envvar) for parameter in command.params if parameter.envvar}
    known |= {"CDC_CACHE", "CDC_CLUSTER_SECRET"}
    assert {variable for variable in environment if variable.startswith("CDC_")} <= known
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    return parsed_settings(command.make_context(name, list(arguments)).params)


def containerfile(instruction: str) -> str:
    """Return what the Containerfile says after the only *instruction* of that name."""
    (value,) = re.findall(rf"^{instruction} (.*)$", CONTAINERFILE, re.MULTILINE)
    return value
