"""One nemesis run: a script through the real engine into a real sink, with every validator watching."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cdc_conformance.simulated import StatementError
from cdc_testing import nemesis_faults as faults
from cdc_testing.documented_role import documented
from cdc_testing.engine_bugs import installed
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.nemesis_database import NemesisDatabase
from cdc_testing.nemesis_events import (
    AddColumn,
    AwaitFault,
    ChangeKey,
    ChangeType,
    Commit,
    CreateTable,
    Disturb,
    DropColumn,
    DropTable,
    Event,
    Fault,
    FillColumn,
    Look,
    Open,
    Pause,
    Read,
    RenameColumn,
    Rescan,
    Resume,
    RollBack,
    Transact,
    Write,
)
from cdc_testing.nemesis_feed import NemesisFeed, TroubleError, nemesis_spark
from cdc_testing.nemesis_script import PATTERN, Script
from cdc_testing.nemesis_watch import Watch

from cdc_core.config.changefeed import Changefeed
from cdc_core.plugins.host import PluginHost
from cdc_core.timestamp import Timestamp

log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Outcome:
    """What a run came to. `failures` is empty when all was well; `log_path` says what happened, event by event.

    `broke` names what is a mistake in the program that ran rather than in what it did: it finds no bug.
    """

    script: Script
    log_path: Path
    rows: int = 0
    marks: int = 0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)
    broke: list[str] = field(default_factory=list)


_BROKEN = re.compile(
    r"\b(?:TypeError|AttributeError|NameError|UnboundLocalError|ImportError)\b.{0,200}"
    r"|Failed when Python .{0,60}: Traceback"  # of what no part of the engine has caught
)


def run_script(
    script: Script,
    database: NemesisDatabase,
    *,
    sink: str,
    directory: Path,
    spark: KeptSpark | None,
    bug: str = "",
    options: Mapping[str, Any] | None = None,
) -> Outcome:
    """Play *script* on *database* with a changefeed into the sink at URI *sink*, and return what came of it.

    Without *spark* it runs on threads. The changefeed has *options* besides those of the script: what is new for each
    run, and addresses of servers. Nothing of the changefeed is left at the source.
    """
    directory.mkdir(parents=True)
    outcome = Outcome(script=script, log_path=directory / "events.log")
    started = time.monotonic()
    with _logged_to(outcome.log_path):
        log.info("seed %d, bug '%s': %s", script.seed, bug, script)
        with installed(bug) if spark is None else nemesis_spark(spark, bug=bug):
            settings = {"bug": bug, "threads": spark is None, "sink": sink, "options": options or {}}
            player = _Player(script, database, outcome, directory=directory, **settings)
            try:
                with closing(player), player.feed.serve():
                    player.play()
            except TroubleError as error:
                outcome.failures.append(str(error))
            except Exception as error:  # whatever it is, it has a seed, and others are still to be played
                log.exception("the run broke")
                outcome.broke.append(_shown(f"{type(error).__name__}: {error}"))
                outcome.failures += outcome.broke
        if outcome.failures:
            outcome.broke += sorted(set(_BROKEN.findall(outcome.log_path.read_text())))
        for failure in outcome.failures:
            log.error("FAILURE %s", failure)
    outcome.seconds = time.monotonic() - started
    return outcome


class _Player:
    """Plays a script: the database's part itself, the changefeed's by its `feed`."""

    def __init__(
        self,
        script: Script,
        database: NemesisDatabase,
        outcome: Outcome,
        *,
        bug: str,
        threads: bool,
        sink: str,
        directory: Path,
        options: Mapping[str, Any],
    ) -> None:
        self._script = script
        self._database = database
        self._outcome = outcome
        self._fault: Fault | None = None
        self._pending: Sequence[Write] | None = None
        self._begun = False
        self._rescan: Rescan | None = None
        """The rescan that may not be complete."""
        host = PluginHost.load()
        options = {**script.options, **database.options, **options}
        for table in script.tables:
            database.create_table(table)
        changefeed = Changefeed(
            name="nemesis",
            source=documented(database.uri),
            tables=(*script.tables, *([PATTERN] if script.guests else [])),
            sink=sink,
            format=script.format,
            options=options,
        )
        self.feed = NemesisFeed(directory, changefeed, host, bug=bug, threads=threads)
        self._watch = Watch(
            self.feed.feed(),
            host,
            prefix=options.get("topic_prefix", ""),
            exact=database.tells_times,
            guests=script.guests,
        )
        self._ledger = self._watch.ledger
        self._consumer = self._watch.consumer

    def play(self) -> None:
        for number, event in enumerate(self._script.events):
            log.info("%d %s", number, _shown(event))
            self._do(event)
            failures = self._consumer.failures()
            if failures:
                raise TroubleError("; ".join(map(_shown, failures[:5])))
        self._end_cleanly()
        self._outcome.failures += map(_shown, self._consumer.final_failures())

    def close(self) -> None:
        self._outcome.rows, self._outcome.marks = self._consumer.rows, self._consumer.marks
        self._watch.close()
        self.feed.drop()
        self._database.close()

    def _do(self, event: Event) -> None:
        match event:
            case Transact(writes):
                self._tried(lambda: self._ledger.committed(writes, self._database.transact(writes)))
            case Open(writes):
                self._pending = writes if self._tried(lambda: self._database.open(writes)) else None
            case Commit() | RollBack():
                self._end_transaction(committed=isinstance(event, Commit))
            case AddColumn(table, column):
                self._database.add_column(table, column)
                self._watch.look_at_schemas()
            case FillColumn(table, column, value):
                self._ledger.filled(column, value, self._database.fill_column(table, column, value), table=table)
                self._watch.look_at_schemas()
            case DropColumn(table, column):
                self._ledger.dropped(table, column, self._database.drop_column(table, column))
                self._watch.look_at_schemas()
            case RenameColumn(table, column, to):
                self._database.rename_column(table, column, to)
                self._ledger.renamed(column, to)
                self._watch.look_at_schemas()
            case ChangeType(table, column):
                self._ledger.made_text(table, column, self._database.make_text(table, column))
                self._watch.look_at_schemas()
            case CreateTable(table):
                self._database.create_table(table)
                self._watch.look_at_schemas()
            case DropTable(table):
                self._database.drop_table(table)
            case ChangeKey(table, columns):
                self._tried(lambda: self._change_key(table, columns))
                self._watch.look_at_schemas()
            case Rescan(table, below):
                self.feed.rescan(table, where=None if below is None else f"id < {below}")
                self._rescan = event
            case Disturb():
                self._tried(lambda: self._database.disturb(event))
            case Resume(options):
                self.feed.resume(options)
                if self._begun or self._pending is None:
                    self._await_run()
            case Pause(abandoned):
                self.feed.pause(abandoned=abandoned)
                self._consumer.look()
            case Fault(point, killed):
                self._fault = event
                self.feed.order(point, killed=killed)
            case AwaitFault():
                self._await_fault()
            case Look():
                self._wait_for_what_is_resolved()
                self._consumer.look()
            case Read():
                self._read()

    def _end_cleanly(self) -> None:
        """Run once more after a stop that met a failing step: it left the last mark to the next run."""
        if "stopped in the middle of a step" in self._outcome.log_path.read_text().rpartition(" Pause(")[2]:
            self._do(Resume({}))
            self._read()
            self._do(Pause(abandoned=False))

    def _tried(self, statement: Callable[[], object]) -> bool:
        """Return whether the database took the statement; one that it refuses did nothing."""
        try:
            statement()
        except StatementError as error:
            log.info("refused: %.300s", error)
            return False
        return True

    def _end_transaction(self, *, committed: bool) -> None:
        writes, self._pending = self._pending, None
        if writes is None:
            return
        if committed:
            self._tried(lambda: self._ledger.committed(writes, self._database.commit()))
        else:
            self._tried(self._database.roll_back)
        if not self._begun and self.feed.is_running:
            self._await_run()

    def _await_run(self) -> None:
        """What is committed from here on must arrive, version by version. The first start may wait for transactions."""
        self.feed.until("it runs", lambda: self.feed.phase == "running")
        if not self._begun:
            self._watch.begun()
        self._begun = True

    def _await_fault(self) -> None:
        assert self._fault is not None
        point = self._fault.point
        target = self._database.settled(self.feed.now)
        self.feed.until(
            f"the fault at '{point}'",
            lambda: (
                not faults.pending(self.feed.control, point) or (self._has_reached(target) and self._has_rescanned())
            ),
        )
        if faults.withdraw(self.feed.control, point):
            log.info("nothing came to '%s'", point)
        self._fault = None

    def _wait_for_what_is_resolved(self) -> None:
        if self._rescan is None:  # which waits for more
            self.feed.until("what is resolved", lambda: self._database.has_resolved(self.feed.frontier()))

    def _read(self) -> None:
        target = self._database.settled(self.feed.now)
        self.feed.until(f"resolved {target}", lambda: self._has_reached(target) and self._has_rescanned())
        self._consumer.look()

    def _has_reached(self, target: Timestamp) -> bool:
        if self._rescan is not None:
            self._database.settled(self.feed.now)  # nothing is resolved before the rescan, which began later
        return self.feed.high_water() >= target

    def _has_rescanned(self) -> bool:
        if self._rescan is None:
            return True
        began = self.feed.rescan_began()
        if began is not None:
            self._watch.rescanned(self._rescan.table, below=self._rescan.below, began=began)
            self._rescan = None
        return began is not None

    def _change_key(self, table: str, columns: Sequence[str]) -> None:
        earliest = self.feed.now()
        at = self._database.change_key(table, columns)
        self._ledger.key_changed(table, columns, earliest=at or earliest, latest=at or self.feed.now())


def _shown(what: object) -> str:
    """Return *what* as text in which large values are short."""
    return re.sub(r"x{99,}", "xxx…", str(what))


@contextmanager
def _logged_to(path: Path) -> Iterator[None]:
    """Let what the engine and the nemesis log stand in *path* too."""
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    loggers = [logging.getLogger(name) for name in ("cdc_core", "cdc_testing.nemesis")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)
        handler.close()
