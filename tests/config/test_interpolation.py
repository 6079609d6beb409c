"""References to variables and files in texts."""

import os
from pathlib import Path
from typing import Any

import pytest

from cdc_core.config.interpolation import escaped, file_references, has_references, interpolate, with_absolute_files
from cdc_core.errors import ConfigError


def replaced(value: Any, directory: Path = Path(), **environ: str) -> Any:
    return interpolate(with_absolute_files(value, directory), place="shop.toml: source", environ=environ)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("plain", "plain"),
        ("${A}", "one"),
        ("x${A}y${B}z", "xoney${A}z"),
        ("$${A}", "${A}"),
        ("$$${A}", "$${A}"),
        ("$A $ {A} 5$", "$A $ {A} 5$"),
        ("}{", "}{"),
    ],
)
def test_variables_are_replaced_once_and_escapes_stay(text: str, result: str) -> None:
    assert replaced(text, A="one", B="${A}") == result


def test_tables_and_lists_are_walked_and_other_values_stay() -> None:
    assert replaced({"a": ["${A}", 1], "b": {"c": "${A}", "d": True}}, A="x") == {
        "a": ["x", 1],
        "b": {"c": "x", "d": True},
    }


def test_files_are_read_beside_the_configuration_without_their_mark_and_last_line_end(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"\xef\xbb\xbfpa ss\r\n")
    assert replaced("${file:secret}", tmp_path) == "pa ss"
    assert replaced(f"${{file:{tmp_path}/secret}}") == "pa ss"


def test_a_missing_variable_is_named_with_its_place() -> None:
    with pytest.raises(
        ConfigError, match=r"shop\.toml: source needs the environment variable 'NOPE', which is not set"
    ):
        replaced("x${NOPE}")


def test_a_missing_variable_in_a_table_is_named_with_its_key() -> None:
    with pytest.raises(ConfigError, match=r"shop\.toml: source\.pin needs the environment variable 'NOPE'"):
        replaced({"pin": "${NOPE}"})


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"needs the file '.*/nope', which cannot be read: No such file"):
        replaced("${file:nope}", tmp_path)


def test_a_home_directory_that_is_not_there_is_a_missing_file() -> None:
    with pytest.raises(ConfigError, match="needs the file '~nobody-of-that-name/pw', which cannot be read"):
        replaced("${file:~nobody-of-that-name/pw}")


def test_references_and_files_are_found_in_lists_and_tables() -> None:
    assert has_references({"columns": ["a", "${A}"]})
    assert not has_references({"columns": ["a", "$${A}"], "n": 1})
    assert file_references({"a": ["${file:/x}${file:/y}", 1], "b": {"c": "$${file:/z} ${A}"}}) == ["/x", "/y"]


def test_a_file_or_variable_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="blob', which is not UTF-8 text"):
        replaced("${file:blob}", tmp_path)
    with pytest.raises(ConfigError, match="'A', which is not UTF-8 text"):
        replaced("${A}", A=os.fsdecode(b"caf\xe9"))


def test_a_file_that_never_ends_or_is_large_is_refused_and_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"x" * (1 << 20) + b"\n")
    (tmp_path / "link").symlink_to("/dev/zero")
    for path in ("pipe", "large", "link", "/dev/zero"):
        with pytest.raises(ConfigError, match=f"{path}', which is not a regular file of at most 1 MiB"):
            replaced(f"${{file:{path}}}", tmp_path)


@pytest.mark.parametrize(("text", "complaint"), [("${A", "without '}'"), ("${}", "without a name")])
def test_an_incomplete_reference_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        replaced(text, A="x")


def test_relative_files_become_absolute_but_those_of_the_home_directory() -> None:
    texts = {"a": ["${file:pw}", "x${file:/pw}"], "b": "${file:~/pw} $${file:pw}"}
    assert with_absolute_files(texts, Path("/etc/cdc")) == {
        "a": ["${file:/etc/cdc/pw}", "x${file:/pw}"],
        "b": "${file:~/pw} $${file:pw}",
    }


@pytest.mark.parametrize("text", ["${A}", "$${A}", "$$${A}", "${", "a$b", "plain"])
def test_escaped_text_comes_back_as_it_was(text: str) -> None:
    assert replaced(escaped(text)) == text
