"""What a query may be, and what is refused: by its text alone."""

from __future__ import annotations

import pytest

from cdc_core.errors import OptionError
from cdc_core.queries.statement import parse_query


@pytest.mark.parametrize(
    ("text", "table", "names"),
    [
        ("SELECT * FROM orders", "orders", [""]),
        ("select id, amount from public.orders;", "public.orders", ["id", "amount"]),
        ('SELECT "Id" FROM "Public"."Or ders" AS o', '"Public"."Or ders"', ["Id"]),
        ('SELECT id FROM "*"', '"*"', ["id"]),
        ('SELECT id FROM "a""b"', '"a""b"', ["id"]),
        ("SELECT o.*, lower(o.name) AS l FROM Orders o WHERE o.id > 3", "orders", ["", "l"]),
        ("SELECT a::text, CAST(b AS int) FROM t", "t", ["a", "b"]),
        ("SELECT lower(a), event_op() FROM t", "t", ["lower", "event_op"]),
        ("SELECT concat(a, (b)), coalesce(a, b) IS NULL AS n FROM t", "t", ["concat", "n"]),
        ("SELECT (cdc_prev).a, cdc_prev.b AS c FROM t", "t", ["a", "c"]),
        ("SELECT a -- , b\n, c FROM t /* WHERE */", "t", ["a", "c"]),
        ('SELECT comment, update, "all", "limit" FROM t', "t", ["comment", "update", "all", "limit"]),
        ("SELECT extract(year FROM a) AS y FROM t WHERE a IS DISTINCT FROM b", "t", ["y"]),
        ("SELECT transform(a, x -> x + b) AS s FROM t", "t", ["s"]),
        ("SELECT 'FROM u' AS s, \"order\" FROM t WHERE b = 'GROUP BY'", "t", ["s", "order"]),
    ],
)
def test_a_query_names_one_table_and_what_is_selected_of_it(text: str, table: str, names: list[str]) -> None:
    query = parse_query(text)
    assert (query.table, [item.name for item in query.items]) == (table, names)


REFUSED = {
    "": (1, "the query is empty"),
    "UPDATE t SET a = 1": (1, "UPDATE cannot begin a query"),
    "WITH x AS (SELECT 1) SELECT a FROM x": (1, "WITH cannot begin a query"),
    "SELECT a": (9, "FROM is missing"),
    "SELECT a FROM": (14, "the name of the table is missing"),
    "SELECT a FROM t WHERE": (22, "the condition after WHERE is missing"),
    "SELECT a FROM t AS": (19, "the table's alias is missing"),
    "SELECT a,, b FROM t": (10, "an expression is missing"),
    "SELECT a, FROM t": (11, "an expression is missing"),
    "SELECT FROM t": (8, "an expression is missing"),
    "SELECT AS x FROM t": (8, "an expression is missing"),
    "SELECT a, b, DISTINCT c FROM t": (14, "this is not an expression"),
    "SELECT (cdc_prev).* FROM t": (8, "name the columns of cdc_prev"),
    "SELECT t.null FROM t": (8, 'put the name "null" in quotation marks'),
    "SELECT a b c FROM t": (12, "this is not an expression"),
    "SELECT a ~ 'x' AS b FROM t": (10, "this is not an expression of Spark SQL; for a pattern, write RLIKE"),
    "SELECT a !~ 'x' AS b FROM t": (10, "this is not an expression of Spark SQL; for a pattern, write RLIKE"),
    "SELECT (a FROM t": (8, "'(' is not closed"),
    "SELECT a) FROM t": (9, "')' closes nothing"),
    "SELECT 'a FROM t": (8, "a quotation mark is not closed"),
    "SELECT id, 'a' /* it's FROM t": (16, "a comment is not closed"),
    "SELECT a + 1 FROM t": (8, "give this expression a name: a + 1 AS name"),
    "SELECT lower(a) || upper(b) FROM t": (8, "give this expression a name: lower(a) || upper(b) AS name"),
    "SELECT a AS (b, c) FROM t": (8, "an expression has one name"),
    "SELECT DISTINCT a FROM t": (8, "a query cannot have DISTINCT"),
    "SELECT a FROM t, u": (16, "a query reads one table"),
    "SELECT a FROM t JOIN u ON t.a = u.a": (17, "a query reads one table"),
    "SELECT a FROM t LEFT JOIN u ON t.a = u.a": (17, "a query reads one table"),
    "SELECT a FROM ONLY t": (15, "a query cannot have ONLY; name the table alone"),
    "SELECT a FROM (SELECT a FROM t)": (15, "a query cannot have a subquery"),
    "SELECT a FROM t WHERE a IN (SELECT b FROM u)": (29, "a query cannot have a subquery"),
    "SELECT a FROM t GROUP BY a": (17, "a query cannot have GROUP BY"),
    "SELECT a FROM t HAVING a > 1": (17, "a query cannot have HAVING"),
    "SELECT a FROM t WHERE a > 1 ORDER BY a": (29, "a query cannot have ORDER BY"),
    "SELECT a FROM t LIMIT 3": (17, "a query cannot have LIMIT"),
    "SELECT a FROM t UNION SELECT b FROM t": (17, "a query cannot have UNION"),
    "SELECT a FROM t; SELECT b FROM t": (16, "text follows the end of the query"),
    "SELECT max(a) AS m FROM t": (8, "a query cannot call max: it combines many rows"),
    "SELECT count(*) AS n FROM t": (8, "a query cannot call count"),
    "SELECT row_number() OVER () AS n FROM t": (21, "a query cannot have a window function"),
    "SELECT now() AS n FROM t": (8, "a query cannot call now: it reads the clock"),
    "SELECT a FROM t WHERE d < current_date": (27, "a query cannot call current_date"),
    "SELECT unix_timestamp() AS n FROM t": (8, "a query cannot call unix_timestamp"),
    "SELECT uuid() AS n FROM t": (8, "a query cannot call uuid: it returns a different value each time"),
    "SELECT aes_encrypt(a, b) AS c FROM t": (
        8,
        "a query cannot call aes_encrypt: it returns a different value each time",
    ),
    "SELECT 1 + `AES_ENCRYPT`((a), b, 'GCM', 'DEFAULT') AS c FROM t": (
        12,
        "a query cannot call AES_ENCRYPT: it returns",
    ),
    "SELECT aes_encrypt(a, b, 'CBC', 'PKCS', '') AS c FROM t": (8, "a query cannot call aes_encrypt: it returns"),
    "SELECT aes_encrypt(a, b, 'GCM', 'DEFAULT', unhex('')) AS c FROM t": (8, "a query cannot call aes_"),
    "SELECT aes_encrypt(a, b, mode) AS c FROM t": (8, "a query cannot call aes_encrypt: it returns"),
    "SELECT current_user AS u FROM t": (8, "a query cannot call current_user: it depends on the session"),
    "SELECT input_file_name() AS f FROM t": (8, "a query cannot call input_file_name"),
    "SELECT changefeed_creation_timestamp() AS c FROM t": (8, "a query cannot call changefeed_creation_timestamp"),
    "SELECT event_op(1) AS o FROM t": (8, "event_op takes no arguments"),
    "SELECT cdc_prev.* FROM t": (8, "name the columns of cdc_prev"),
    "SELECT a.b.* + 1 AS c FROM t": (8, "* stands for all columns"),
    "SELECT struct(*) AS s FROM t": (8, "* stands for all columns"),
    "SELECT identifier('wall') AS s FROM t": (8, "a query cannot call identifier"),
    'SELECT "now"() AS n FROM t': (8, "a query cannot call now"),
    "SELECT `current_user`() AS u FROM t": (8, "a query cannot call current_user"),
    "SELECT session_user AS u FROM t": (8, "a query cannot call session_user"),
    "SELECT TIMESTAMP 'now' AS n FROM t": (8, "'now' reads the clock"),
    "SELECT 'Today'::date AS n FROM t": (8, "'today' reads the clock"),
    "SELECT date_format(window(a, '1 hour').start, 'HH') AS h FROM t": (20, "a query cannot call window"),
    "SELECT a FROM t WHERE a IN (VALUES 1)": (23, "a query cannot have a subquery"),
    "SELECT cdc_prev.a FROM t cdc_prev": (26, "cdc_prev is the row before the change"),
    "SELECT a FROM cdc_prev": (15, "cdc_prev is the row before the change"),
    "SELECT ? AS a FROM t": (8, "a query cannot have parameters"),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_refused_is_named_with_its_place(text: str) -> None:
    column, reason = REFUSED[text]
    with pytest.raises(OptionError) as refused:
        parse_query(text)
    first, line, caret = str(refused.value).splitlines()
    assert first.startswith(f"query, line 1, column {column}: {reason}")
    assert (line, caret) == (f"  {text}", f"  {' ' * (column - 1)}^")


@pytest.mark.parametrize(
    "call",
    [
        "aes_encrypt(a, substr('0123456789abcdef', 1, 16), 'ECB')",
        "aes_encrypt(a, b, 'ECB', 'PKCS')",
        "aes_encrypt(a, b, 'CBC', 'PKCS', unhex(left(md5(a), 32)))",
        "base64(aes_encrypt(a, b, 'GCM', 'DEFAULT', iv, aad))",
        "aes_encrypt",
    ],
)
def test_a_cipher_without_chance_can_be_called(call: str) -> None:
    parse_query(f"SELECT {call} AS c FROM t")


def test_the_caret_is_below_the_line_that_it_is_about() -> None:
    with pytest.raises(OptionError) as refused:
        parse_query("SELECT a\nFROM t\nWHERE now() > b\n")
    assert str(refused.value).splitlines()[0].startswith("query, line 3, column 7: ")
    assert str(refused.value).splitlines()[1:] == ["  WHERE now() > b", "        ^"]


def test_an_expression_that_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(OptionError, match="this expression is nested too deeply"):
        parse_query(f"SELECT {'(' * 3000}a{')' * 3000} AS x FROM t")


def test_a_very_long_line_is_cut_around_the_place() -> None:
    with pytest.raises(OptionError) as refused:
        parse_query(f"SELECT {', '.join(f'column_{n}' for n in range(500))}, now() AS n FROM t")
    _, line, caret = str(refused.value).splitlines()
    assert len(line) < 130
    assert line[caret.index("^") :].startswith("now()")


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("SELECT a FROM t", {"column"}),
        ("SELECT a FROM t WHERE cdc_prev IS NULL", {"column", "previous row"}),
        ("SELECT (( cdc_prev )).a AS b, to_json(cdc_prev) AS j FROM t", {"previous column", "previous row"}),
        ("SELECT (cdc_prev).a AS b FROM t", {"previous column"}),
        ("SELECT cdc_prev.a FROM t WHERE event_op() = 'insert'", {"previous column", "function"}),
        ("SELECT '(cdc_prev).a' AS a, \"event_op()\" FROM t", {"column"}),
    ],
)
def test_a_query_knows_what_it_needs_of_a_change(text: str, kinds: set[str]) -> None:
    query = parse_query(text)
    every = {"column", "previous row", "previous column", "function"}
    assert {kind for kind in every if query.refers_to(kind)} == kinds
