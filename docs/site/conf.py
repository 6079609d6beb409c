"""Configuration of the documentation site: `make docs` builds it with Sphinx, MyST and Furo.

The source directory is the root of the repository, so that links between pages, and between pages and the README files
of packages, are the same on the site and in a checkout.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

project = "cdc"
version = release = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["version"]
root_doc = "docs/index"
include_patterns = [
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs/*.md",
    "docs/*/*.md",
    "encoders/*/README.md",
    "plugins/*/README.md",
    "sinks/*/README.md",
]
exclude_patterns = [".*", "build", "cdc_core", "plugins/template*", "tests"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "llms", "markdown_docstrings"]
myst_heading_anchors = 4
myst_disable_syntax = ["html_inline"]  # `<name>` in a docstring is text

autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "undoc-members": True}
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
maximum_signature_line_length = 100

# Every reference to our names must resolve, except type variables and the host, a parameter for tests. Names of other
# packages do not resolve, because the site is built without a network.
nitpicky = True
nitpick_ignore = [
    ("py:class", "cdc_core.plugins.host.PluginHost"),
    ("py:class", "cdc_core.config.resolved.ResolvedChangefeed"),
    ("py:class", "cdc_core.sink_calls.ObservedCalls"),
]
nitpick_ignore_regex = [
    ("py:.*", r"(?!cdc_core).*"),
    ("py:class", r"cdc_core\..*\.[A-Z]"),
    ("py:class", r"cdc_core\.(changefeeds|delivery|store|watching)\..*"),  # what verbs return
]

html_theme = "furo"
html_title = f"cdc {release}"
html_copy_source = False
html_show_sourcelink = False
html_extra_path = ["root"]
