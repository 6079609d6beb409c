"""Prometheus's own checker of rules and expressions."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

import yaml
from cdc_testing.imports import ROOT


@functools.cache
def _program() -> str:
    done = subprocess.run([ROOT / ".ci" / "promtool"], capture_output=True, text=True)
    assert done.returncode == 0, f"promtool is missing: {done.stderr}install Debian's package prometheus"
    return done.stdout.strip()


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run promtool and return what came of it."""
    return subprocess.run([_program(), *arguments], capture_output=True, text=True)


def check_expressions(expressions: list[str], directory: Path) -> subprocess.CompletedProcess[str]:
    """Have *expressions* parsed, as rules of a file in *directory*."""
    rules = [{"record": f"parsed:{number}", "expr": text} for number, text in enumerate(expressions)]
    file = directory / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "parsed", "rules": rules}]}))
    return promtool("check", "rules", file)
