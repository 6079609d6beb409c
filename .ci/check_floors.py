"""Install the declared minimum of everything that the distributions require, and deliver one changefeed to each sink.

The wheels are those that .ci/check_wheels.py left in build/wheels. Everything happens in a temporary directory with its
own virtual environment. Then the versions are looked up among the known vulnerabilities, where these can be had.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Iterator
from pathlib import Path

from check_outside import Outside, expect, require_wheels, step
from check_wheels import ROOT, WHEELS, canonical
from packaging.requirements import Requirement
from packaging.version import Version

OURS = {
    canonical(tomllib.loads(path.read_text())["project"]["name"]): path
    for path in [ROOT / "pyproject.toml", *ROOT.glob("*/*/pyproject.toml")]
    if not path.parent.name.startswith("template")
}
"""What declares each distribution, by its name."""


def main() -> int:
    lowest = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    if lowest != f">={sys.version_info.major}.{sys.version_info.minor}":
        print(f"skipped: the floors are those of Python {lowest}, and some have no wheels for {sys.version.split()[0]}")
        return 0
    with tempfile.TemporaryDirectory(prefix="floors-") as name:
        check(Outside(Path(name)))
    return 0


def check(outside: Outside) -> None:
    """Run every step. Raises: SystemExit for the first that fails."""
    require_wheels()
    with step("install the floors"):
        venv.create(outside.directory / "venv")
        python = str(outside.directory / "venv" / "bin" / "python")
        command = [uv(outside), "--quiet", "pip"]
        listed = outside.directory / "floors.txt"
        listed.write_text("\n".join([*wheels(), *(str(each) for _, each in requirements())]))
        floors = ["--resolution", "lowest-direct", "--requirement", str(listed)]
        outside.checked([*command, "install", "--python", python, *floors])
        frozen = outside.checked([*command, "freeze", "--python", python])
    installed = {canonical(line.partition("==")[0]): line.partition("==")[2] for line in frozen.split() if "==" in line}
    problems = sorted(set(differing(installed)))
    expect(not problems, "the declared minimum is not what can be installed:\n" + "\n".join(problems))
    with step("deliver to each sink"):
        print(outside.run("python", "-P", str(ROOT / ".ci" / "check_floors_pipeline.py")).strip())
    with step("known vulnerabilities"):
        audit(outside, {name: version for name, version in installed.items() if name not in OURS})


def uv(outside: Outside) -> str:
    """Return the path of uv, which is installed in the temporary directory if it is missing."""
    tools = outside.directory / "tools"
    if not tools.exists():
        if found := shutil.which("uv"):
            return found
        venv.create(tools, with_pip=True)
        outside.checked([str(tools / "bin" / "python"), "-m", "pip", "install", "--quiet", "uv"])
    return str(tools / "bin" / "uv")


def wheels() -> Iterator[str]:
    for name, project in OURS.items():
        (wheel,) = (WHEELS / project.parent.name).glob("*.whl")
        yield f"{name} @ {wheel.as_uri()}"


def requirements() -> Iterator[tuple[str, Requirement]]:
    """Yield what each distribution requires of others, extras included."""
    for name, project in OURS.items():
        declared = tomllib.loads(project.read_text())["project"]
        extras = declared.get("optional-dependencies", {}).values()
        for text in [*declared.get("dependencies", ()), *(text for listed in extras for text in listed)]:
            required = Requirement(text)
            if canonical(required.name) not in OURS:
                yield name, required


def differing(installed: dict[str, str]) -> Iterator[str]:
    """Yield each requirement of which another version than its minimum is *installed*: the minimum was not tested."""
    for name, required in requirements():
        found = installed.get(canonical(required.name), "")
        floors = {Version(each.version) for each in required.specifier if each.operator == ">="}
        if not found or Version(Version(found).base_version) not in floors:
            yield f"{name} requires {required}, and {found or 'nothing'} was installed"


def audit(outside: Outside, installed: dict[str, str]) -> None:
    """Raise SystemExit when a version of *installed* has a known vulnerability that a newer one has not."""
    looked_up = vulnerable(outside, dict([next(iter(installed.items()))]))
    if looked_up is not None:
        looked_up = vulnerable(outside, installed)
    if looked_up is None:
        print("the known vulnerabilities cannot be reached from here, so nothing was looked up")
    else:
        expect(not looked_up, "versions with known vulnerabilities may be installed:\n" + "\n".join(looked_up))


def vulnerable(outside: Outside, installed: dict[str, str]) -> list[str] | None:
    """Return the vulnerabilities of *installed* for which there are fixes, None when they cannot be looked up."""
    listed = outside.directory / "installed.txt"
    listed.write_text("".join(f"{name}=={version}\n" for name, version in installed.items()))
    tool = [uv(outside), "--quiet", "tool", "run", "pip-audit", "--progress-spinner", "off", "--timeout", "10"]
    command = [*tool, "--disable-pip", "--no-deps", "--format", "json", "--requirement", str(listed)]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=300)
        found = json.loads(done.stdout)["dependencies"]
    except (subprocess.TimeoutExpired, ValueError):
        return None
    if all("skip_reason" in each for each in found):
        return None
    return [
        f"{each['name']} {each['version']}: {hole['id']}, fixed in {', '.join(hole['fix_versions'])}"
        for each in found
        for hole in each.get("vulns", ())
        if hole["fix_versions"]
    ]


if __name__ == "__main__":
    sys.exit(main())
