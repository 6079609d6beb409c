"""A Sphinx extension for docstrings in Markdown, and for links from names in backticks to the API reference."""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Iterator
from typing import Any, ClassVar

from docutils import nodes
from docutils.utils import new_document
from myst_parser.parsers.sphinx_ import MystParser
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util.docutils import SphinxDirective

import cdc_core


class Docstring(SphinxDirective):
    """Parses its content as Markdown. Autodoc gives every docstring to it."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        document = new_document(self.state.document["source"], self.state.document.settings)
        MystParser().parse("\n".join(self.content), document)
        return document.children


class Links(SphinxTransform):
    """Turns `Sink.flush` in backticks into a link, on every page, when `cdc_core` exports the name.

    Takes the links from types such as `bytes`, which would lead to an attribute of that name.
    """

    default_priority = 100
    targets: ClassVar[dict[str, str]] = {}

    def apply(self, **_: Any) -> None:
        for xref in list(self.document.findall(addnodes.pending_xref)):
            if xref.get("refdomain") == "py" and hasattr(builtins, xref["reftarget"]):
                xref.replace_self(nodes.Text(xref["reftarget"]))
        for literal in list(self.document.findall(nodes.literal)):
            target = self.targets.get(literal.astext().removeprefix("cdc_core."))
            if target is not None and not isinstance(literal.parent, (nodes.reference, addnodes.pending_xref)):
                xref = addnodes.pending_xref(
                    "", refdomain="py", reftype="obj", reftarget=target, refexplicit=True, refdoc=self.env.docname
                )
                literal.replace_self(xref)
                xref += literal


def exported() -> Iterator[str]:
    """Yield every exported name, and every public member of the exported classes."""
    for name in cdc_core.__all__:
        yield name
        value = getattr(cdc_core, name)
        if inspect.isclass(value):
            yield from (f"{name}.{member}" for member in vars(value) if not member.startswith("_"))


def wrap(_app: Sphinx, what: str, _name: str, _obj: object, _options: object, lines: list[str]) -> None:
    """Put the lines of a docstring into the directive `docstring`. For data, autodoc has only the one of the type."""
    if what == "data":
        lines.clear()
    text = [line.replace("Raises:", "**Raises:**") for line in lines]
    lines[:] = [".. docstring::", "", *(f"   {line}" for line in text), ""] if any(text) else []


def setup(app: Sphinx) -> dict[str, bool]:
    Links.targets = {name: f"cdc_core.{name}" for name in exported()}
    app.add_directive("docstring", Docstring)
    app.add_transform(Links)
    app.connect("autodoc-process-docstring", wrap)
    return {"parallel_read_safe": True}
