"""Build the wheel of every distribution in build/wheels, and check it.

A wheel holds its package and nothing else, its metadata name the license, and it declares what it imports.
"""

from __future__ import annotations

import ast
import hashlib
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WHEELS = ROOT / "build" / "wheels"
TEMPLATES = {"sink": "template", "encoder": "template_encoder", "rangefeed": "template_rangefeed"}
CARRIERS = ("cdc_conformance",)
"""Packages that carry the templates; there the modules of a template have the suffix .py.txt."""
LICENSE = "Apache-2.0"
DOCS = ROOT / "docs"
STAMP = WHEELS / "sources.sha256"


def main() -> int:
    problems = []
    shutil.rmtree(WHEELS, ignore_errors=True)
    built_from = sources()
    for project in sorted([ROOT / "pyproject.toml", *ROOT.glob("*/*/pyproject.toml")]):
        out = WHEELS / project.parent.name
        command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out)]
        subprocess.run(
            [*command, str(project.parent)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        (wheel,) = out.glob("*.whl")
        found = list(check(project, wheel))
        print(f"{wheel.name}: {'; '.join(found) or 'ok'}")
        problems += found
    if not problems:
        STAMP.write_text(built_from)
    return 1 if problems else 0


def are_current() -> bool:
    """Return whether build/wheels holds what would be built now."""
    return STAMP.is_file() and STAMP.read_text() == sources() and any(WHEELS.glob("*/cdc_core-*.whl"))


def sources() -> str:
    """Return a hash of every file that a wheel is built from, and of some others: all but tests."""
    wanted = ("--cached", "--others", "--exclude-standard", "-z", "--", ".", ":!tests", ":!*/*/tests")
    listed = subprocess.run(["git", "ls-files", *wanted], cwd=ROOT, check=True, capture_output=True, text=True)
    found = hashlib.sha256()
    for name in sorted(set(listed.stdout.rstrip("\0").split("\0"))):
        if (path := ROOT / name).is_file():  # else it was deleted
            found.update(f"{name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()


def check(project: Path, wheel: Path) -> Iterator[str]:
    """Yield every fault of *wheel*, which was built from the distribution that *project* declares."""
    declared = tomllib.loads(project.read_text())
    (source,) = declared["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    package = project.parent / source
    expected = {
        str(path.relative_to(package.parent))
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    if package.name in CARRIERS:
        expected |= set(templates_in(package.name))
    if package.name == "cdc_core":
        pages = [path for path in (*DOCS.glob("**/*.md"), *DOCS.glob("examples/*.py")) if path.parent.name != "api"]
        expected |= {f"cdc_core/docs/{page.relative_to(DOCS)}" for page in pages}
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
        yield from check_pages(archive)
        metadata = {Path(name).name for name in archive.namelist() if ".dist-info/" in name}
        yield from check_license(archive, declared["project"]["license"])
    if held - expected:
        yield f"has files that are not in its package: {sorted(held - expected)}"
    if expected - held:
        yield f"lacks {sorted(expected - held)}"
    if f"{package.name}/py.typed" not in held:
        yield "lacks py.typed"
    wants_entry_points = {"scripts", "entry-points"} & set(declared["project"])
    if wants_entry_points and "entry_points.txt" not in metadata:
        yield "lacks its entry points"
    allowed = set(distributions_of(declared["project"])) | {canonical(declared["project"]["name"])}
    for module, names in imports(package):
        if not {canonical(name) for name in [module, *packages_distributions().get(module, ())]} & allowed:
            yield f"imports {module} without declaring it ({names})"


def check_license(wheel: zipfile.ZipFile, expression: str) -> Iterator[str]:
    """Yield what is wrong if *wheel* does not declare the licenses, or does not hold their texts.

    *expression* names ours and those of files in a directory `vendor`, each of which has its text beside it.
    """
    (metadata,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    vendored = [name for name in wheel.namelist() if "/vendor/" in name and name.endswith((".js", ".css"))]
    ours, *theirs = expression.split(" AND ")
    if ours != LICENSE or bool(theirs) != bool(vendored):
        yield f"declares the license {expression}"
    if f"License-Expression: {expression}" not in wheel.read(metadata).decode().splitlines():
        yield f"does not declare the license {expression}"
    for name in vendored:
        program = re.split(r"[.-]", name.rpartition("/")[2])[0]
        if (
            metadata.removesuffix("METADATA") + f"licenses/{Path(name).parent}/{program}.LICENSE.txt"
            not in wheel.namelist()
        ):
            yield f"lacks the license of {name}"
    text = metadata.removesuffix("METADATA") + "licenses/LICENSE"
    if text not in wheel.namelist():
        yield "lacks the text of the license"
    elif wheel.read(text) != (ROOT / "LICENSE").read_bytes():
        yield "has a LICENSE that differs from the one of the repository"


def check_pages(wheel: zipfile.ZipFile) -> Iterator[str]:
    """Yield each page of the documentation that a text in *wheel* names and its reader does not have.

    A page is named by its path, and then *wheel* must hold it, or as `cdc docs PAGE`, which prints what cdc-core holds.
    Pictures are in the repository only.
    """
    held = {name.partition("/docs/")[2].partition("/")[0].removesuffix(".md") for name in wheel.namelist()}
    for name in wheel.namelist():
        if not name.endswith((".py", ".md", ".txt", ".toml", "METADATA")):
            continue
        text = re.sub(r"https?://\S+", "", wheel.read(name).decode())
        missing = set(re.findall(r"(?<!\w)docs/(?!images/)([\w-]+\b)(?!\.py)", text)) - held
        missing |= {page for page in re.findall(r"`cdc docs ([a-z/-]+)`", text) if not (DOCS / f"{page}.md").is_file()}
        if missing:
            yield f"{name} names pages that the wheel does not contain: {', '.join(sorted(missing))}"


def templates_in(package: str) -> Iterator[str]:
    """Yield the path of each committed file of the templates in the wheel of *package*."""
    for kind, template in TEMPLATES.items():
        command = ["git", "ls-files", "-z"]
        listed = subprocess.run(command, cwd=ROOT / "plugins" / template, check=True, capture_output=True, text=True)
        for name in listed.stdout.rstrip("\0").split("\0"):
            yield f"{package}/templates/{kind}/{name}{'.txt' if name.endswith('.py') else ''}"


def distributions_of(project: dict[str, object]) -> Iterator[str]:
    extras = project.get("optional-dependencies", {})
    assert isinstance(extras, dict)
    dependencies = project.get("dependencies", [])
    assert isinstance(dependencies, list)
    for requirement in [*dependencies, *(line for lines in extras.values() for line in lines)]:
        yield canonical(re.split(r"[\[<>=!~; ]", requirement)[0])


def imports(package: Path) -> list[tuple[str, str]]:
    """Return the top-level modules of third parties that *package* imports, each with one file that imports it."""
    found: dict[str, str] = {}
    for path in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            for name in names:
                top = name.partition(".")[0]
                if top not in sys.stdlib_module_names and top != package.name:
                    found.setdefault(top, path.name)
    return sorted(found.items())


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    sys.exit(main())
