"""The archive of Spark's classes, which makes starts quicker, and changes nothing else."""

from __future__ import annotations

import operator
import os
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import pyspark
import pytest
from cdc_testing import spark_archive
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.strangers import NOBODY

from cdc_core.spark.class_archive import VARIABLE, ClassArchive, is_installed, link_spark
from cdc_core.spark.private_api import jvm_process
from cdc_core.spark.session import end_jvm


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache directory."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def found() -> ClassArchive:
    archive = ClassArchive.find()
    assert archive is not None
    return archive


def fresh(archive: ClassArchive) -> Path:
    """Return where a JVM of this process writes it."""
    return archive.directory / f"{os.getpid()}.new"


def test_until_there_is_an_archive_the_jvm_writes_one_when_it_ends(cache: Path) -> None:
    archive = found()
    assert f'"-XX:ArchiveClassesAtExit={fresh(archive)}"' in archive.java_options()
    archive.file.touch()
    assert f'"-XX:SharedArchiveFile={archive.file}"' in archive.java_options()
    assert "ArchiveClassesAtExit" not in archive.java_options()


def test_the_home_beside_it_has_sparks_programs_and_jars_and_no_pyspark(cache: Path) -> None:
    home = found().home
    installed = Path(pyspark.__file__).parent
    assert {path.name for path in home.iterdir()} == {"bin", "jars"}
    assert (home / "bin").readlink() == installed / "bin"
    missing = {*(installed / "jars").glob("*.jar")} - {path.readlink() for path in (home / "jars").iterdir()}
    assert [jar.name.partition("_")[0] for jar in missing] == ["spark-mllib"]
    assert found().home == home


def test_the_home_is_that_of_the_installed_spark(cache: Path, tmp_path: Path) -> None:
    assert is_installed(found().home)
    assert is_installed(Path(pyspark.__file__).parent)
    assert not is_installed(tmp_path)


def test_a_home_that_another_process_makes_meanwhile_is_used(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = cache / "home"
    other = Path.rename

    def second(path: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "rename", other)
        link_spark(home)
        return other(path, target)

    monkeypatch.setattr(Path, "rename", second)
    link_spark(home)
    assert {path.name for path in home.iterdir()} == {"bin", "jars"}


def test_a_cache_that_cannot_be_written_is_not_used(cache: Path) -> None:
    cache.write_text("not a directory")
    assert ClassArchive.find() is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
@pytest.mark.parametrize("what", ["directory", "directory.parent", "directory.parent.parent"])
def test_a_cache_of_another_user_is_not_used(cache: Path, what: str, caplog: pytest.LogCaptureFixture) -> None:
    directory = operator.attrgetter(what)(found())
    os.chown(directory, NOBODY, NOBODY)
    assert (ClassArchive.find(), ClassArchive.find()) == (None, None)
    [said] = caplog.messages
    assert said == (
        f"Spark's classes will not be cached: '{directory}' belongs to another user ({NOBODY}); use a directory of your"
        " own (set the directory with CDC_CACHE)"
    )


@pytest.mark.parametrize("mode", [0o770, 0o707])
@pytest.mark.parametrize("what", ["directory", "directory.parent", "directory.parent.parent"])
def test_a_cache_into_which_others_may_write_is_not_used_until_they_may_not(
    cache: Path, what: str, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    directory = operator.attrgetter(what)(found())
    directory.chmod(mode)
    assert ClassArchive.find() is None
    assert f"other users may write to '{directory}'; run `chmod go-w {directory}`" in caplog.text
    directory.chmod(mode & ~0o022)
    assert ClassArchive.find() is not None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_a_link_of_another_user_does_not_lead_to_a_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = found().directory
    shared = cache.with_name("shared")
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "mine").mkdir()
    (shared / "theirs").symlink_to(cache)
    os.lchown(shared / "theirs", NOBODY, NOBODY)
    monkeypatch.setenv(VARIABLE, str(shared / "theirs"))
    assert ClassArchive.find() is None
    monkeypatch.setenv(VARIABLE, str(shared / "mine"))  # others may only add to what is above it
    assert found().directory.name == directory.name


def test_a_new_cache_is_for_its_user_alone(cache: Path) -> None:
    before = os.umask(0o002)
    try:
        directory = found().directory
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (directory, directory.parent, directory.parent.parent)} == {0o700}


def test_off_is_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "off")
    assert ClassArchive.find() is None


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has its own place")
def test_the_cache_is_where_caches_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert found().directory.parent == tmp_path / "xdg" / "cdc" / "spark"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert found().directory.parent == tmp_path / "home" / ".cache" / "cdc" / "spark"


def test_another_java_has_another_archive(cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first = found()
    (tmp_path / "jdk" / "bin").mkdir(parents=True)
    (tmp_path / "jdk" / "bin" / "java").touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert found() != first


def test_a_java_that_cannot_write_one_is_asked_once(cache: Path) -> None:
    archive = found()
    archive.write(lambda: 0)
    assert archive.java_options() == ""


@pytest.mark.parametrize("end", [Mock(return_value=-9), Mock(side_effect=KeyboardInterrupt)])
def test_a_jvm_that_is_killed_while_it_writes_leaves_nothing(cache: Path, end: Mock) -> None:
    archive = found()
    fresh(archive).write_text("half of it")
    archive.write(end)
    assert {path.name for path in archive.directory.iterdir()} == {"home"}
    assert "ArchiveClassesAtExit" in archive.java_options()


def test_what_jvms_wrote_that_ended_with_their_process_goes_at_the_next_start(cache: Path) -> None:
    left, recent = (found().directory / name for name in ("1.new", "2.new"))
    for path in (left, recent):
        path.touch()
    os.utime(left, (0, time.time() - 100))
    found()
    assert (left.exists(), recent.exists()) == (False, True), "another process may still rename a recent one"


@pytest.mark.parametrize("closed", [False, True])
def test_what_a_jvm_wrote_that_was_not_asked_to_goes_with_it(
    cache: Path, monkeypatch: pytest.MonkeyPatch, closed: bool
) -> None:
    monkeypatch.setattr("cdc_core.spark.session.is_alive", lambda _: False)
    monkeypatch.setattr("cdc_core.spark.session.is_closed", lambda _: closed)
    monkeypatch.setattr("cdc_core.spark.session.forget_jvm", lambda **_: fresh(found()).touch())
    end_jvm(Mock())
    assert {path.name for path in found().directory.iterdir()} == {"home"}


@pytest.mark.parametrize(("options", "due"), [("{}", True), ("-XX:SharedArchiveFile=gone.jsa", False)])
def test_only_a_jvm_that_was_started_to_write_one_is_asked_for_it(
    cache: Path, monkeypatch: pytest.MonkeyPatch, options: str, due: bool
) -> None:
    """A later session in the same JVM has the options of an archive that was removed meanwhile."""
    archive = found()
    word = f"spark.driver.extraJavaOptions={options.format(archive.java_options())}"
    monkeypatch.setattr("cdc_core.spark.class_archive.jvm_process", lambda: Mock(args=["sh", "--conf", word]))
    monkeypatch.setattr("cdc_core.spark.class_archive.count_jobs", lambda _: 1)
    monkeypatch.setattr("cdc_core.spark.class_archive._SPACE", 0)
    assert ClassArchive.due(Mock()) == (archive if due else None)


def test_an_archive_that_nobody_used_for_a_month_goes_when_one_is_written(cache: Path) -> None:
    archive = found()
    old, used = archive.directory.with_name("old"), archive.directory.with_name("used")
    for other in (old, used):
        other.mkdir()
    os.utime(old, (0, 0))
    fresh(archive).touch()
    archive.write(lambda: 0)
    assert archive.file.exists()
    assert set(cache.joinpath("spark").iterdir()) == {archive.directory, used}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which files a process maps")
def test_the_first_run_leaves_the_archive_and_the_next_one_maps_it(
    monkeypatch: pytest.MonkeyPatch, kept_spark: KeptSpark
) -> None:
    """The first run is that of `make spark-archive`; where all tests run, it was before them."""
    made = subprocess.run(
        [sys.executable, "-m", "cdc_testing.spark_archive"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    monkeypatch.setenv(VARIABLE, str(spark_archive.CACHE))
    archive = found()
    assert archive.file.exists(), made.stderr
    assert archive.file.stat().st_size > 10_000_000

    kept_spark.close()  # its JVM may have had no archive
    kept_spark.session()
    jvm = jvm_process()
    assert jvm is not None
    assert str(archive.file) in Path(f"/proc/{jvm.pid}/maps").read_text()
