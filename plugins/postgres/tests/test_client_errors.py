from __future__ import annotations

import adbc_driver_postgresql.dbapi as adbc
import psycopg
import pytest
from adbc_driver_manager import OperationalError
from cdc_rangefeed_postgres.client_errors import text_of, translated
from cdc_rangefeed_postgres.login_state import with_state
from cdc_testing.postgres import Sql
from psycopg.conninfo import make_conninfo

from cdc_core import CdcError, RetryableRangefeedError, TerminalRangefeedError
from cdc_core.errors import is_outage


def server_error(state: str, text: str) -> psycopg.Error:
    error = psycopg.errors.lookup(state)(f"ERROR:  {text}\nDETAIL:  more")
    assert error.sqlstate == state
    return error


def mask(text: str) -> str:
    return text.replace("secret", "***")


@pytest.mark.parametrize("state", ["08006", "53300", "53400", "57P01", "57P03", "55006", "55P03", "40001"])
def test_a_passing_failure_is_an_outage(state: str) -> None:
    expected = r"^PostgreSQL failed while reading the log: busy$"
    with pytest.raises(RetryableRangefeedError, match=expected) as raised, translated("reading the log", mask):
        raise server_error(state, "busy")
    assert raised.value.outage


@pytest.mark.parametrize(
    "error",
    [
        server_error("XX000", "invalid memory alloc request size 1073741824"),
        server_error("54000", "invalid memory alloc request size 1073741824"),
        OperationalError("INVALID_STATE: expected 3 fields but found 4", status_code=6),
    ],
)
def test_a_failure_that_may_be_due_to_what_is_read_is_retryable_and_no_outage(error: Exception) -> None:
    with pytest.raises(RetryableRangefeedError) as raised, translated("reading the log", mask):
        raise error
    assert not raised.value.outage


@pytest.mark.parametrize(
    ("state", "remedy"),
    [
        ("42501", "Run `cdc check FILE NAME` to see which privilege is missing, and grant it"),
        ("28P01", "Fix the source URI or the server's login settings"),
        ("3D000", "Fix the source URI or the server's login settings"),
    ],
)
def test_a_privilege_or_login_error_is_terminal_with_a_remedy(state: str, remedy: str) -> None:
    expected = rf"^PostgreSQL failed while reading the log: denied\. {remedy}$"
    with pytest.raises(TerminalRangefeedError, match=expected) as raised, translated("reading the log", mask):
        raise server_error(state, "denied")
    assert raised.value.repairable


def test_each_state_of_the_server_is_repairable_an_outage_counted_or_final() -> None:
    found = (getattr(cls, "sqlstate", None) for cls in vars(psycopg.errors).values() if isinstance(cls, type))
    states = sorted(state for state in found if isinstance(state, str))
    assert len(states) > 200
    errors = {}
    for state in states:
        with pytest.raises(CdcError) as raised, translated("reading the log", mask):
            raise server_error(state, "it failed")
        errors[state] = raised.value
    repairable = {state for state, error in errors.items() if error.repairable}
    assert repairable == {"42501", "3D000", "25006", *(state for state in states if state.startswith("28"))}
    final = {state for state, error in errors.items() if isinstance(error, TerminalRangefeedError)}
    assert final - repairable == {"0A000", "22P05", "22P06"}
    outages = {state for state, error in errors.items() if is_outage(error)}
    assert {state[:2] for state in outages} == {"08", "25", "40", "53", "55", "57", "58"}


FAILED = 'connection to server at "db" (10.0.0.1), port 5432 failed: '


@pytest.mark.parametrize(
    ("text", "repairable"),
    [
        ('FATAL:  password authentication failed for user "cdc"', True),
        ('FATAL:  certificate authentication failed for user "cdc"', True),
        ('FATAL:  no pg_hba.conf entry for host "::1", user "cdc", database "db", no encryption', True),
        ('FATAL:  pg_hba.conf rejects connection for host "::1", user "cdc", database "db", SSL encryption', True),
        ('FATAL:  role "cdc" is not permitted to log in', True),
        ('FATAL:  permission denied for database "db"', True),
        ("FATAL:  connection requires a valid client certificate", True),
        ("FATAL:  unsupported startup parameter: replication", True),
        ("fe_sendauth: no password supplied", True),
        ("SSL error: certificate verify failed", True),
        ("SSL error: sslv3 alert certificate expired", True),
        ("SSL error: ssl/tls alert certificate revoked", True),
        ("SSL error: tlsv1 alert unknown ca", True),
        ('server certificate for "a" does not match host name "db"', True),
        ("server does not support SSL, but SSL was required", True),
        ('root certificate file "/ca.pem" does not exist', True),
        ('could not read certificate file "/c.pem": no start line', True),
        ('private key file "/k.pem" has group or world access', True),
        ("Connection refused", False),
        ("timeout expired", False),
        ("SSL error: unexpected eof while reading", False),
        ("SSL error: tlsv1 alert internal error", False),
        ("server closed the connection unexpectedly", False),
        ("FATAL:  the database system is starting up", False),
        ("FATAL:  sorry, too many clients already", False),
    ],
)
def test_a_connection_that_is_refused_is_told_from_one_that_fails(text: str, repairable: bool) -> None:
    for error in (
        psycopg.OperationalError(FAILED + text),
        OperationalError(f"IO: [libpq] Failed to connect: {FAILED}{text}", status_code=10),
    ):
        with pytest.raises(CdcError) as raised, translated("connecting", mask):
            raise error
        assert raised.value.repairable is repairable
        assert is_outage(raised.value) is not repairable
        assert isinstance(raised.value, TerminalRangefeedError) is repairable


@pytest.mark.parametrize("text", ["out of memory", "string buffer exceeds maximum allowed length (1073741823 bytes)"])
def test_a_row_that_the_server_cannot_send_is_terminal(text: str) -> None:
    detail = "Cannot enlarge string buffer containing 600000037 bytes by 600000000 more bytes."
    expected = "A row exceeds the 1 GB that PostgreSQL can send. Make the row smaller"
    with pytest.raises(TerminalRangefeedError, match=expected), translated("scanning tables", mask):
        raise psycopg.errors.ProgramLimitExceeded(f"ERROR:  {text}\nDETAIL:  {detail}")


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        (
            'temporary file size exceeds "temp_file_limit" (64kB)',
            "Raise temp_file_limit for the role of the changefeed",
        ),
        ('too many connections for role "cdc"', "Raise its CONNECTION LIMIT"),
        ("sorry, too many clients already", "Raise max_connections"),
    ],
)
def test_a_limit_that_the_server_names_has_a_remedy(text: str, remedy: str) -> None:
    with pytest.raises(RetryableRangefeedError) as raised, translated("reading the log", mask):
        raise server_error("53400", text)
    assert str(raised.value) == f"PostgreSQL failed while reading the log: {text}. {remedy}"


def test_an_error_of_the_client_alone_is_retryable_and_masked() -> None:
    error = OperationalError("IO: [libpq] Failed to connect: secret refused\nmore", status_code=10)
    expected = r"Failed to connect: \*\*\* refused$"
    with pytest.raises(RetryableRangefeedError, match=expected) as raised, translated("connecting", mask):
        raise error
    assert raised.value.outage


LOGIN = "Fix the source URI or the server's login settings"


def test_a_login_that_the_server_refuses_is_terminal(database: str, sql: Sql) -> None:
    sql.execute("CREATE ROLE outsider NOLOGIN")
    uri = make_conninfo(database, user="outsider")
    for refused, name in ((uri, "outsider"), (make_conninfo(database, dbname="nowhere"), "nowhere")):
        with pytest.raises(TerminalRangefeedError, match=rf'"{name}".*\. {LOGIN}$'), translated("connecting", mask):
            psycopg.connect(refused)
        expected = rf'"{name}".*\. {LOGIN}$'
        with pytest.raises(TerminalRangefeedError, match=expected) as raised, translated("connecting", mask):
            adbc.connect(refused)
        assert raised.value.repairable


@pytest.mark.skipif(psycopg.pq.version() < 180000, reason="libpq does not trace what refuses a login")
@pytest.mark.parametrize(("role", "state"), [("NOLOGIN", "28000"), ("LOGIN CONNECTION LIMIT 0", "53300")])
def test_the_state_of_a_refused_login_is_found_whatever_its_text(
    database: str, sql: Sql, role: str, state: str
) -> None:
    name = f"foreigner_{state}"
    sql.execute(f"CREATE ROLE {name} {role} PASSWORD 'x'")
    try:
        refused = make_conninfo(database, user=name, password="x")
        with pytest.raises(psycopg.OperationalError) as caught:
            psycopg.connect(refused)
        assert caught.value.sqlstate is None
        sql.execute(f"ALTER ROLE {name} LOGIN CONNECTION LIMIT -1")
        assert with_state(caught.value, refused).sqlstate is None, "no longer refused"
        sql.execute(f"ALTER ROLE {name} {role}")
        assert with_state(caught.value, refused).sqlstate == state
    finally:
        sql.execute(f"DROP ROLE {name}")


def test_a_refused_login_is_an_outage_while_another_host_is_out_of_reach(database: str, sql: Sql) -> None:
    sql.execute("CREATE ROLE stranger NOLOGIN")
    info = sql.info
    uri = f"postgresql://stranger@{info.host},127.0.0.1:{info.port},1/{info.dbname}"
    with pytest.raises(RetryableRangefeedError) as raised, translated("connecting", mask):
        psycopg.connect(uri)
    assert raised.value.outage


@pytest.mark.parametrize(
    "text",
    [
        'connection to server at "db", port 5432 failed: FATAL:  remaining connection slots are reserved\n'
        'connection to server at "db", port 5432 failed: FATAL:  no pg_hba.conf entry for host "::1", no encryption\n',
        "connection timeout expired\nMultiple connection attempts failed. All failures were:\n"
        "- host: 'db', port: '5432', hostaddr: '10.0.0.1': connection failed: connection to server at \"db\", port 5432"
        ' failed: FATAL:  role "cdc" is not permitted to log in\n'
        "- host: 'other', port: '5432', hostaddr: '10.0.0.2': connection timeout expired",
    ],
    ids=["full-with-tls", "no-answer"],
)
def test_one_refusal_is_an_outage_while_another_attempt_fails_otherwise(text: str) -> None:
    with pytest.raises(RetryableRangefeedError) as raised, translated("connecting", mask):
        raise psycopg.OperationalError(text)
    assert raised.value.outage


def test_errors_of_cdc_core_pass_unchanged() -> None:
    with pytest.raises(TerminalRangefeedError, match=r"^unchanged$"), translated("reading the log", mask):
        raise TerminalRangefeedError("unchanged")


def test_an_error_without_a_text_has_its_class_name() -> None:
    assert text_of(psycopg.OperationalError()) == "OperationalError"


def test_the_message_has_what_each_of_several_hosts_said() -> None:
    with pytest.raises(psycopg.OperationalError) as caught:
        psycopg.connect("postgresql://u@127.0.0.1:1,127.0.0.1:2/db")
    refused = 'connection to server at "127.0.0.1", port {} failed: Connection refused'
    assert text_of(caught.value) == f"{refused.format(1)}; {refused.format(2)}"
