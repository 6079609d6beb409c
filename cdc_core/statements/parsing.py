"""The text of statements, taken apart: which statement it is, and where it ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlglot.tokenizer_core import TokenType

from cdc_core.statements.alterations import alter_changefeed
from cdc_core.statements.creation import create_changefeed
from cdc_core.statements.job_control import control_jobs, own_job, show_jobs
from cdc_core.statements.reading import Reading
from cdc_core.statements.schedules import control_schedules, create_schedule, show_schedules
from cdc_core.statements.values import Statement
from cdc_core.store.verbs import RULES

__all__ = ["Parsed", "parse"]

_KNOWN = "CREATE, ALTER, PAUSE, RESUME, CANCEL, SHOW or DROP; see `cdc docs sql`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """A statement, and the line of the text that it begins on."""

    line: int
    statement: Statement


def parse(text: str, *, now: datetime | None = None) -> list[Parsed]:
    """Return the statements in *text*, which end with `;`, in order. Times such as `-1h` are before *now*.

    Raises: OptionError, which shows the place of what it refuses.
    """
    reading = Reading(text)
    now = datetime.now(UTC) if now is None else now
    return list(_statements(reading, now))


def _statements(reading: Reading, now: datetime) -> Iterator[Parsed]:
    while reading.token is not None:
        if reading.has_mark(TokenType.SEMICOLON):
            continue
        line = reading.text.count("\n", 0, reading.at) + 1
        statement = _statement(reading, now)
        if reading.token is not None and not reading.at_end:
            raise reading.refused(f"{reading.shown} is not expected here; end the statement with ;")
        yield Parsed(line=line, statement=statement)


def _statement(reading: Reading, now: datetime) -> Statement:
    if reading.has("CREATE", "CHANGEFEED") or reading.has("EXPERIMENTAL", "CHANGEFEED"):
        return create_changefeed(reading, now)
    if reading.has("CREATE", "SCHEDULE"):
        return create_schedule(reading, now)
    if reading.has("ALTER", "CHANGEFEED"):
        return alter_changefeed(reading, now)
    if reading.has("ALTER", "JOB"):
        return own_job(reading)
    if reading.is_word("PAUSE", "RESUME", "DROP") and reading.is_word("SCHEDULE", "SCHEDULES", ahead=1):
        return control_schedules(reading)
    if reading.is_word("PAUSE", "RESUME", "CANCEL"):
        return control_jobs(reading)
    if reading.is_word("SHOW") and reading.is_word("SCHEDULE", "SCHEDULES", ahead=1):
        return show_schedules(reading)
    if reading.has("SHOW"):
        return show_jobs(reading)
    for verb, rule in RULES.items():
        if rule.instead and reading.is_word(verb.upper()):
            raise reading.refused(f"neither cdc nor CockroachDB has a statement for this; {rule.instead}")
    raise reading.unexpected("this is not a statement about changefeeds", _KNOWN)
