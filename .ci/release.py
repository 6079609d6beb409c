"""Prepare a release, and build everything that it uploads.

.ci/release.py prepare 0.2.0    write the version, and the date of its section in the changelog
.ci/release.py build            check, build and list what to upload, in build/release
.ci/release.py rehearse         the same for an unreleased version, as CI does for every commit
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import check_wheels
from check_wheels import canonical
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = check_wheels.ROOT


class Tree:
    """A checkout: what it says about versions."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        self.changelog = root / "CHANGELOG.md"
        self.chart = root / "deploy" / "helm" / "cdc" / "Chart.yaml"

    def projects(self) -> dict[str, Path]:
        """Return the file that declares each distribution, by its name, in the order of uploading."""
        paths = [self.root / "pyproject.toml", *sorted(self.root.glob("*/*/pyproject.toml"))]
        templates = self.templates()
        ours = {canonical(declared(path)["name"]): path for path in paths if path not in templates}
        needs = {name: {each for each, _ in requirements(path, extras=False)} for name, path in ours.items()}
        return {name: ours[name] for name in TopologicalSorter(needs).static_order() if name in ours}

    def templates(self) -> list[Path]:
        """Return the files that declare the templates of plugins, which are not uploaded."""
        return sorted(self.root.glob("*/template*/pyproject.toml"))

    def version(self) -> str:
        return str(declared(self.root / "pyproject.toml")["version"])

    def prepare(self, version: str, date: str) -> None:
        """Write *version* wherever the tree has its present one, and the date into the changelog."""
        old = re.compile(rf"(?<![\d.]){re.escape(self.version())}(?![\d.])")
        image = re.compile(rf"(?<=\bcdc-node:){re.escape(self.version())}(?!\.?\d)")
        for path in sorted((self.root / "docs").rglob("*.md")):
            path.write_text(image.sub(version, path.read_text()))
        for path in (*self.projects().values(), *sorted((self.root / "deploy").rglob("*.yaml"))):
            path.write_text(old.sub(version, path.read_text()))
        ours = "|".join(map(re.escape, self.projects()))
        release = Version(version)
        for path in (*self.projects().values(), *self.templates()):
            floors = re.compile(rf'("(?:{ours})(?:\[[\w,]+\])?>=)[\d.]+')
            path.write_text(floors.sub(rf"\g<1>{release.major}.{release.minor}", path.read_text()))
        text, heading = self.changelog.read_text(), f"## {version} ({date})"
        for earlier in (rf"{re.escape(version)} \(.+\)", r"\S+ \(unreleased\)"):
            text, found = re.subn(rf"^## {earlier}$", heading, text, count=1, flags=re.MULTILINE)
            if found:
                break
        else:
            text = text.replace("\n## ", f"\n{heading}\n\n## ", 1)
        self.changelog.write_text(text)

    def problems(self, *, released: bool) -> Iterator[str]:
        """Yield what keeps this tree from being released; without *released*, from being a version at all."""
        version = self.version()
        projects = self.projects()
        for name, path in projects.items():
            if (own := declared(path)["version"]) != version:
                yield f"{name} has version {own}, cdc-core has {version}"
        for path in (*projects.values(), *self.templates()):
            name = canonical(declared(path)["name"])
            for other, required in requirements(path):
                floor = next((each.version for each in required.specifier if each.operator == ">="), "0")
                if other in projects.keys() - {name} and Version(floor).release[:2] != Version(version).release[:2]:
                    yield f"{name} requires {required}; require {other}>={'.'.join(version.split('.')[:2])}"
        heading = re.search(r"^## (\S+) \((.+)\)$", self.changelog.read_text(), re.MULTILINE)
        if heading is None or heading[1] != version:
            yield f"the first section of {self.changelog.name} is not that of {version}"
        elif not re.fullmatch(r"\d{4}-\d\d-\d\d", heading[2]) and (released or heading[2] != "unreleased"):
            yield f"the section of {version} in {self.changelog.name} has no date"
        if set(re.findall(r"^(?:appV|v)ersion: (\S+)$", self.chart.read_text(), re.MULTILINE)) != {version}:
            yield f"{self.chart.relative_to(self.root)} has another version than {version}"
        if released:
            if git(self.root, "status", "--porcelain"):
                yield "files are not committed"
            if f"v{version}" not in git(self.root, "tag", "--points-at", "HEAD").split():
                yield f"the commit has no tag v{version}"


def main(arguments: list[str]) -> int:
    tree = Tree()
    match arguments:
        case ["prepare", version]:
            tree.prepare(version, datetime.now(UTC).date().isoformat())
            print(f"wrote version {version}; complete its section in {tree.changelog.name}, run .ci/run, and commit")
            return 0
        case ["build" | "rehearse" as verb]:
            return build(tree, released=verb == "build")
    print(__doc__, file=sys.stderr)
    return 2


def build(tree: Tree, *, released: bool) -> int:
    """Build into build/release, and list what is there. Return the exit status."""
    if problems := list(tree.problems(released=released)):
        print(*problems, sep="\n", file=sys.stderr)
        return 1
    from bill_of_materials import bill_of_materials

    version, projects = tree.version(), tree.projects()
    out = tree.root / "build" / "release"
    shutil.rmtree(out, ignore_errors=True)
    with ThreadPoolExecutor(2) as pool:
        built = list(pool.map(lambda path: built_from(path.parent, out), projects.values()))
    for (name, path), (wheel, _) in zip(projects.items(), built, strict=True):
        problems += [f"{name}: {problem}" for problem in check_wheels.check(path, wheel)]
    if problems:
        print(*problems, sep="\n", file=sys.stderr)
        return 1
    bill = out / f"cdc-{version}.cdx.json"
    bill.write_text(bill_of_materials(version, list(projects)))
    files = [*(file for pair in built for file in pair), bill]
    sums = out / "SHA256SUMS"
    sums.write_text("".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files))
    print(f"build/release holds version {version}. Upload in this order:")
    print(*(f"  {wheel.name} {sdist.name}" for wheel, sdist in built), sep="\n")
    print(f"Attach {bill.name} and {sums.name} to the release, and push the image of deploy/container as {version}.")
    return 0


def built_from(project: Path, out: Path) -> tuple[Path, Path]:
    """Return the wheel and the source distribution of *project*. The wheel is built from the source distribution."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out / project.name), str(project)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{project}: {done.stdout}{done.stderr}")
    (wheel,), (sdist,) = (out / project.name).glob("*.whl"), (out / project.name).glob("*.tar.gz")
    built = wheel.rename(out / wheel.name), sdist.rename(out / sdist.name)
    (out / project.name).rmdir()
    return built


def declared(project: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads(project.read_text())["project"]
    return found


def requirements(project: Path, *, extras: bool = True) -> Iterator[tuple[str, Requirement]]:
    """Yield what a distribution requires, with *extras* also what these do."""
    optional = declared(project).get("optional-dependencies", {}).values() if extras else ()
    for text in [*declared(project).get("dependencies", ()), *(text for texts in optional for text in texts)]:
        yield canonical(Requirement(text).name), Requirement(text)


def git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
