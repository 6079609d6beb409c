"""Processes that wait for jobs: what takes one, what ends it, and when there is one."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest
from cdc_testing.engine import counter_feed
from cdc_testing.processes import command, lives
from cdc_testing.runs import eventually
from cdc_testing.shown_secrets import shown_secrets

from cdc_core.engine.ipc import lease_clock
from cdc_core.engine.supervisor import Outcome
from cdc_core.jobs import spares
from cdc_core.jobs.settings import NodeSettings
from cdc_core.jobs.spares import Spare, Spares
from cdc_core.jobs.subprocess_run import SubprocessRun
from cdc_core.spark.standalone import application_settings
from cdc_core.store.progress import ProgressStore, store_url

SECRET = "s3cr3t-of-the-source"
NODE = """
import sys
from pathlib import Path
from cdc_core.jobs.spares import Spare
print(Spare(Path(sys.argv[1])).process.pid, flush=True)
sys.stdin.readline()
"""


class FakeSpare:
    """A spare that is ready, unless a test says otherwise."""

    def __init__(self, _: Path) -> None:
        self.versions = spares.installed()
        self.is_ready = self.is_running = True
        self.has_ended = False
        self.process = self
        self.returncode = 1

    def end(self) -> None:
        self.has_ended = True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which stands still."""
    now = [1000.0]
    monkeypatch.setattr("cdc_core.jobs.spares.time.monotonic", lambda: now[0])
    return now


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[FakeSpare]:
    """The spares that were begun."""
    found: list[FakeSpare] = []
    monkeypatch.setattr(spares, "installed", lambda: {"cdc-core": "1"})
    monkeypatch.setattr(spares, "Spare", lambda home: found.append(FakeSpare(home)) or found[-1])
    return found


def kept(tmp_path: Path, cores: int = 1, count: int = 1) -> Spares:
    return Spares(NodeSettings(store="sqlite://", name="one", directory=str(tmp_path), cores=cores, spares=count))


def across_nodes(**own: str) -> Mapping[str, str]:
    versions = {"cdc-core": "1"}
    return application_settings(
        own, master="spark://a:7077", secret="s", address="a", cores=1, executors=1, slot=0, versions=versions
    )


def test_a_job_takes_a_spare_and_another_one_begins_when_the_job_has_had_time_to(
    tmp_path: Path, clock: list[float], made: list[FakeSpare]
) -> None:
    waiting = kept(tmp_path)
    waiting.keep(calm=True)
    waiting.keep(calm=True)
    (first,) = made
    assert waiting.take(across_nodes(**{"spark.sql.shuffle.partitions": "2", "spark.executor.memory": "1g"})) is first
    for calm in (False, True):
        waiting.keep(calm=calm)
        assert waiting.take(across_nodes()) is None
    clock[0] += 31
    waiting.keep(calm=True)
    assert len(made) == 2
    waiting.end()
    assert [each.has_ended for each in made] == [False, True]


@pytest.mark.parametrize(
    "spark",
    [
        {},
        {"master": "local[2]"},
        across_nodes(**{"spark.driver.memory": "2g"}),
        across_nodes(**{"spark.jars.packages": "a:b:1"}),
        across_nodes(**{"spark.pyspark.python": "/other/python"}),
    ],
)
def test_a_job_that_needs_another_jvm_leaves_the_spare(
    tmp_path: Path, clock: list[float], made: list[FakeSpare], spark: Mapping[str, str]
) -> None:
    waiting = kept(tmp_path)
    waiting.keep(calm=True)
    assert waiting.take(spark) is None
    assert waiting.take(across_nodes()) is made[0]


@pytest.mark.parametrize("how", ["is not ready", "has crashed", "has loaded other versions"])
def test_a_spare_that_is_not_as_a_new_process_is_not_used(
    tmp_path: Path, clock: list[float], made: list[FakeSpare], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    waiting = kept(tmp_path)
    waiting.keep(calm=True)
    made[0].is_ready = how == "has loaded other versions"
    made[0].is_running = how != "has crashed"
    if made[0].is_ready:
        monkeypatch.setattr(spares, "installed", lambda: {"cdc-core": "2"})
    assert waiting.take(across_nodes()) is None
    assert made[0].has_ended


def test_one_that_crashed_is_replaced_after_a_minute(
    tmp_path: Path, clock: list[float], made: list[FakeSpare], caplog: pytest.LogCaptureFixture
) -> None:
    waiting = kept(tmp_path)
    waiting.keep(calm=True)
    made[0].is_running = False
    waiting.keep(calm=True)
    assert "a spare process ended with status 1" in caplog.text
    clock[0] += 59
    waiting.keep(calm=True)
    assert [each.has_ended for each in made] == [True]
    clock[0] += 2
    waiting.keep(calm=True)
    assert len(made) == 2


@pytest.mark.parametrize(("cores", "count"), [(0, 1), (1, 0)])
def test_there_is_none_where_no_job_can_come_or_none_is_wanted(
    tmp_path: Path, clock: list[float], made: list[FakeSpare], cores: int, count: int
) -> None:
    kept(tmp_path, cores, count).keep(calm=True)
    assert not made


def test_a_host_without_room_starts_jobs_without_one(
    tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(_: Path) -> Spare:
        raise OSError("no space left")

    monkeypatch.setattr(spares, "Spare", full)
    waiting = kept(tmp_path)
    waiting.keep(calm=True)
    assert waiting.take(across_nodes()) is None
    assert "could not be started: no space left" in caplog.text


def test_it_ends_with_its_node_and_what_it_left_is_removed(tmp_path: Path) -> None:
    with psutil.Popen([sys.executable, "-c", NODE, str(tmp_path)], stdin=-1, stdout=-1) as node:
        spare = psutil.Process(int(node.stdout.readline()))
        eventually("its program", lambda: "cdc_core.jobs.subprocess_main" in command(spare))
        node.kill()
    eventually("its end", lambda: not lives(spare))
    (left,) = tmp_path.iterdir()
    kept(tmp_path).remove_left()
    assert not left.exists()


@pytest.fixture
def spare(tmp_path: Path, workers_find_the_tests: None) -> Iterator[Spare]:
    spare = Spare(tmp_path)
    yield spare
    if spare.process.returncode is None:
        spare.end()


@pytest.mark.slow
def test_its_jvm_runs_the_job_that_takes_it(tmp_path: Path, spare: Spare, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    eventually("the spare", lambda: spare.is_ready or not spare.is_running)
    process = psutil.Process(spare.process.pid)
    (jvm,) = (each for each in process.children() if "java" in each.name())
    (tmp_path / "t.spark.log").write_text("of an earlier run\n")
    store, printed = store_url(tmp_path), (next(tmp_path.glob("spare-*")) / "spark.log").read_text()
    feed = counter_feed(
        tmp_path,
        total=2000,
        rows_per_step=500,
        spark={"master": "local[2,2]"},
        sources=(f"counter://u:{SECRET}@host",),
        plain_secrets=frozenset({SECRET}),
    )
    run = SubprocessRun(feed, store=store, state_dir=tmp_path, until=lease_clock() + 600, spare=spare)
    run.start()

    def saved() -> int:
        found = ProgressStore(store).progress.load("t")
        return 0 if found is None else found.token["n"]

    eventually("all rows", lambda: saved() >= 2000 or run.outcome)
    assert jvm.is_running()
    assert not shown_secrets(command(jvm), [SECRET])
    family = [process, *process.children(recursive=True)]
    assert jvm in family
    run.stop()
    assert run.wait(300.0) == Outcome("stopped")
    eventually("the end of all", lambda: not [each for each in family if each.is_running()])
    assert "following the log" in caplog.text
    assert (tmp_path / "t.spark.log").read_text().startswith(f"{printed}of an earlier run\n")
    assert not list(tmp_path.glob("spare-*"))
