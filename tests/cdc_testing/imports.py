"""Which module of the tree imports what, read from the source without running it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["ROOT", "core_violations", "imported_by", "plugin_violations"]

ROOT = Path(__file__).resolve().parents[2]
_PYSPARK_HOME = "cdc_core/spark"
_ENGINE_DOORS = {
    ("cdc_core/cli/run.py", "cdc_core.spark.runner.run"),
    ("cdc_core/cli/replay.py", "cdc_core.engine.replay.replay"),
}
"""The places of the core outside the engine that may import it, inside the functions that need it."""
_PLUGIN_MAY_IMPORT = frozenset({"cdc_core", "pluggy"}) | sys.stdlib_module_names


def imported_by(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and full name of everything that the module at *path* imports, also inside functions.

    Imports for type checking only do not count.
    """
    tree = ast.parse(path.read_text(), filename=str(path))
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def core_violations(root: Path) -> list[str]:
    """Say where the core imports a plugin's package, and where anything but `cdc_core/spark` imports pyspark."""
    plugins = {path.name for path in _plugin_packages(root)}
    found: list[str] = []
    for path in sorted((root / "cdc_core").rglob("*.py")):
        place = path.relative_to(root).as_posix()
        for line, name in imported_by(path):
            top = name.partition(".")[0]
            if top in plugins:
                found.append(f"{place}:{line} imports the plugin package {top}; the core finds plugins by name only")
            in_engine = place.startswith(_PYSPARK_HOME + "/")
            if top in ("pyspark", "py4j") and not in_engine:
                found.append(f"{place}:{line} imports {top}; only {_PYSPARK_HOME} may")
            if name.startswith("cdc_core.spark") and not in_engine and (place, name) not in _ENGINE_DOORS:
                doors = " and ".join(sorted(door for door, _ in _ENGINE_DOORS))
                found.append(f"{place}:{line} imports {name}; only {doors} may")
    return found


def plugin_violations(root: Path) -> list[str]:
    """Say where a plugin's `plugin.py` imports more than the core, pluggy and the standard library."""
    found: list[str] = []
    for package in _plugin_packages(root):
        module = package / "plugin.py"
        for line, name in imported_by(module) if module.exists() else ():
            if name.partition(".")[0] not in _PLUGIN_MAY_IMPORT:
                found.append(f"{module.relative_to(root)}:{line} imports {name}; it may only describe")
    return found


def _plugin_packages(root: Path) -> list[Path]:
    sources = (path for kind in ("encoders", "sinks", "plugins") for path in root.glob(f"{kind}/*/src/*"))
    return sorted(path for path in sources if (path / "__init__.py").exists())
