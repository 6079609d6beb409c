"""The bill of materials of a release, in the format CycloneDX: our distributions, and all that they require.

Of others it names the versions that are installed here, which are those that the tests ran with.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution

from check_wheels import ROOT, canonical
from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from packaging.requirements import Requirement

VENDOR = ROOT / "cdc_core" / "web" / "page" / "static" / "vendor"
_VERSION = re.compile(r"""\(v([\d.]+)\)|version:"([\d.]+)\"""")


def bill_of_materials(version: str, ours: list[str]) -> str:
    """Return the JSON document. *ours* are the names of our distributions.

    Raises: PackageNotFoundError when something that they require is not installed here.
    """
    components: dict[str, Component] = {}
    bom = Bom()
    bom.metadata.component = whole = Component(name="cdc", version=version, type=ComponentType.APPLICATION)
    edges: dict[str, list[str]] = {}
    waiting = [(name, frozenset(all_extras(name))) for name in ours]
    seen = set()
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        found = distribution(name)
        components.setdefault(name, component(name, version if name in ours else found.version, found))
        for required in requirements(found, extras):
            other = canonical(required.name)
            edges.setdefault(name, []).append(other)
            waiting.append((other, frozenset(required.extras)))
    vendored = list(scripts())
    for each in (*components.values(), *vendored):
        bom.components.add(each)
    bom.register_dependency(whole, [components[name] for name in ours])
    for name, each in components.items():
        others = {components[other] for other in edges.get(name, ())}
        bom.register_dependency(each, [*others, *(vendored if name == "cdc-core" else ())])
    text = JsonV1Dot6(bom).output_as_string(indent=2)
    if problem := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise ValueError(f"the bill of materials is not valid: {problem}")
    return text


def all_extras(name: str) -> list[str]:
    return distribution(name).metadata.get_all("Provides-Extra") or []


def requirements(found: Distribution, extras: frozenset[str]) -> Iterator[Requirement]:
    """Yield what *found* with *extras* requires on this platform."""
    for required in map(Requirement, found.requires or ()):
        if required.marker is None or any(required.marker.evaluate({"extra": each}) for each in {"", *extras}):
            yield required


def component(name: str, version: str, found: Distribution) -> Component:
    told = [found.metadata["License-Expression"], found.metadata["License"], *classified(found)]
    licence = next((text for text in told if text and "\n" not in text), None)
    return Component(
        name=name,
        version=version,
        bom_ref=f"pypi:{name}",
        purl=PackageURL("pypi", name=name, version=version),
        description=found.metadata["Summary"],
        licenses=[LicenseFactory().make_from_string(licence)] if licence else (),
    )


def classified(found: Distribution) -> Iterator[str]:
    """Yield the licences in the classifiers of *found*."""
    for classifier in found.metadata.get_all("Classifier") or ():
        if classifier.startswith("License :: "):
            yield classifier.rpartition(" :: ")[2]


def scripts() -> Iterator[Component]:
    """Yield the scripts of other projects that the page of cdc-core contains."""
    for path in sorted(VENDOR.glob("*.js")):
        version = _VERSION.search(path.read_text())
        yield Component(
            name=path.name,
            version=next(filter(None, version.groups())) if version else None,
            bom_ref=f"file:{path.name}",
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=hashlib.sha256(path.read_bytes()).hexdigest())],
        )
