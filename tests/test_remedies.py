"""Messages name commands that people can give in their situation: for a job, none needs a file."""

from __future__ import annotations

import re

import click
import pytest
from cdc_rangefeed_postgres.remedies import NEW_SLOT, READ_ANEW

from cdc_core.cli.main import cdc
from cdc_core.errors import START_OVER, TerminalRangefeedError
from cdc_core.remedies import as_typed, fitting
from cdc_core.schema_change import SchemaChange, SchemaChangeRules, ShapeChange
from cdc_core.timestamp import Timestamp


def stop() -> str:
    change = SchemaChange(table="t", kind=ShapeChange.COLUMN_DROPPED, what="column a was dropped")
    with pytest.raises(TerminalRangefeedError) as raised:
        SchemaChangeRules(policy="stop").tables_to_read_again([change], resolved=Timestamp(1))
    return str(raised.value)


KEEP = "To leave the rows at the sink and continue, set truncate = 'keep'"
MESSAGES = {"lost history": NEW_SLOT, "read anew": READ_ANEW, "start over": START_OVER, "stop": stop(), "option": KEEP}


def commands(text: str) -> list[list[str]]:
    return [found.split()[1:] for found in re.findall(r"`(cdc [^`]+)`", text)]


@pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES)
def test_the_remedy_for_a_job_is_a_command_about_it(message: str) -> None:
    told = fitting(message, "orders", job=True)
    assert commands(told)
    assert not re.search(r"FILE|\bNAME\b|\brun (once|a|the|with)\b", told)
    for name, *arguments in commands(told):
        command = cdc.get_command(click.Context(cdc), name)
        assert command is not None
        assert "orders" in arguments
        command.make_context(name, arguments)


@pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES)
def test_the_remedy_for_a_changefeed_of_a_file_names_it(message: str) -> None:
    told = fitting(message, "orders", job=False)
    if message == KEEP:
        assert told == message
    assert [command[1:3] for command in commands(told)] == [["FILE", "orders"]] * len(commands(message))


@pytest.mark.parametrize("name", ["NAME", "orders"])
def test_a_command_names_what_was_typed(name: str) -> None:
    lost = f"lost; use `cdc rescan FILE {name} --all`, or `cdc drop FILE users`, in FILE {name}"
    told = as_typed(lost, {"orders": "shop.toml orders --state /data"})
    assert (
        told == f"lost; use `cdc rescan shop.toml orders --state /data --all`, or `cdc drop FILE users`, in FILE {name}"
    )


def test_of_several_changefeeds_a_command_names_none_that_is_not_told() -> None:
    typed = {"orders": "shop.toml orders", "users": "shop.toml users"}
    assert as_typed("`cdc drop FILE NAME`, `cdc drop FILE users`", typed) == (
        "`cdc drop FILE NAME`, `cdc drop shop.toml users`"
    )
