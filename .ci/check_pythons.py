"""Try the newer versions of Python: install the wheels, import the core, and test plugins with the conformance kit.

Of a version that is not on this machine, only the requirements are resolved: all of them must have wheels for it.
The wheels are those that .ci/check_wheels.py left in build/wheels.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from check_floors import requirements, uv, wheels
from check_outside import Outside, require_wheels

NEWER = ("3.12", "3.13", "3.14")
"""The versions after the one that all other tests run on."""
INSTALLED = ("cdc-core", "cdc-column-texts", "cdc-encoder-json", "cdc-conformance")
EXTRAS = "cdc-core[mcp,metrics,otlp,serve]"
"""What is installed of the core: without PySpark, which is large."""
IMPORTS = """
import importlib, pkgutil, cdc_core
for name in cdc_core.__all__:
    getattr(cdc_core, name)
for module in pkgutil.walk_packages(cdc_core.__path__, "cdc_core.", onerror=lambda name: None):
    try:
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        if error.name not in ("polars", "py4j", "pyspark"):
            raise
"""


def main() -> int:
    require_wheels()
    with tempfile.TemporaryDirectory(prefix="pythons-") as name, ThreadPoolExecutor(2) as pool:
        tool = uv(Outside(Path(name)))
        for said in pool.map(lambda version: tried(tool, Outside(Path(name) / version), version), NEWER):
            print(said, flush=True)
    return 0


def tried(tool: str, outside: Outside, version: str) -> str:
    """Return what was found out about a version. Raises: SystemExit when something does not work."""
    outside.directory.mkdir()
    others = [str(each) for _, each in requirements() if each.name != "pyspark"]  # of which there are only sources
    every = listed(outside.directory / "every.txt", [*wheels(), *others])
    resolve = ["pip", "compile", "--python-version", version, "--only-binary", ":all:", "--output-file", os.devnull]
    outside.checked([tool, "--quiet", *resolve, every])
    found = interpreter(version)
    if found is None:
        return f"Python {version} is not here; what is required, except PySpark, has wheels for it"
    outside.checked([tool, "--quiet", "venv", "--python", found, "venv"])
    install = [tool, "--quiet", "pip", "install", "--python", "venv/bin/python"]
    ours = [line for line in wheels() if line.partition(" ")[0] in INSTALLED]
    outside.checked([*install, "--requirement", listed(outside.directory / "ours.txt", [*ours, EXTRAS])])
    outside.run("python", "-W", "error::SyntaxWarning", "-c", IMPORTS)
    outside.run("cdc", "verify", "encoder", "json")
    outside.run("cdc", "new-plugin", "sink", "shelf")
    outside.checked([*install, str(outside.built(outside.directory / "cdc-sink-shelf"))])
    outside.run("cdc", "verify", "sink", "shelf", "--uri", f"shelf://{outside.directory}/{{unique}}")
    return f"Python {version}: the core can be imported, and an encoder and a sink keep every promise"


def listed(path: Path, lines: Iterable[str]) -> str:
    path.write_text("\n".join(lines))
    return str(path)


def interpreter(version: str) -> str | None:
    """Return the path of a Python of that version, None if there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    for candidate in [shutil.which(f"python{version}"), *map(str, sorted(pyenv.glob(f"{version}.*/bin/python")))]:
        if candidate and subprocess.run([candidate, "-c", ""], capture_output=True).returncode == 0:
            return candidate
    return None


if __name__ == "__main__":
    sys.exit(main())
