"""State directories and the directories of code: other users of the host can change none of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cdc_testing.strangers import NOBODY

from cdc_core.cli.main import main
from cdc_core.errors import ConfigError
from cdc_core.private_files import make_state_directory
from cdc_core.spark.session import _emptied

FEED = """
[changefeed.orders]
source = "simulated:///nowhere"
tables = ["t"]
sink = "null://"
"""
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_a_new_state_directory_is_for_its_user_alone(tmp_path: Path) -> None:
    make_state_directory(tmp_path / "a" / "state")
    assert mode_of(tmp_path / "a" / "state") == 0o700


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o770, 0o2770, 0o1777])
def test_a_state_directory_is_used_as_it_is(tmp_path: Path, mode: int) -> None:
    """Kubernetes lets the group write to each directory of a volume."""
    tmp_path.chmod(mode)
    make_state_directory(tmp_path)
    assert mode_of(tmp_path) == mode


def test_a_state_directory_that_everybody_may_write_ends_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    state.chmod(0o777)
    (tmp_path / "feed.toml").write_text(FEED)
    assert main(["run", str(tmp_path / "feed.toml"), "--state", str(state)]) == 2
    why = (
        f"'{state}' cannot be used as the state directory: other users may write to '{state}'; run `chmod go-w {state}`"
    )
    assert f"error: {why}\n" in capsys.readouterr().err


@as_root
def test_a_state_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, NOBODY, NOBODY)
    with pytest.raises(
        ConfigError, match=rf"state directory: '{tmp_path}' belongs to another user \({NOBODY}\); use a "
    ):
        make_state_directory(tmp_path)


@pytest.mark.parametrize("mode", [0o755, 0o777])
def test_sparks_temporary_directory_is_made_anew_for_its_user_alone(
    tmp_path: Path, mode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    scratch = tmp_path / "scratch"
    (scratch / "spark-home" / "conf").mkdir(parents=True)
    scratch.chmod(mode)
    assert mode_of(_emptied(scratch)) == 0o700
    assert list(scratch.iterdir()) == []


@as_root
@pytest.mark.parametrize("link", [False, True])
def test_spark_does_not_start_from_a_directory_that_another_user_keeps_there(
    tmp_path: Path, *, link: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody but that user can remove it where the sticky bit is set, and `rmtree` removes no link."""
    theirs, scratch = tmp_path / "theirs", tmp_path / "scratch"
    theirs.mkdir()
    os.chown(theirs, NOBODY, NOBODY)
    if link:
        scratch.symlink_to(theirs)
    else:
        theirs.rename(scratch)
    monkeypatch.setattr("shutil.rmtree", lambda *_, **__: None)
    with pytest.raises(ConfigError, match=rf"'{scratch}': other users may change code there; remove the directory"):
        _emptied(scratch)
