"""Which module of the tree imports what, read from the source without running it, and which imports are not allowed."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LAYERS: tuple[tuple[str, ...], ...] = (
    ("remedies",),
    ("timestamp", "span", "locality", "schema", "errors", "masking", "open_files"),
    ("frontier", "rows", "uris", "schema_change", "placement", "sql_names", "private_files"),
    ("option_values",),
    ("cloudevents", "options", "envelope_shapes", "enriched"),
    ("messages", "rangefeed_values", "sink_calls", "unavailable", "restriction"),
    ("envelope", "file_body", "message_keys", "registrations", "rangefeed_context", "source_writer"),
    ("function_registration", "sink_registration", "rangefeed", "encoder_context"),
    ("queries", "step_planner", "source_history", "encoder", "hookspecs"),
    ("slice_reader", "sink_context", "wrapped_encoder", "decoder", "stored_history"),
    ("sink", "destination", "resolved_sink", "sink_reader"),
    ("telemetry", "plugins", "shards"),
    ("config",),
    ("store",),
    ("statements",),
    ("delivery", "readback"),
    ("engine",),
    ("spark",),
    ("watching",),
    ("auditing",),
    ("changefeeds",),
    ("jobs",),
    ("web",),
    ("cli",),
)
"""The modules and packages of the core. From the lowest layer to the highest: values, contracts, packages. Each
may import itself and what is in lower layers."""
_LAYER = {name: number for number, layer in enumerate(LAYERS) for name in layer}
_PYSPARK_HOME = "cdc_core/spark"
_PLUGIN_MAY_IMPORT = frozenset({"cdc_core", "pluggy"}) | sys.stdlib_module_names
_KIT = "cdc_conformance"
"""The one package outside the core that may import modules of the core: it drives the engine."""


def imported_by(path: Path, *, type_checking: bool = False) -> Iterator[tuple[int, str]]:
    """Yield line and full name of everything that the module at *path* imports, also inside functions.

    Imports for type checking count only with *type_checking*.
    """
    yield from ((line, name) for line, name, checking in _imports(path) if type_checking or not checking)


@cache
def _imports(path: Path) -> list[tuple[int, str, bool]]:
    return list(_imports_in(ast.parse(path.read_text(), filename=str(path)), checking=False))


def _imports_in(parent: ast.AST, *, checking: bool) -> Iterator[tuple[int, str, bool]]:
    """Yield line and name of what the statements in *parent* import, and whether it is for type checking only."""
    guards = isinstance(parent, ast.If) and ast.unparse(parent.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
    guarded = parent.body if guards and isinstance(parent, ast.If) else []
    for node in ast.iter_child_nodes(parent):
        only = checking or node in guarded
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, only) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield from ((node.lineno, f"{module}.{alias.name}", only) for alias in node.names)
        elif not isinstance(node, ast.expr):
            yield from _imports_in(node, checking=only)


def core_violations(root: Path) -> list[str]:
    """Say where the core imports a plugin's package, pyspark outside of `cdc_core/spark`, or a higher layer."""
    plugins = {path.name for path in _plugin_packages(root)}
    found: list[str] = []
    for path in sorted((root / "cdc_core").rglob("*.py")):
        place = path.relative_to(root).as_posix()
        for line, name in imported_by(path):
            top = name.partition(".")[0]
            if top in plugins:
                found.append(f"{place}:{line} imports the plugin package {top}; the core finds plugins by name only")
            if top in ("pyspark", "py4j") and not place.startswith(_PYSPARK_HOME + "/"):
                found.append(f"{place}:{line} imports {top}; only {_PYSPARK_HOME} may")
            if top == "cdc_core" and (complaint := _upward(place, name)):
                found.append(f"{place}:{line} imports {name}; {complaint}")
    return found


def plugin_violations(root: Path) -> list[str]:
    """Say where a plugin imports a module of the core, and where its `plugin.py` imports more than it must."""
    found: list[str] = []
    for package in _plugin_packages(root):
        for module in sorted(package.rglob("*.py")):
            place = module.relative_to(root).as_posix()
            for line, name in imported_by(module, type_checking=True):
                parts = name.split(".")
                inner = parts[0] == "cdc_core" and len(parts) > 2
                if inner and package.name != _KIT:
                    found.append(f"{place}:{line} imports {name}; a plugin imports from cdc_core itself")
                if module == package / "plugin.py" and parts[0] not in _PLUGIN_MAY_IMPORT:
                    found.append(f"{place}:{line} imports {name}; it may only describe")
    return found


def cycles(root: Path) -> list[str]:
    """Return one cycle of imports as the modules in it, if there is one in the core or in a plugin."""
    packages = [root / "cdc_core", *_plugin_packages(root)]
    modules = {_name(path, package): path for package in packages for path in package.rglob("*.py")}
    graph = {
        name: {
            found
            for _, imported in imported_by(path, type_checking=True)
            if (found := _module_of(imported, modules)) is not None and found != name
        }
        for name, path in modules.items()
        if path.name != "__init__.py"
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def _upward(place: str, name: str) -> str:
    """Say why the module at *place* may not import *name* of the core; empty when it may."""
    mine, other = Path(place).parts[1].removesuffix(".py"), [*name.split("."), ""][1]
    if mine in ("__init__", "__main__") or mine == other or other not in _LAYER:
        return "" if other in _LAYER or mine == other or mine.startswith("__") else "no layer of the core has it"
    if mine not in _LAYER:
        return f"no layer of the core has {mine}"
    if _LAYER[other] < _LAYER[mine]:
        return ""
    return f"{other} is not below {mine}"


def _name(path: Path, package: Path) -> str:
    return ".".join((package.name, *path.relative_to(package).with_suffix("").parts)).removesuffix(".__init__")


def _module_of(imported: str, modules: Mapping[str, Path]) -> str | None:
    """Return the module that an import of *imported* loads; None for packages and for what is not in the tree."""
    candidates: Iterable[str] = (imported, imported.rpartition(".")[0])
    return next((name for name in candidates if name in modules and modules[name].name != "__init__.py"), None)


def _plugin_packages(root: Path) -> list[Path]:
    sources = (path for kind in ("encoders", "sinks", "plugins") for path in root.glob(f"{kind}/*/src/*"))
    return sorted(path for path in sources if (path / "__init__.py").exists())


def loaded_by(statement: str) -> set[str]:
    """Return the top-level modules that a new interpreter has after *statement*."""
    code = f"{statement}\nimport sys\nprint(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=180)
    return set(done.stdout.split())
