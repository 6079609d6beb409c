"""Ships the templates, which are projects of their own in the tree, inside this package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_TREE = {"sink": "template", "encoder": "template_encoder", "rangefeed": "template_rangefeed"}
_LEFT_BEHIND = {"__pycache__", ".pytest_cache", ".ruff_cache", ".mypy_cache", ".venv", "build", "dist"}


class TemplateHook(BuildHookInterface):  # type: ignore[misc]
    """Puts the templates into wheels and source distributions; an editable install finds them in the tree.

    A source distribution has them in their places already. Modules get the suffix `.py.txt`, so that nothing compiles
    them and pytest collects no test from them.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        for kind, name in _TREE.items():
            template = Path(self.root).parent / name
            if version != "editable" and (template / "pyproject.toml").exists():
                self._ship(template, f"cdc_conformance/templates/{kind}", build_data["force_include"])

    def _ship(self, template: Path, place: str, included: dict[str, str]) -> None:
        for path in template.rglob("*"):
            relative = path.relative_to(template)
            if path.is_file() and not _LEFT_BEHIND & set(relative.parts):
                suffix = ".txt" if path.suffix == ".py" else ""
                source = "" if self.target_name == "wheel" else "src/"
                included[str(path)] = f"{source}{place}/{relative}{suffix}"
