"""Times of cron expressions."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cdc_core.changefeeds.scheduling import next_time
from cdc_core.errors import ConfigError


def after(cron: str, moment: str, time_zone: str = "UTC") -> str:
    found = next_time(cron, time_zone, after=datetime.fromisoformat(f"{moment}+00:00").timestamp())
    return f"{datetime.fromtimestamp(found, UTC):%Y-%m-%d %H:%M}"


@pytest.mark.parametrize(
    ("cron", "moment", "found"),
    [
        ("30 2 * * *", "2026-01-31 02:29:59.9", "2026-01-31 02:30"),
        ("30 2 * * *", "2026-01-31 02:30:00.1", "2026-02-01 02:30"),
        ("*/15 * * * MON-FRI", "2026-01-31 12:00", "2026-02-02 00:00"),
        ("@hourly", "2026-01-31 12:00", "2026-01-31 13:00"),
        ("@Monthly", "2026-01-31 12:00", "2026-02-01 00:00"),
    ],
)
def test_the_next_time_is_later(cron: str, moment: str, found: str) -> None:
    assert after(cron, moment) == found


def test_times_are_those_of_the_time_zone_in_summer_and_in_winter() -> None:
    berlin = "Europe/Berlin"
    assert after("30 2 * * *", "2026-01-31 12:00", berlin) == "2026-02-01 01:30"
    assert after("30 2 * * *", "2026-07-01 12:00", berlin) == "2026-07-02 00:30"
    assert after("30 2 * * *", "2026-03-28 12:00", berlin) == "2026-03-29 01:00", "2:30 is skipped: 3:00 summer time"
    assert after("30 2 * * *", "2026-10-24 12:00", berlin) == "2026-10-25 00:30", "the first of the two"
    assert after("30 2 * * *", "2026-10-25 00:30", berlin) == "2026-10-26 01:30"
    assert after("45 1-3 * * *", "2026-10-25 01:30", berlin) == "2026-10-25 02:45", "2:45 has been, and 2:30 is now"


@pytest.mark.parametrize("cron", ["", "often", "* * * *", "0 0 0 * * *", "60 * * * *", "0 0 31 2 *", "@reboot"])
def test_what_is_not_a_cron_expression_is_said(cron: str) -> None:
    with pytest.raises(ConfigError, match=r"^'.*' is not a cron expression.*; use five fields as in '30 2"):
        after(cron, "2026-01-31 12:00")


@pytest.mark.parametrize("name", ["Mars/Olympus", "../etc/passwd", "", "Europe"])
def test_an_unknown_time_zone_is_said(name: str) -> None:
    with pytest.raises(ConfigError, match=r"^there is no time zone '.*'; use a name such as Europe/Berlin"):
        after("@daily", "2026-01-31 12:00", name)
