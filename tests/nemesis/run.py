"""Nemesis runs from the command line: `python tests/nemesis/run.py --help`.

Exit status: 0 when no run failed, or with bugs when each was found; else 1.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))  # as pytest's `pythonpath` does

from cdc_sink_kafka.demo.servers import KafkaBroker, SchemaRegistry  # noqa: E402
from cdc_testing.copied_postgres import CopiedPostgres  # noqa: E402
from cdc_testing.engine_bugs import BUGS  # noqa: E402
from cdc_testing.kept_spark import KeptSpark  # noqa: E402
from cdc_testing.nemesis import Outcome  # noqa: E402
from cdc_testing.nemesis_rig import PLACES, NemesisRig, Place, command, scripts_for  # noqa: E402
from cdc_testing.nemesis_script import script_of  # noqa: E402

MAX_SCRIPTS = 12
"""So many scripts are tried for a bug before it counts as not found."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    places = _places(options)
    deadline = time.monotonic() + options.minutes * 60
    directory = options.directory.absolute()
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    with _rig(directory, options.sink_uri, threads=options.threads) as rig:
        if options.bug == "all":
            return find_bugs(rig, list(BUGS), places, first=options.seed, deadline=deadline)
        if options.bug and options.seeds > 1:
            return find_bugs(rig, [options.bug], places, first=options.seed, deadline=deadline)
        return play_seeds(rig, places, options=options, deadline=deadline)


def play_seeds(rig: NemesisRig, places: Sequence[Place], *, options: argparse.Namespace, deadline: float) -> int:
    """Play one script a seed, spread over *places*; stop when the time is over. Return the exit status."""
    print(f"{'seed':>6} {'source':10} {'sink':6} {'format':6} {'rows':>5} {'marks':>5} {'s':>5}  result", flush=True)
    done: list[Outcome] = []
    for seed in range(options.seed, options.seed + options.seeds):
        if time.monotonic() > deadline:
            break
        source, sink = places[seed % len(places)]
        outcome = rig.play(script_of(seed, source=source, sink=sink), bug=options.bug)
        done.append(outcome)
        print(_line(outcome), flush=True)
        if outcome.failures:
            _explain(outcome, options.bug)
    failed = [outcome for outcome in done if outcome.failures]
    print(f"{len(done)} of {options.seeds} seeds played, {len(failed)} failed, {_total(done)}")
    return 1 if failed or not done else 0


def find_bugs(rig: NemesisRig, bugs: Sequence[str], places: Sequence[Place], *, first: int, deadline: float) -> int:
    """Play scripts with each of *bugs* until one fails; print what was found. Return the exit status."""
    found = 0
    print(f"{'bug':28} {'scripts':>7} {'seed':>5} {'source':10} {'sink':6} {'s':>5}  found", flush=True)
    for bug in bugs:
        started = time.monotonic()
        tried, outcome = _search(rig, bug, places, first=first, deadline=deadline)
        spent = f"{time.monotonic() - started:5.0f}"
        if outcome is None:
            print(f"{bug:28} {tried:7} {'':5} {'':10} {'':6} {spent}  NOT FOUND: {BUGS[bug].mistake}", flush=True)
            continue
        found += 1
        script, failure = outcome.script, outcome.failures[0][:200]
        print(f"{bug:28} {tried:7} {script.seed:5} {script.source:10} {script.sink:6} {spent}  {failure}", flush=True)
    print(f"{found} of {len(bugs)} bugs found")
    return 0 if found == len(bugs) else 1


def _search(
    rig: NemesisRig, bug: str, places: Sequence[Place], *, first: int, deadline: float
) -> tuple[int, Outcome | None]:
    tried = 0
    for script in scripts_for(bug, places, first=first):
        if tried == MAX_SCRIPTS or time.monotonic() > deadline:
            break
        tried += 1
        outcome = rig.play(script, bug=bug)
        if outcome.broke:
            print(f"{bug:28} broke with seed {script.seed}: {outcome.broke[0][:200]}", flush=True)
        elif outcome.failures:
            return tried, outcome
    return tried, None


def _line(outcome: Outcome) -> str:
    script = outcome.script
    result = f"FAILED: {outcome.failures[0][:200]}" if outcome.failures else "ok"
    return (
        f"{script.seed:6} {script.source:10} {script.sink:6} {script.format:6} {outcome.rows:5} {outcome.marks:5}"
        f" {outcome.seconds:5.1f}  {result}"
    )


def _explain(outcome: Outcome, bug: str) -> None:
    for failure in outcome.failures[1:5]:
        print(f"       {failure}")
    print(f"       events: {outcome.log_path}")
    print(f"       again:  {command(outcome.script, bug)}", flush=True)


def _total(done: Sequence[Outcome]) -> str:
    return f"{sum(one.rows for one in done)} rows, {sum(one.marks for one in done)} marks"


@contextmanager
def _rig(directory: Path, sink_uri: str | None, *, threads: bool) -> Iterator[NemesisRig]:
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
    logging.getLogger().addHandler(logging.NullHandler())  # or tasks in this process would log to the terminal
    with ExitStack() as stack:
        spark = KeptSpark()
        stack.callback(spark.close)
        yield NemesisRig(
            directory,
            None if threads else spark,
            postgres=_once(lambda: stack.enter_context(CopiedPostgres(settings={"fsync": "off"}))),
            kafka=_once(lambda: stack.enter_context(KafkaBroker())),
            registry=_once(lambda: stack.enter_context(SchemaRegistry())),
            sinks={} if sink_uri is None else {_scheme(sink_uri): sink_uri},
        )


def _places(options: argparse.Namespace) -> list[Place]:
    places = list(PLACES)
    if options.sink_uri is not None:
        places = [(source, _scheme(options.sink_uri)) for source in sorted({place[0] for place in PLACES})]
    return [place for place in places if options.source in (None, place[0]) and options.sink in (None, place[1])]


def _scheme(uri: str) -> str:
    return uri.partition("://")[0]


T = TypeVar("T")


def _once(make: Callable[[], T]) -> Callable[[], T]:
    made: list[T] = []

    def get() -> T:
        if not made:
            made.append(make())
        return made[0]

    return get


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Play seeded histories through the engine, validators watching.")
    parser.add_argument("--seeds", type=int, default=20, help="how many seeds (default 20)")
    parser.add_argument("--minutes", type=float, default=10.0, help="begin no run after so many minutes (default 10)")
    parser.add_argument("--seed", type=int, default=1, help="the first seed (default 1)")
    parser.add_argument("--bug", default="", choices=["", "all", *BUGS], help="a mistake to put into the engine")
    parser.add_argument("--source", choices=sorted({place[0] for place in PLACES}), help="only this source")
    parser.add_argument("--sink", choices=sorted({place[1] for place in PLACES}), help="only this sink")
    parser.add_argument("--threads", action="store_true", help="without Spark: a thread that ends is a killed process")
    parser.add_argument("--sink-uri", help="a sink of any installed plugin with a reader; {unique} is new for each run")
    parser.add_argument(
        "--directory", type=Path, default=Path(tempfile.gettempdir()) / "cdc-nemesis", help="where failed runs stay"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
