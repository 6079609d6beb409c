"""The remedies that messages name, as the commands that fit: for a job, or for a changefeed of a file.

A plugin does not know which of the two it serves. Its messages name the commands of a changefeed in a file, `FILE NAME`
standing for it, and the phrases of this module where a job needs another one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

RUN_AGAIN = "run the changefeed again"
RUN_ANOTHER = "run a changefeed under another name"
ALL_AGAIN = "To emit all rows again, first run `cdc rescan FILE NAME --all`"
LIST_AGAIN = "run once without the table in 'tables', and then list it again"
CONTINUE_WITH_POLICY = (
    "run with schema_change_policy = 'backfill' to emit the rows of the table again, or with 'nobackfill'"
)
_OF_A_JOB = {
    "`cdc drop FILE NAME`": "`cdc cancel NAME`",
    "FILE NAME": "NAME",
    RUN_AGAIN: "resume the job with `cdc resume NAME`",
    RUN_AGAIN.capitalize(): "Resume the job with `cdc resume NAME`",
    RUN_ANOTHER: "create a job under another name",
    LIST_AGAIN: "leave it out with `cdc alter NAME --drop TABLE`, resume the job, pause it again, and add the table"
    " with `cdc alter NAME --add TABLE`",
    CONTINUE_WITH_POLICY: "use `cdc alter NAME --set schema_change_policy=backfill` to emit the rows of the table"
    " again, or set nobackfill, and resume the job with `cdc resume NAME`",
}
_PHRASES = re.compile("|".join(map(re.escape, _OF_A_JOB)))
_OPTION = re.compile(r"\bset (\w+) = '(\w+)'")
"""A remedy that is another value of an option."""
_OF_A_FILE = re.compile(r"(`cdc [\w-]+ )FILE ([\w-]+)")


def fitting(text: str, name: str, *, job: bool) -> str:
    """Return the message *text* with the commands that people can give about changefeed *name*, perhaps a *job*."""
    if job:
        text = _PHRASES.sub(lambda found: _OF_A_JOB[found.group()], text)
        text = _OPTION.sub(r"use `cdc alter NAME --set \1=\2` and `cdc resume NAME`", text)
    return re.sub(r"(`cdc [^`]*)\bNAME\b", lambda found: found.group(1) + name, text)


def as_typed(text: str, typed: Mapping[str, str]) -> str:
    """Return *text* with what people have *typed* for changefeeds, by name, in place of `FILE NAME` in commands."""

    def known(found: re.Match[str]) -> str:
        command, name = found.groups()
        words = next(iter(typed.values())) if name == "NAME" and len(typed) == 1 else typed.get(name)
        return found.group() if words is None else command + words

    return _OF_A_FILE.sub(known, text)
