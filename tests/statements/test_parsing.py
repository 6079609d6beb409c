"""What a statement may be, and what is refused: by its text alone."""

from __future__ import annotations

import re

import pytest

from cdc_core.errors import OptionError
from cdc_core.statements.parsing import parse
from cdc_core.statements.values import (
    AlterChangefeed,
    ControlJobs,
    ControlSchedules,
    CreateChangefeed,
    CreateSchedule,
    OwnJob,
    ShowJobs,
    ShowSchedules,
    Statement,
)

SINK = "kafka://host:9092?topic_prefix=a_"


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        (
            f"CREATE CHANGEFEED FOR TABLE orders, public.users INTO '{SINK}' WITH updated, resolved = '10s'",
            CreateChangefeed(
                tables=("orders", "public.users"), sink=SINK, options={"updated": True, "resolved": "10s"}
            ),
        ),
        (
            'create changefeed for Orders, "Odd One"."T.x", shop.* into \'file:///o\' with (format = csv, "name"=a);',
            CreateChangefeed(
                tables=("orders", '"Odd One"."T.x"', "shop.*"), sink="file:///o", options={"format": "csv"}, name="a"
            ),
        ),
        (
            "CREATE CHANGEFEED INTO 'file:///o' WITH OPTIONS (diff) AS SELECT id, ';' AS s FROM public.t WHERE id > 1;",
            CreateChangefeed(
                tables=("public.t",),
                sink="file:///o",
                options={"diff": True},
                query="SELECT id, ';' AS s FROM public.t WHERE id > 1",
            ),
        ),
        (
            "CREATE CHANGEFEED FOR t INTO 'file:///o' WITH max_step_rows = 5, a.b = -1, dead_letter = 'it''s \\'",
            CreateChangefeed(
                tables=("t",), sink="file:///o", options={"max_step_rows": "5", "a.b": "-1", "dead_letter": "it's \\"}
            ),
        ),
        ("CREATE CHANGEFEED FOR t", CreateChangefeed(tables=("t",))),
        ("EXPERIMENTAL CHANGEFEED FOR t", CreateChangefeed(tables=("t",))),
        ("PAUSE JOB 'a-b' WITH REASON = 'maintenance'", ControlJobs(verb="PAUSE", jobs=("a-b",), reason="maintenance")),
        ("RESUME JOB a", ControlJobs(verb="RESUME", jobs=("a",))),
        ("cancel jobs (a, 'b', 3)", ControlJobs(verb="CANCEL", jobs=("a", "b", "3"))),
        ("PAUSE JOBS a, b", ControlJobs(verb="PAUSE", jobs=("a", "b"))),
        ("PAUSE ALL CHANGEFEED JOBS", ControlJobs(verb="PAUSE", jobs=None)),
        (
            "ALTER CHANGEFEED 'a' ADD t, Public.u WITH initial_scan DROP TABLE v SET resolved = '10s', diff"
            " UNSET updated ADD w WITH no_initial_scan ADD x SET sink = 'kafka://h:1', Format = CSV"
            " UNSET range_distribution_strategy",
            AlterChangefeed(
                job="a",
                add={"t": True, "public.u": True, "w": False, "x": None},
                drop=("v",),
                set={"resolved": "10s", "diff": "true", "sink": "kafka://h:1", "format": "csv"},
                unset=("updated", "placement"),
            ),
        ),
        (
            "CREATE SCHEDULE IF NOT EXISTS 'nightly' FOR CHANGEFEED t, u INTO 'x' WITH format = csv RECURRING '@daily'"
            " WITH SCHEDULE OPTIONS first_run = NOW, on_execution_failure = 'Retry', on_previous_running = skip,"
            " time_zone = 'Europe/Berlin'",
            CreateSchedule(
                label="nightly",
                if_not_exists=True,
                changefeed=CreateChangefeed(tables=("t", "u"), sink="x", options={"format": "csv"}),
                cron="@daily",
                time_zone="Europe/Berlin",
                first_run="now",
                on_execution_failure="retry",
                on_previous_running="skip",
            ),
        ),
        (
            "CREATE SCHEDULE FOR CHANGEFEED INTO 'x' AS SELECT id FROM t WHERE (\"recurring\" > 1 OR recurring < 0)"
            " RECURRING '0 * * * *'"
            " WITH SCHEDULE OPTIONS (first_run = '2026-01-31 10:00:00')",
            CreateSchedule(
                label=None,
                if_not_exists=False,
                changefeed=CreateChangefeed(
                    tables=("t",), sink="x", query='SELECT id FROM t WHERE ("recurring" > 1 OR recurring < 0)'
                ),
                cron="0 * * * *",
                first_run="2026-01-31T10:00:00Z",
            ),
        ),
        ("PAUSE SCHEDULE nightly", ControlSchedules(verb="PAUSE", schedules=("nightly",))),
        ("RESUME SCHEDULES a, 'b'", ControlSchedules(verb="RESUME", schedules=("a", "b"))),
        ("DROP SCHEDULES (a)", ControlSchedules(verb="DROP", schedules=("a",))),
        ("SHOW SCHEDULES", ShowSchedules()),
        ("SHOW SCHEDULES FOR CHANGEFEED", ShowSchedules()),
        ("SHOW SCHEDULE 'a'", ShowSchedules(schedule="a")),
        ("ALTER JOB a OWNER TO bob", OwnJob(job="a", owner="bob")),
        ("SHOW JOBS", ShowJobs(changefeeds=False)),
        ("SHOW JOB a", ShowJobs(changefeeds=False, job="a")),
        ("SHOW CHANGEFEED JOBS WITH WATCHED_TABLES", ShowJobs(changefeeds=True)),
        ("SHOW CHANGEFEED JOB 'a-b'", ShowJobs(changefeeds=True, job="a-b")),
    ],
)
def test_a_statement_means_this(text: str, statement: Statement) -> None:
    assert [each.statement for each in parse(text)] == [statement]


def test_several_statements_end_with_semicolons_and_have_comments_between_them() -> None:
    text = "-- first\nSHOW JOBS;\n\n/* second;\n */ PAUSE JOB a; ;\nRESUME JOB a -- last"
    assert [(each.line, type(each.statement)) for each in parse(text)] == [
        (2, ShowJobs),
        (5, ControlJobs),
        (6, ControlJobs),
    ]
    assert parse("-- nothing\n;") == []


REFUSED = {
    "BEGIN": (1, 1, "this is not a statement about changefeeds"),
    "SELECT * FROM [SHOW JOBS]": (1, 1, "filter the output of SHOW"),
    "SHOW JOB WHEN COMPLETE a": (1, 6, "SHOW does not wait"),
    "CREATE TABLE t": (1, 1, "this is not a statement about changefeeds"),
    "CREATE CHANGEFEED INTO 'x'": (1, 27, "FOR, or AS SELECT, is missing"),
    "CREATE CHANGEFEED FOR t INTO x": (1, 30, "the URI of the sink must be in single quotation marks"),
    "CREATE CHANGEFEED FOR t INTO": (1, 29, "the URI of the sink is missing"),
    "CREATE CHANGEFEED FOR 'orders'": (
        1,
        23,
        "the name of a table cannot be in single quotation marks; remove them",
    ),
    "CREATE CHANGEFEED FOR public.'orders'": (1, 30, "the name of a table cannot be in single quotation marks"),
    "CREATE CHANGEFEED FOR t /* note": (1, 25, "a comment is not closed"),
    "CREATE CHANGEFEED FOR t,": (1, 25, "the name of a table is missing"),
    "CREATE CHANGEFEED FOR TABLE INTO 'x'": (1, 29, "the name of a table is missing"),
    "CREATE CHANGEFEED FOR DATABASE shop": (1, 23, "FOR requires a list of tables"),
    "CREATE CHANGEFEED FOR t FAMILY f": (1, 25, "have no column families"),
    "CREATE CHANGEFEED FOR t AS SELECT a FROM t": (1, 25, "remove FOR"),
    "CREATE CHANGEFEED FOR t INTO 'x' WITH": (1, 38, "the name of an option is missing"),
    "CREATE CHANGEFEED FOR t INTO 'x' WITH (diff": (1, 44, "is not closed"),
    "CREATE CHANGEFEED FOR t INTO 'x' WITH a =": (1, 42, "the value is missing"),
    "CREATE CHANGEFEED FOR t INTO 'x' WITH a = $1": (1, 43, "the value is missing"),
    "CREATE CHANGEFEED FOR t INTO 'x' WITH a = (1)": (1, 43, "this is not a value"),
    "CREATE CHANGEFEED FOR t INTO 'x' WITH resolved = 10s": (1, 50, "put this value in single quotation marks"),
    "CREATE CHANGEFEED FOR t INTO 'x'\n  WITH diff updated": (2, 13, "updated is not expected here"),
    "CREATE CHANGEFEED FOR t INTO 'x": (1, 30, "a quotation mark is not closed"),
    "PAUSE JOB": (1, 10, "the name of the job is missing"),
    "PAUSE orders": (1, 7, "JOB is missing"),
    "PAUSE JOB a-b": (1, 11, "must be in single quotation marks"),
    "PAUSE JOBS (SELECT job_id FROM x)": (1, 13, "write one or more names"),
    "PAUSE JOBS FOR SCHEDULE x": (1, 12, "write one or more job names"),
    "PAUSE JOBS (a": (1, 14, "is not closed"),
    "PAUSE JOB a WITH x": (1, 18, "REASON is missing"),
    "RESUME JOB a WITH REASON = 'x'": (1, 14, "WITH is not expected here"),
    "SHOW CHANGEFEED": (1, 16, "JOBS is missing"),
    "ALTER CHANGEFEED a": (1, 19, "what to alter is missing"),
    "ALTER CHANGEFEED a RENAME b": (1, 20, "this is not a clause of ALTER CHANGEFEED"),
    "ALTER CHANGEFEED a ADD t WITH initial_scan = only": (1, 31, "write WITH initial_scan = 'yes' or 'no'"),
    "ALTER CHANGEFEED a ADD t WITH diff": (1, 31, "added tables take only one option"),
    "ALTER CHANGEFEED a ADD t WITH initial_scan = 'yes' ADD t": (1, 52, "table t is named twice"),
    "ALTER CHANGEFEED a ADD t DROP u, t": (1, 26, "table t is named twice"),
    "ALTER CHANGEFEED a ADD t, t": (1, 20, "table t is named twice"),
    "ALTER CHANGEFEED a SET diff SET diff": (1, 29, "option 'diff' is set twice"),
    "ALTER CHANGEFEED a SET (diff)": (1, 25, "remove the parentheses"),
    "ALTER CHANGEFEED a SET topics = b": (1, 24, "there is no option 'topics'"),
    "ALTER CHANGEFEED a UNSET diff, topics": (1, 32, "there is no option 'topics'"),
    "CREATE SCHEDULE a FOR BACKUP": (1, 19, "FOR CHANGEFEED is missing"),
    "CREATE SCHEDULE a FOR CHANGEFEED t INTO 'x'": (1, 44, "RECURRING is missing"),
    "CREATE SCHEDULE a FOR CHANGEFEED t INTO 'x' RECURRING daily": (1, 55, "when the changefeed runs"),
    "CREATE SCHEDULE a FOR CHANGEFEED t INTO 'x' WITH name = b RECURRING 'x'": (1, 36, "named by its label"),
    "CREATE SCHEDULE a FOR CHANGEFEED t INTO 'x' RECURRING 'x' WITH y": (1, 64, "SCHEDULE OPTIONS is missing"),
    "CREATE SCHEDULE a FOR CHANGEFEED t INTO 'x' RECURRING 'x'\nWITH SCHEDULE OPTIONS first_rum = now": (
        *(2, 23),
        "a schedule has no option 'first_rum'; did you mean 'first_run'?",
    ),
    "CREATE SCHEDULE a FOR CHANGEFEED t INTO 'x' RECURRING 'x'\nWITH SCHEDULE OPTIONS on_previous_running = go": (
        *(2, 23),
        "must be one of start, skip, wait",
    ),
    "CREATE SCHEDULE a FOR CHANGEFEED t INTO 'x' RECURRING 'x'\nWITH SCHEDULE OPTIONS first_run = '-soon'": (
        *(2, 23),
        "'-soon' must be a duration such as",
    ),
    "SHOW SCHEDULE": (1, 14, "the label of the schedule is missing"),
    "DROP JOB a": (1, 1, "neither cdc nor CockroachDB has a statement for this; use `cdc drop`"),
    "EXPLAIN JOB a": (1, 1, "this is not a statement about changefeeds"),
    "ALTER JOB a": (1, 12, "OWNER TO is missing"),
    "ALTER JOB a OWNER TO current_user": (1, 22, "write the name of the owner"),
}


@pytest.mark.parametrize(("text", "refused"), REFUSED.items())
def test_a_refusal_shows_the_place_and_the_remedy(text: str, refused: tuple[int, int, str]) -> None:
    with pytest.raises(OptionError) as raised:
        parse(text)
    line, column, reason = refused
    first, shown, caret = str(raised.value).splitlines()
    assert first.startswith(f"statement, line {line}, column {column}: ")
    assert reason in first
    assert re.search(re.escape(shown.strip()).replace(r"\*", "."), text)  # what may be secret is hidden
    assert caret.index("^") == min(column, 61) + 1  # of a long line, the end is shown


def test_a_refused_query_shows_its_place_in_the_query() -> None:
    with pytest.raises(OptionError, match="query, line 1, column 8: a query cannot call count"):
        parse("CREATE CHANGEFEED INTO 'x://y' AS SELECT count(*) FROM t")


@pytest.mark.parametrize(
    "text",
    [
        "CREATE CHANGEFEED FOR t INTO 'kafka://user:hunter2@h?sasl_password=hunter2' WIHT diff",
        "CREATE CHANGEFEED FOR t INTO 'webhook-https://host/hooks/hunter2' WITH format",
        "CREATE CHANGEFEED FOR t INTO 'kafka://h' WITH sasl_password = 'hunter2', format",
        "CREATE CHANGEFEED FOR t INTO 'kafka://h' WITH \"auth_header\"='Bearer hunter2', format",
        "CREATE CHANGEFEED FOR t INTO 'external://user:hunter2@name'",
        "CREATE CHANGEFEED FOR t INTO kafka://user:hunter2@h",
        "CREATE CHANGEFEED FOR t INTO 'external://hunter2' || 'hunter2' WITH format",
        "CREATE CHANGEFEED FOR t INTO 'HTTPS://host/hunter2'",
        "CREATE CHANGEFEED FOR t INTO 'x://h' WITH sasl_password = hunter2, format",
        "CREATE CHANGEFEED FOR t INTO 'x://h' WITH sasl_password = \"hunter2\", format",
        "CREATE CHANGEFEED FOR t INTO 'x://h' WITH sasl_password = /* a */ 'hunter2', format",
        "CREATE CHANGEFEED FOR t INTO 'x://h' WITH sasl_password /* = 'hunter2' */, format",
        "CREATE CHANGEFEED FOR t INTO 'x://h' WITH sasl_password = 'a''hunter2', format",
        "CREATE CHANGEFEED FOR t INTO 'x://h' WITH sasl_password = '${X}hunter2', format",
        "CREATE CHANGEFEED FOR t INTO 'x://h' WITH sasl_password = ${X}hunter2, format",
        "CREATE CHANGEFEED FOR t INTO 'x://h' WITH sasl_password = 'a' 'hunter2', format",
        "CREATE CHANGEFEED FOR t INTO 'x://h' WITH sasl_password 'hunter2', format",
        "CREATE CHANGEFEED FOR t INTO 'x://h' WITH sasl_password hunter2, format",
        "CREATE CHANGEFEED FOR t INTO 'x://h' WITH librdkafka.sasl.password = a-hunter2, format",
        "CREATE CHANGEFEED FOR t INTO 'x://h' WITH extra_headers = '{\"X\": \"hunter2\"}', format",
        "ALTER CHANGEFEED a SET sink = 'kafka://hunter2@h' SET format",
        "ALTER CHANGEFEED a SET (sasl_password = 'hunter2')",
    ],
)
def test_no_refusal_shows_a_secret(text: str) -> None:
    with pytest.raises(OptionError) as raised:
        parse(text)
    assert "hunter2" not in str(raised.value)
    assert "FOR t INTO" in str(raised.value) or "ALTER CHANGEFEED a SET" in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        "CREATE CHANGEFEED FOR t INTO 'kafka://user:hunter2@host",
        "CREATE CHANGEFEED FOR t INTO 'kafka://h' WITH sasl_password = 'hunter2",
        "CREATE CHANGEFEED FOR t INTO 'kafka://h' WITH sasl_password = hunter2, \"a",
    ],
)
def test_nothing_is_shown_of_a_text_whose_quotation_marks_do_not_close(text: str) -> None:
    with pytest.raises(OptionError, match="a quotation mark is not closed") as raised:
        parse(text)
    assert not re.search(r"\w", str(raised.value).splitlines()[1])


def test_a_refusal_shows_what_cannot_be_secret() -> None:
    with pytest.raises(OptionError) as raised:
        parse("CREATE CHANGEFEED FOR t INTO 'kafka://host' WITH diff, format = json, resolved = '1s' WIHT")
    assert "'kafka://****' WITH diff, format = json, resolved = '1s'" in str(raised.value)
