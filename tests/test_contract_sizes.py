"""The contracts stay small: short modules, few methods to write, and a short template of a sink."""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

import pytest

import cdc_core
from cdc_core import Destination, Encoder, Rangefeed, ResolvedSink, Sink, SliceReader, SourceHistory, StepPlanner

ROOT = Path(__file__).resolve().parent.parent
CONTRACTS = (
    *("rangefeed", "rangefeed_context", "step_planner", "slice_reader", "source_history", "rangefeed_values"),
    *("encoder", "encoder_context", "file_body", "envelope", "sink", "resolved_sink", "destination"),
    *("sink_context", "decoder", "sink_reader", "source_writer", "stored_history", "registrations"),
    *("sink_registration", "hookspecs"),
)
PROSE = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
)


def lines_of_code(text: str) -> int:
    """Return the number of lines that are not blank and do not belong to a comment or docstring."""
    documented: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            documented |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in PROSE:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - documented)


def test_lines_of_code_are_counted_without_prose() -> None:
    text = '"""A module."""\n\nimport os  # a reason\n\n# a comment\nTEXT = """two\n# lines"""\n"""A docstring."""\n'
    assert lines_of_code(text) == 3


@pytest.mark.parametrize("module", CONTRACTS)
def test_a_contract_module_has_at_most_120_lines(module: str) -> None:
    text = (Path(cdc_core.__file__).parent / f"{module}.py").read_text()
    assert len(text.splitlines()) <= 120


@pytest.mark.parametrize(
    ("roles", "most"),
    [
        ((Sink, ResolvedSink, Destination), 4),
        ((Encoder,), 3),
        ((Rangefeed, StepPlanner, SliceReader, SourceHistory), 8),
    ],
    ids=["sink", "encoder", "rangefeed"],
)
def test_an_author_must_write_few_methods(roles: tuple[type, ...], most: int) -> None:
    abstract = [f"{role.__name__}.{name}" for role in roles for name in getattr(role, "__abstractmethods__", ())]
    assert len(abstract) <= most, abstract


def test_the_template_of_a_sink_has_at_most_100_lines_of_code() -> None:
    modules = sorted((ROOT / "plugins" / "template" / "src").rglob("*.py"))
    assert sum(lines_of_code(module.read_text()) for module in modules) <= 100
