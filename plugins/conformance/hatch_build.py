"""Ships the template, which is a project of its own in the tree, inside this package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_LEFT_BEHIND = {"__pycache__", ".pytest_cache", ".ruff_cache", ".mypy_cache", ".venv", "build", "dist"}


class TemplateHook(BuildHookInterface):  # type: ignore[misc]
    """Puts plugins/template into wheels and source distributions; an editable install finds it in the tree.

    A source distribution has it in its place already. Modules get the suffix `.py.txt`, so that nothing compiles them
    and pytest collects no test from them.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        template = Path(self.root).parent / "template"
        if version == "editable" or not (template / "pyproject.toml").exists():
            return
        place = Path("cdc_conformance" if self.target_name == "wheel" else "src/cdc_conformance") / "template"
        for path in template.rglob("*"):
            relative = path.relative_to(template)
            if path.is_file() and not _LEFT_BEHIND & set(relative.parts):
                suffix = ".txt" if path.suffix == ".py" else ""
                build_data["force_include"][str(path)] = f"{place / relative}{suffix}"
