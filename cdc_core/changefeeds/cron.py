"""Times of a cron expression."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from cdc_core.errors import ConfigError

__all__ = ["next_time"]

_NAMED = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


def next_time(cron: str, time_zone: str, *, after: float) -> float:
    """Return the first time of *cron* that is later than *after*, both in seconds since 1970.

    As in Debian's cron, a time that the clock skips when summer time begins is moved to the first minute after it, and
    one that it shows twice comes once. Raises: ConfigError for an expression or a time zone that cannot be read, or
    without any time.
    """
    expression = _NAMED.get(cron.strip().lower(), cron)
    example = "use five fields as in '30 2 * * *', or @hourly, @daily, @weekly, @monthly or @yearly"
    if len(expression.split()) != 5:
        raise ConfigError(f"'{cron}' is not a cron expression; {example}")
    try:
        times = (found.timestamp() for found in CronSim(expression, datetime.fromtimestamp(after, _zone(time_zone))))
        found = next((each for each in times if each > after), None)  # in an hour that comes twice, some are past
    except CronSimError as error:
        raise ConfigError(f"'{cron}' is not a cron expression: {str(error).lower()}; {example}") from error
    if found is None:
        raise ConfigError(f"the cron expression '{cron}' has no time within 50 years; {example}")
    return found


def _zone(name: str) -> tzinfo:
    if name.upper() == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"there is no time zone '{name}'; use a name such as Europe/Berlin, or UTC") from error
