from __future__ import annotations

import psycopg
import pytest
from adbc_driver_manager import OperationalError
from cdc_rangefeed_postgres.failures import text_of, translated

from cdc_core import RetryableRangefeedError, TerminalRangefeedError


def server_error(state: str, text: str) -> psycopg.Error:
    error = psycopg.errors.lookup(state)(f"ERROR:  {text}\nDETAIL:  more")
    assert error.sqlstate == state
    return error


def hide(text: str) -> str:
    return text.replace("geheim", "***")


@pytest.mark.parametrize("state", ["08006", "53300", "53400", "57P01", "57P03", "55006", "55P03", "40001", "XX000"])
def test_what_may_pass_is_retryable(state: str) -> None:
    with pytest.raises(RetryableRangefeedError, match=r"^PostgreSQL, reading: no luck$"), translated("reading", hide):
        raise server_error(state, "no luck")


@pytest.mark.parametrize(
    ("state", "remedy"),
    [
        ("42501", "grant the privilege \\(`cdc check` says which\\) and run again"),
        ("28P01", "mend the source URI or the server's login settings and run again"),
        ("3D000", "mend the source URI or the server's login settings and run again"),
    ],
)
def test_what_someone_must_mend_is_terminal_and_says_so(state: str, remedy: str) -> None:
    expected = f"^PostgreSQL, reading: denied: {remedy}$"
    with pytest.raises(TerminalRangefeedError, match=expected), translated("reading", hide):
        raise server_error(state, "denied")


def test_a_failure_that_never_reached_a_server_is_retryable_and_masked() -> None:
    error = OperationalError("IO: [libpq] Failed to connect: geheim refused\nmore", status_code=10)
    expected = r"Failed to connect: \*\*\* refused$"
    with pytest.raises(RetryableRangefeedError, match=expected), translated("connecting", hide):
        raise error


def test_errors_of_ours_pass_unchanged() -> None:
    with pytest.raises(TerminalRangefeedError, match=r"^as it was$"), translated("reading", hide):
        raise TerminalRangefeedError("as it was")


def test_an_error_without_text_is_named_by_its_class() -> None:
    assert text_of(psycopg.OperationalError()) == "OperationalError"
