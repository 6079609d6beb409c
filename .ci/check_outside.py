"""Do what a user does, and the author of a plugin: install the quickstart; create a plugin, test it, run its pipeline.

The wheels are those that .ci/check_wheels.py left in build/wheels; if a file of theirs has changed since, it builds
them again. Everything happens in a temporary directory with its own virtual environment; nothing can be imported from
the tree.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import check_wheels
from check_wheels import ROOT, WHEELS

QUICKSTART = {"postgres", "avro", "json", "cloudstorage", "kafka"}
"""The components that README promises."""

TIMEOUT_S = 900.0


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="outside-") as name:
        check(Outside(Path(name)))
    return 0


def check(outside: Outside) -> None:
    """Run every step. Raises: SystemExit for the first that fails."""
    require_wheels()
    wheels = [str(path) for path in sorted(WHEELS.glob("*/*.whl")) if not path.parent.name.startswith("template")]
    install = ("python", "-m", "pip", "install", "--quiet", "--no-compile")
    with step("install cdc-core[quickstart]"):
        venv.create(outside.directory / "venv", with_pip=True)
        (core,) = WHEELS.glob("*/cdc_core-*.whl")
        outside.run(*install, f"{core}[quickstart]")
        listed = json.loads(outside.run("cdc", "plugins", "--json"))
        expect({each["name"] for each in listed} == QUICKSTART, f"the quickstart has {listed}")
    with step("install the other wheels, with what they need"):
        outside.run(*install, *wheels)
        home = outside.run("python", "-c", "import cdc_core; print(cdc_core.__file__)")
        expect(home.startswith(str(outside.directory)), f"cdc_core comes from {home}")
    with step("cdc new-plugin sink shelf"):
        outside.run("cdc", "new-plugin", "sink", "shelf")
        wheel = outside.built(outside.directory / "cdc-sink-shelf")
        outside.run("python", "-m", "pip", "install", "--quiet", str(wheel))
        expect("cdc-sink-shelf" in outside.run("cdc", "plugins"), "cdc plugins does not list cdc-sink-shelf")
    with step("its suite"):
        outside.run("python", "-m", "pytest", "-q", "cdc-sink-shelf")
    with step("cdc verify sink shelf"):
        outside.run("cdc", "verify", "sink", "shelf", "--uri", f"shelf://{outside.directory}/{{unique}}.db")
    for kind, name in (("encoder", "slip"), ("rangefeed", "well")):
        with step(f"cdc new-plugin {kind} {name}, and its suite"):
            outside.run("cdc", "new-plugin", kind, name)
            wheel = outside.built(outside.directory / f"cdc-{kind}-{name}")
            outside.run("python", "-m", "pip", "install", "--quiet", str(wheel))
            said = outside.run("python", "-m", "pytest", "-q", "-rs", f"cdc-{kind}-{name}")
            expect(kind != "rangefeed" or "SKIPPED" not in said, f"the rangefeed does not keep every promise: {said}")
    with step("cdc run shelf --once, from PostgreSQL"):
        outside.run("python", "-P", str(ROOT / ".ci" / "check_outside_pipeline.py"))
    with step("cdc pack, and a cluster whose worker has no packages"):
        outside.run("python", "-P", str(ROOT / ".ci" / "check_outside_cluster.py"))
    with step("uninstall it"):
        outside.run("python", "-m", "pip", "uninstall", "--quiet", "--yes", "cdc-sink-shelf")
        expect_hint(outside.run("cdc", "run", "shelf", status=2), "install the package that publishes it")
        feed = outside.directory / "feed.toml"
        feed.write_text(
            '[changefeed.shelf]\nsource = "postgresql://u@h/d"\ntables = ["t"]\nsink = "shelf:///shelf.db"\n'
        )
        expect_hint(outside.run("cdc", "run", str(feed), status=2), "install the package that registers it")


def require_wheels() -> None:
    """Build the wheels unless those that were built last are current. Raises: SystemExit when one is wrong."""
    if not check_wheels.are_current():
        with step("build the wheels"):
            expect(check_wheels.main() == 0, "a wheel is not as it should be")


class Outside:
    """A directory outside of the tree, with a virtual environment."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.resolve()
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
        }
        self._environment = {**inherited, "PATH": f"{self.directory / 'venv' / 'bin'}:{os.environ['PATH']}"}

    def built(self, project: Path) -> Path:
        """Return the wheel of *project*, built with the tools of the tree's own environment."""
        out = self.directory / "wheels" / project.name
        command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(project)]
        self.checked(command)
        (wheel,) = out.glob("*.whl")
        return wheel

    def run(self, program: str, *arguments: str, status: int = 0) -> str:
        """Return the output of a program of the virtual environment, both streams together."""
        return self.checked([str(self.directory / "venv" / "bin" / program), *arguments], status=status)

    def checked(self, command: list[str], *, status: int = 0) -> str:
        done = subprocess.run(
            command,
            cwd=self.directory,
            env={**self._environment, "PIP_FIND_LINKS": " ".join(map(str, WHEELS.iterdir()))},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_S,
        )
        if done.returncode != status:
            sys.exit(f"{' '.join(command)}\nexited with {done.returncode}, not {status}:\n{done.stdout}")
        return done.stdout


def expect(holds: bool, otherwise: str) -> None:
    if not holds:
        sys.exit(otherwise)


def expect_hint(said: str, hint: str) -> None:
    expect(hint in said, f"without the plugin, the output should contain '{hint}': {said}")


@contextmanager
def step(name: str) -> Iterator[None]:
    started = time.monotonic()
    yield
    print(f"{name}: {time.monotonic() - started:.1f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
