from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from cdc_conformance.simulated import SimulatedDatabase
from cdc_testing.local_engine import resolved_feed

from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.attempt_config import AttemptConfig
from cdc_core.engine.host_checks import Answer, answer
from cdc_core.engine.host_requirements import HostRequirements, Probe, host_requirements
from cdc_core.errors import CdcError, ConfigError, FencedError, RetryableError, from_wire, to_wire
from cdc_core.spark.executors import _refuse
from cdc_core.store.progress import ProgressStore, store_url


@pytest.fixture
def feed(tmp_path: Path) -> ResolvedChangefeed:
    """From a directory to another one that is not there yet, with its dead letters beside it."""
    db = SimulatedDatabase.create(tmp_path / "db", seed=1)
    db.create_table("t")
    options = {"on_error": "dead_letter", "dead_letter": f"file://{tmp_path}/dead"}
    return resolved_feed(db.uri, f"file://{tmp_path}/out", "t", options=options).for_attempt(feed_id="f1", epoch=1)


def probes(directory: Path) -> list[Path]:
    return sorted(directory.rglob(".cdc-probe-*"))


def test_all_directories_are_probed_where_nothing_may_be_created(feed: ResolvedChangefeed, tmp_path: Path) -> None:
    with host_requirements(feed, create=False) as requirements:
        places = [(probe.owner, Path(probe.file).parent) for probe in requirements.probes]
        assert places == [
            ("rangefeed 'simulated'", tmp_path / "db"),
            ("sink 'cloudstorage'", tmp_path),
            ("sink 'cloudstorage'", tmp_path),
        ]
        requirements.require()
        assert HostRequirements.from_json(requirements.to_json()) == requirements
    assert not probes(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["db"]


def test_probes_of_an_attempt_are_in_the_directories_and_replace_those_of_a_killed_driver(
    feed: ResolvedChangefeed, tmp_path: Path
) -> None:
    leftover, other = (tmp_path / "out" / ".inprogress" / f".cdc-probe-{name}" for name in ("f1-0", "f2-0"))
    leftover.parent.mkdir(parents=True)
    leftover.touch()
    other.touch()
    with host_requirements(feed, create=True) as requirements:
        kept = {tmp_path / "db", tmp_path / "out" / ".inprogress", tmp_path / "dead" / ".inprogress"}
        assert {path.parent for path in probes(tmp_path)} == kept
        assert len(requirements.probes) == 3
        assert not leftover.exists()
    assert probes(tmp_path) == [other]


def test_a_run_that_has_not_begun_leaves_the_probes_of_another_one(feed: ResolvedChangefeed) -> None:
    with host_requirements(feed, create=True) as requirements:
        with host_requirements(feed, create=False):
            pass
        requirements.require()


def test_a_host_that_does_not_see_a_probe_is_refused_with_the_remedy(feed: ResolvedChangefeed, tmp_path: Path) -> None:
    with host_requirements(feed, create=False) as requirements:
        pass
    refused = rf"uses directory {tmp_path}/db on the driver's host, which does not exist on host .*; mount a "
    with pytest.raises(ConfigError, match=refused) as found:
        requirements.require()
    assert found.value.repairable, "a host may join at any time"


def test_other_versions_are_refused_with_the_remedy(feed: ResolvedChangefeed) -> None:
    with host_requirements(feed, create=False) as requirements:
        assert {"cdc-core", "cdc-sink-cloudstorage", "cdc-encoder-json"} <= requirements.versions.keys()
        wanted = dataclasses.replace(requirements, versions={"cdc-core": "99"})
        with pytest.raises(ConfigError, match=r"has cdc-core .*, but the driver has 99; install cdc-core==99 there"):
            wanted.require()
        wanted = dataclasses.replace(requirements, versions={"cdc-sink-nowhere": "1"})
        with pytest.raises(ConfigError, match=r"has no cdc-sink-nowhere, but the driver has 1; install"):
            wanted.require()
        with pytest.raises(ConfigError, match=r"has Python 3\.\d+, but the driver has 3\.99; set spark.pyspark.python"):
            dataclasses.replace(requirements, python="3.99").require()


def test_a_progress_store_in_a_file_is_only_for_the_machine_of_the_driver(
    feed: ResolvedChangefeed, tmp_path: Path
) -> None:
    store = ProgressStore(store_url(tmp_path))
    store.open()
    store.close()
    feed = feed.for_attempt(feed_id="f1", epoch=1, state=store.url)
    with host_requirements(feed, create=False) as requirements:
        requirements.require()
        assert HostRequirements.from_json(requirements.to_json()) == requirements
        own = requirements.store
        assert own is not None
        elsewhere = dataclasses.replace(own, identity=f"another machine/{own.identity.partition('/')[2]}")
        with pytest.raises(ConfigError, match=rf"the SQLite file {tmp_path}/progress.sqlite on the driver's machine"):
            dataclasses.replace(requirements, store=elsewhere).require()
        (tmp_path / "progress.sqlite").unlink()
        with pytest.raises(ConfigError, match=r"cannot use; set --state to the URL of a database server"):
            requirements.require()


def test_an_attempt_that_cannot_write_a_probe_is_repeated(feed: ResolvedChangefeed, tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    failure = pytest.raises(RetryableError, match=r"cannot write to directory .*/out/.*: Not a directory")
    with failure, host_requirements(feed, create=True):
        pass
    assert not probes(tmp_path)


def problem(feed: ResolvedChangefeed, tmp_path: Path) -> CdcError | None:
    """Return what an executor here would answer to the question whether it can run tasks of *feed*."""
    config = AttemptConfig(feed=feed, state_dir=tmp_path, run_dir=tmp_path / "run", warm_up=True)
    return from_wire(answer(config.to_option()).problem)


def ask(feed: ResolvedChangefeed, tmp_path: Path) -> str:
    return str(problem(feed, tmp_path) or "")


def test_an_executor_of_a_source_with_replicas_has_a_locality_or_none(
    feed: ResolvedChangefeed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CDC_LOCALITY", "eu")
    source = feed.rangefeed
    for replicas, refused in ((True, True), (False, False)):
        registration = dataclasses.replace(source.registration, replicas=replicas)
        asked = dataclasses.replace(feed, rangefeed=dataclasses.replace(source, registration=registration))
        told = ", unlike the driver: environment variable CDC_LOCALITY: 'eu' is not a locality" in ask(asked, tmp_path)
        assert told is refused


def test_an_executor_reaches_source_sink_and_store(feed: ResolvedChangefeed, tmp_path: Path) -> None:
    store = ProgressStore(store_url(tmp_path))
    store.open()
    known = store.changefeeds.register(feed.name, feed.definition(), changes_tables=False)
    store.close()
    feed = feed.for_attempt(feed_id=known.feed_id, epoch=known.epoch, state=store_url(tmp_path))
    assert ask(feed, tmp_path) == ""
    newer = feed.for_attempt(feed_id=feed.feed_id, epoch=7)
    assert isinstance(problem(newer, tmp_path), FencedError)
    (tmp_path / "out").touch()
    assert ", unlike the driver: sink directory" in ask(feed, tmp_path)
    (tmp_path / "out").unlink()
    nowhere = dataclasses.replace(feed, sources=(f"simulated://{tmp_path}/nowhere",))
    assert ", unlike the driver: the simulated database" in ask(nowhere, tmp_path)


def test_a_file_system_that_does_not_answer_is_asked_again(tmp_path: Path) -> None:
    unanswered = Probe(owner="sink 'shelf'", directory=str(tmp_path), file=str(tmp_path / ("x" * 300)))
    with pytest.raises(RetryableError, match=r"cannot check whether file .*x exists: File name too long"):
        HostRequirements(probes=(unanswered,)).require()


@pytest.mark.parametrize(
    ("error", "repairable"),
    [
        (ConfigError("the password is wrong"), False),
        (ConfigError("the password is wrong", repairable=True), True),
        (RetryableError("the password is wrong on this replica"), True),
    ],
)
def test_what_an_executor_finds_may_be_repaired_or_pass(
    error: CdcError, repairable: bool, feed: ResolvedChangefeed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise error

    monkeypatch.setattr("cdc_core.engine.host_checks._check_destination", refuse)
    found = problem(feed, tmp_path)
    assert isinstance(found, ConfigError)
    assert f"unlike the driver: {error}" in str(found)
    assert found.repairable is repairable
    answers = [Answer(executor=name, host="b", problem=to_wire(found)) for name in ("1", "2")]
    with pytest.raises(ConfigError, match="the password is wrong") as refused:
        _refuse(answers)
    assert refused.value.repairable is repairable
