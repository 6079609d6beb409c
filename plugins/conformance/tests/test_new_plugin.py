"""`cdc new-plugin` creates a complete repository under the plugin's name. .ci/check_outside.py runs its suite."""

from __future__ import annotations

import ast
import itertools
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from random import Random
from string import ascii_lowercase

import pytest
from cdc_conformance.new_plugin import _MARKERS, Names, create, template_files

from cdc_core.cli.main import main

ROOT = Path(__file__).resolve().parents[3]
TEMPLATES = {
    "sink": ROOT / "plugins" / "template",
    "encoder": ROOT / "plugins" / "template_encoder",
    "rangefeed": ROOT / "plugins" / "template_rangefeed",
}
EXAMPLES = r"sqlite|journal|\bforms?\b|\.db\b|transaction"
"""Words about what the code of the templates does before an author changes it."""
kinds = pytest.mark.parametrize("kind", TEMPLATES)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def texts(directory: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            yield str(path.relative_to(directory)), path.read_text()


@kinds
def test_a_template_has_exactly_its_committed_files(kind: str) -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=TEMPLATES[kind], capture_output=True, text=True, check=True)
    assert {relative for _, relative in template_files(kind)} == set(listed.stdout.split())


@pytest.mark.parametrize(
    ("name", "package", "cls", "variable"),
    [
        ("shelf", "cdc_sink_shelf", "ShelfSink", "SHELF_SINK"),
        ("redis-stream", "cdc_sink_redis_stream", "RedisStreamSink", "REDIS_STREAM_SINK"),
        ("s3-archive2", "cdc_sink_s3_archive2", "S3Archive2Sink", "S3_ARCHIVE2_SINK"),
    ],
)
def test_every_form_of_the_name_is_replaced(here: Path, name: str, package: str, cls: str, variable: str) -> None:
    made = create(Names.of("sink", name), here / "made")
    declared = tomllib.loads((made / "pyproject.toml").read_text())["project"]
    assert declared["name"] == f"cdc-sink-{name}"
    assert declared["entry-points"]["cdc_core.plugins"] == {package: f"{package}.plugin"}
    assert declared["entry-points"]["cdc_core.pipelines"] == {name: f"{package}.pipelines:pipeline"}
    plugin = (made / "src" / package / "plugin.py").read_text()
    assert f'name="{name}"' in plugin
    assert f'sink="{package}.sink:{cls}"' in plugin
    assert variable in (made / "src" / package / "pipelines.py").read_text()


@kinds
def test_the_name_of_the_template_is_replaced_everywhere(here: Path, kind: str) -> None:
    made = create(Names.of(kind, "redis-stream"), here / "made")
    for path, text in texts(made):
        assert "template" not in f"{path} {text}".lower(), path
        if path.endswith(".py"):
            ast.parse(text)


def drawn_names(seed: int) -> Iterator[str]:
    """Yield names of one to three words."""
    random = Random(seed)
    while True:
        words = ["".join(random.choices(ascii_lowercase, k=random.randint(3, 7))) for _ in range(random.randint(1, 3))]
        yield "-".join(words)


@kinds
def test_no_text_about_the_example_is_left_for_whatever_name(here: Path, kind: str) -> None:
    for name in itertools.islice(drawn_names(seed=39), 20):
        names = Names.of(kind, name)
        made = create(names, here / name)
        for path, text in texts(made):
            told = f"{path} {text}".lower().replace(name, "")
            assert "template" not in told, path
            if path not in {"LICENSE", *about_the_example(kind, names.package)}:
                assert not re.search(EXAMPLES, told), (path, re.search(EXAMPLES, told))


def about_the_example(kind: str, package: str) -> Iterator[str]:
    """Yield the modules that an author replaces by code for another destination, format or source."""
    yield "tests/test_conformance.py"
    modules = {
        "sink": ["database", "destination", "sink", "reader", "resolved_sink"],
        "encoder": ["encoder", "decoder"],
        "rangefeed": ["journal", "rangefeed", "planner", "reader", "writer"],
    }
    for module in modules[kind]:
        yield f"src/{package}/{module}.py"


@kinds
def test_the_name_template_gives_the_template(here: Path, kind: str) -> None:
    made = create(Names.of(kind, "template"), here / "made")
    marked = {relative: source.read_text() for source, relative in template_files(kind)}
    assert dict(texts(made)) == {relative: _MARKERS.sub("", text) for relative, text in marked.items()}
    assert "<!-- options" not in (made / "README.md").read_text()


@pytest.mark.parametrize(
    ("kind", "commands"),
    [
        ("sink", ["cd cdc-sink-shelf", "pip install -e '.[test,pipeline]'", "pytest", "cdc run shelf"]),
        ("encoder", ["cd cdc-encoder-shelf", "pip install -e '.[test]'", "pytest", "cdc verify encoder shelf"]),
        (
            "rangefeed",
            [
                *("cd cdc-rangefeed-shelf", "pip install -e '.[test]'", "pytest"),
                "cdc verify rangefeed shelf --uri 'shelf://…'",
            ],
        ),
    ],
)
def test_the_next_commands_are_shown(
    here: Path, capsys: pytest.CaptureFixture[str], kind: str, commands: list[str]
) -> None:
    assert main(["new-plugin", kind, "shelf"]) == 0
    assert re.findall(r"^  (\S.*)$", capsys.readouterr().out, re.MULTILINE) == commands
    assert (here / f"cdc-{kind}-shelf" / "pyproject.toml").exists()


def test_the_directory_may_be_chosen_and_may_exist_if_it_is_empty(here: Path) -> None:
    (here / "empty").mkdir()
    assert main(["new-plugin", "sink", "shelf", "--directory", "empty"]) == 0
    assert (here / "empty" / "tests" / "test_conformance.py").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["sink", "Shelf"], "'Shelf' cannot name a plugin"),
        (["sink", "2shelf"], "cannot name a plugin"),
        (["sink", "she_lf"], "such as 'shelf' or 'redis-stream'"),
        (["sink", "s" * 25], "up to 24 lowercase letters"),
        (["sink", "class"], "it is a Python keyword"),
        (["sink", "kafka"], "'kafka' is taken: cdc-sink-kafka"),
        (["sink", "s3"], "'s3' is taken: cdc-sink-cloudstorage"),
        (["sink", "shelf", "--directory", "full"], "'full' exists and is not an empty directory"),
        (["sink", "shelf", "--directory", "full/file"], "'full/file' exists and is not an empty directory"),
        (["sink", "shelf", "--directory", "full/file/under"], "cannot write '"),
        (["encoder", "json"], "'json' is taken: cdc-encoder-json"),
        (["rangefeed", "postgresql"], "'postgresql' is taken: cdc-rangefeed-postgres"),
    ],
)
def test_errors_are_one_sentence(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    (here / "full").mkdir()
    (here / "full" / "file").touch()
    assert main(["new-plugin", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert says in line
    assert [str(path.relative_to(here)) for path in sorted(here.rglob("*"))] == ["full", "full/file"]
