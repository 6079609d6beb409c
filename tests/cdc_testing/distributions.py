"""Distributions that look installed: metadata and a module in a directory, for tests of whatever reads entry points."""

from __future__ import annotations

import textwrap
from pathlib import Path


def install(
    site: Path,
    distribution: str,
    version: str,
    *,
    module: str,
    source: str,
    group: str = "cdc_core.plugins",
    entry: str | None = None,
    value: str | None = None,
    requires: str = "",
) -> None:
    """Write *distribution* into *site*: its *module* with *source*, and an entry point of *group* that loads it.

    Put *site* on the path of whoever shall see it. *module* must be unique in the process; *entry* and *value* default
    to it.
    """
    site.mkdir(parents=True, exist_ok=True)
    (site / f"{module}.py").write_text(textwrap.dedent(source))
    info = site / f"{distribution.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    required = f"Requires-Dist: {requires}\n" if requires else ""
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n{required}")
    (info / "entry_points.txt").write_text(f"[{group}]\n{entry or module} = {value or module}\n")
