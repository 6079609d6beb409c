"""The functions that a query may use beside those of Spark SQL, and those and the texts that it may not."""

from __future__ import annotations

import re
from collections.abc import Mapping

from cdc_core.queries.builtin_functions import BUILTIN_FUNCTIONS
from cdc_core.queries.dialect import is_word_of_sql, knows_function
from cdc_core.queries.query import EVENT_FUNCTIONS, PREVIOUS

NO_PARENTHESES = frozenset(
    {"current_date", "current_time", "current_timestamp", "current_user", "localtimestamp", "session_user"}
)
"""Functions that SQL lets one write without parentheses."""

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}", re.ASCII)

_CLOCK = "reads the clock; the time of the commit is statement_timestamp()"
RANDOM = "returns a different value each time, but a change may be delivered more than once"
_SESSION = "depends on the session, but every change must return the same row whoever runs the changefeed"
_PLACE = "depends on where a row is read, but every change must return the same row wherever it is read"
_UNKNOWN_TIME = "is not available here; the time of the commit is statement_timestamp()"
_REFUSED: Mapping[str, str] = {
    **dict.fromkeys(("now", "curdate", *sorted(NO_PARENTHESES - {"current_user", "session_user"})), _CLOCK),
    **dict.fromkeys(("clock_timestamp", "localtime"), _CLOCK),
    **dict.fromkeys(("rand", "randn", "random", "randstr", "shuffle", "uniform", "uuid", "gen_random_uuid"), RANDOM),
    **dict.fromkeys(("current_catalog", "current_database", "current_path", "current_schema"), _SESSION),
    **dict.fromkeys(("current_timezone", "current_user", "session_user", "user", "version"), _SESSION),
    **dict.fromkeys(("monotonically_increasing_id", "spark_partition_id", "input_file_name"), _PLACE),
    **dict.fromkeys(("input_file_block_length", "input_file_block_start"), _PLACE),
    **dict.fromkeys(("session_window", "window", "window_time"), "combines rows, but a query sees one at a time"),
    "identifier": "refers to something by a computed name; write the name itself",
    **dict.fromkeys(("java_method", "reflect", "try_reflect"), "calls code that is not declared deterministic"),
    **dict.fromkeys(("changefeed_creation_timestamp", "event_schema_timestamp"), _UNKNOWN_TIME),
}


def refused_function(name: str, *, arguments: bool) -> str | None:
    """Return why a query cannot call *name*, None when it may as far as the name tells."""
    if name.lower() == "unix_timestamp" and not arguments:
        return _CLOCK
    return _REFUSED.get(name.lower())


def refused_name(name: str) -> str | None:
    """Return why no function of ours can have this name; None when it can. Words of SQL keep their meaning."""
    if not _NAME.fullmatch(name):
        return "use lowercase letters, digits and _"
    if name in BUILTIN_FUNCTIONS or name in EVENT_FUNCTIONS or name in _REFUSED or knows_function(name):
        return "SQL has a function of this name; choose another"
    if name in PREVIOUS or is_word_of_sql(name):
        return "this is a SQL keyword; choose another name"
    return None


CLOCK_WORDS = re.compile(r"\s*(now|today|tomorrow|yesterday)(\s.*)?", re.IGNORECASE | re.DOTALL)
"""What Spark takes for a time when it makes one of a text. Planning finds those that it converts by itself."""
TIME_OF_DAY = re.compile(r"\s*(T\d|\d{1,2}:)")
"""How a text begins for which Spark takes the date of the clock when it makes a timestamp of it."""


def clock_word(text: str) -> str:
    """Return why *text*, one of `CLOCK_WORDS`, is refused."""
    return f"'{text.strip().lower()}' reads the clock; the time of the commit is statement_timestamp()"


def no_date(what: str) -> str:
    """Return why *what*, a time of day, cannot be a timestamp."""
    return (
        f"{what} is a time of day, to which Spark would add the date of the clock; put a date before it, as in"
        " to_timestamp('2000-01-01 ' || time)"
    )
