"""Where nemesis runs take place: one warm Spark, and servers that are started when the first run needs them."""

from __future__ import annotations

import itertools
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_testing.engine_bugs import BUGS
from cdc_testing.fixtures import fresh_database
from cdc_testing.kafka_fixtures import Kafka, Registry
from cdc_testing.kafka_reading import delete_topics
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.nemesis import Outcome, run_script
from cdc_testing.nemesis_database import NemesisDatabase, PostgresNemesis, SimulatedNemesis
from cdc_testing.nemesis_events import Fault
from cdc_testing.nemesis_script import Script, script_of

Place = tuple[str, str]
"""A source and a sink."""

PLACES: Sequence[Place] = (("simulated", "file"), ("postgres", "kafka"), ("simulated", "kafka"), ("postgres", "file"))


@dataclass
class NemesisRig:
    """Plays scripts, one after another. What a run leaves is in *directory* only when it failed."""

    directory: Path
    spark: KeptSpark | None
    """None for threads of this process."""
    postgres: Callable[[], EmbeddedPostgres]
    """Returns the running server, the same one each time."""
    kafka: Callable[[], Kafka]
    registry: Callable[[], Registry]
    """Returns the running schema registry, the same one each time."""
    sinks: Mapping[str, str] = field(default_factory=dict)
    """URIs of further sinks by the name that scripts call them; `{unique}` in them is new for each run."""
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def play(self, script: Script, *, bug: str = "") -> Outcome:
        """Return what came of *script* with the engine's *bug*."""
        name = f"{next(self._numbers)}-{script.source}-{script.sink}-seed{script.seed}{bug and '-'}{bug}"
        directory = self.directory / name
        shutil.rmtree(directory, ignore_errors=True)
        options: dict[str, str] = {}
        if script.sink == "kafka":
            options["topic_prefix"] = f"n{secrets.token_hex(4)}_"
            if script.format == "avro":
                options["confluent_schema_registry"] = self.registry().url
        with self._database(script, directory) as database:
            outcome = run_script(
                script,
                database,
                sink=self._sink(script.sink, directory),
                directory=directory / "run",
                spark=self.spark,
                bug=bug,
                options=options,
            )
        if script.sink == "kafka":
            delete_topics(self.kafka().bootstrap_servers, options["topic_prefix"])
        if not outcome.failures:
            shutil.rmtree(directory)
        return outcome

    def _sink(self, name: str, directory: Path) -> str:
        if name in self.sinks:
            return self.sinks[name].replace("{unique}", secrets.token_hex(6))
        if name == "kafka":
            return f"kafka://{self.kafka().bootstrap_servers}"
        return f"file://{directory / 'files'}"

    @contextmanager
    def _database(self, script: Script, directory: Path) -> Iterator[NemesisDatabase]:
        if script.source == "simulated":
            yield SimulatedNemesis(directory / "database", seed=script.seed)
            return
        with ExitStack() as stack:
            yield PostgresNemesis(stack.enter_context(fresh_database(self.postgres())))


def scripts_for(bug: str, places: Sequence[Place], *, first: int) -> Iterator[Script]:
    """Yield the scripts from seed *first* on that could show *bug*: those with a fault that it needs, if any."""
    wanted = BUGS[bug]
    fit = [place for place in places if place[0] in wanted.sources and place[1] in wanted.sinks]
    for seed in itertools.count(first):
        for source, sink in fit:
            script = script_of(seed, source=source, sink=sink)
            faults = [event for event in script.events if isinstance(event, Fault)]
            there = {fault.point for fault in faults if wanted.killed in (None, fault.killed)}
            if wanted.needs is not None and not any(isinstance(event, wanted.needs) for event in script.events):
                continue
            if not wanted.faults or there & set(wanted.faults):
                yield script
        if not fit:
            return


def command(script: Script, bug: str = "") -> str:
    """Return what to type to play *script* again."""
    return (
        f"python tests/nemesis/run.py --seed {script.seed} --seeds 1 --source {script.source} --sink {script.sink}"
        f"{bug and ' --bug '}{bug}"
    )
