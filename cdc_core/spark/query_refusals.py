"""What Spark says against an expression, in the words of the query and with what to write in its place."""

from __future__ import annotations

import re
from collections.abc import Collection

from pyspark.errors import AnalysisException, ParseException, PySparkException

from cdc_core.options import did_you_mean
from cdc_core.queries.bound_query import BoundQuery, Output
from cdc_core.queries.builtin_functions import BUILTIN_FUNCTIONS
from cdc_core.queries.dialect import tokens_of
from cdc_core.queries.functions import TIME_OF_DAY, no_date
from cdc_core.schema import Kind
from cdc_core.spark.private_api import JavaObject, Py4JError, Py4JJavaError, is_time_zone, items, pattern_refusal

_PATH = re.compile(r"`?v\d+`?\.`?(?:typed|previous)`?\.`?(\w+)`?")
_COLUMN = re.compile(r"`?v\d+`?\.`?(?:typed|previous)`?\.(?:`((?:[^`]|``)+)`|(\w+))")
_REFUSED = re.compile(r"^: org\.apache\.spark\.SparkException: (\[.*)", re.MULTILINE)
_DATE_PATTERN = "[INCONSISTENT_BEHAVIOR_CROSS_VERSION.DATETIME_"
_NO_FUNCTION = re.compile(r"Cannot resolve routine `(\w+)`")
_NO_TYPE = re.compile(r'(?:Unsupported data type|DataType) "(\w+)')
_TYPES = {
    "bool": "boolean",
    "bpchar": "string",
    "bytea": "binary",
    "char": "string",
    "character": "string",
    "citext": "string",
    "float4": "float",
    "float8": "double",
    "int2": "smallint",
    "int4": "int",
    "int8": "bigint",
    "json": "string",
    "jsonb": "string",
    "text": "string",
    "timestamptz": "timestamp",
    "uuid": "string",
    "varchar": "string",
}
"""Types of PostgreSQL and CockroachDB, and what Spark calls them."""
_FUNCTIONS = {
    "age": "timestampdiff(DAY, from, to)",
    "array_length": "size(array)",
    "array_to_string": "array_join(array, text)",
    "format": "format_string(pattern, value)",
    "generate_series": "sequence(from, to)",
    "json_build_object": "to_json(named_struct('name', value))",
    "json_extract_path_text": "get_json_object(column, '$.member')",
    "jsonb_array_length": "json_array_length(column)",
    "jsonb_build_object": "to_json(named_struct('name', value))",
    "jsonb_extract_path_text": "get_json_object(column, '$.member')",
    "regexp_matches": "regexp_extract(text, pattern, 0)",
    "string_to_array": "split(text, pattern)",
    "strpos": "instr(text, part)",
    "timezone": "convert_timezone('UTC', 'Europe/Berlin', column)",
    "to_hex": "lower(hex(number))",
    "to_jsonb": "to_json(struct)",
}
"""Functions of PostgreSQL and CockroachDB whose names are not like what Spark has in their place."""
_MEMBER = ("a member of JSON", "get_json_object(column, '$.member')")
_SIGNS = {"->": _MEMBER, "#": _MEMBER, "~": ("a pattern", "RLIKE, and (?i) before a pattern that ignores case")}
"""How signs begin that only PostgreSQL and CockroachDB can read where Spark stops, what they are, and what to write."""
_WORDS = {
    ("ARRAY", "["): ("ARRAY[…]", "array(…)"),
    ("CHARACTER VARYING",): ("CHARACTER VARYING", "STRING"),
    ("DOUBLE PRECISION",): ("DOUBLE PRECISION", "DOUBLE"),
    ("SIMILAR TO",): ("SIMILAR TO", "RLIKE"),
}
"""Likewise for words."""
_AT_TIME_ZONE = ("AT", "TIME", "ZONE")
_OF_INSTANT = "convert_timezone('UTC', 'Europe/Berlin', column)"
_OF_LOCAL = "convert_timezone('Europe/Berlin', 'UTC', column)::timestamp"


def reason_of(error: PySparkException | Py4JJavaError, query: BoundQuery, output: Output) -> str:
    """Return a sentence about *error*, for which Spark refuses the expression *output* of *query*.

    Raises: *error* if Spark failed for another reason.
    """
    text = _shown(error)
    if _DATE_PATTERN in str(error):
        return f"{output.text}: Spark does not know this pattern of a date or time; write one like yyyy-MM-dd HH:mm:ss"
    if not isinstance(error, AnalysisException | ParseException | Py4JJavaError):
        return f"{output.text} fails for every row: {text.partition('. ')[0].removesuffix('.')}"
    if found := _NO_FUNCTION.match(text):
        name = found[1].lower()
        known = _FUNCTIONS.get(name)
        hint = did_you_mean(name, (*BUILTIN_FUNCTIONS, *query.functions)) if known is None else f"; write {known}"
        return f"{output.text}: there is no function '{name}'{hint}"
    found = _NO_TYPE.match(text)
    if found and (known := _TYPES.get(found[1].lower())):
        return f"{output.text}: Spark has no type {found[1].lower()}; write {known}"
    return f"{output.text}: {text}{_instead(error, query, output)}"


def named(text: str) -> str:
    """Return *text* of Spark with the names that the query has for columns."""
    return _PATH.sub(r"\1", text)


def typed_columns(sql: str) -> list[str]:
    """Return the columns that *sql*, an expression over the columns layout, names."""
    return [(quoted or plain).replace("``", "`") for quoted, plain in _COLUMN.findall(sql)]


def _instead(error: PySparkException | Py4JJavaError, query: BoundQuery, output: Output) -> str:
    """Return what to write in place of what Spark does not have, from a semicolon on; nothing where none is known."""
    if isinstance(error, ParseException):
        return _instead_of_syntax(str(error), query, output) if "[PARSE_SYNTAX_ERROR]" in str(error) else ""
    if "(EPOCH FROM " in output.text.upper():
        return " For the seconds since 1970, write unix_micros(column) / 1000000."
    if not re.match(r"\[(DATATYPE_MISMATCH|INVALID_EXTRACT)", str(error).strip()):
        return ""
    for name in typed_columns(output.sql):
        kind = query.schema.column(name).type.kind
        if kind is Kind.ARRAY:
            return f" Column {name} is JSON text in expressions: write from_json({name}, 'array<string>')."
        if kind in (Kind.JSON, Kind.COMPOSITE):
            return f" Column {name} is JSON text in expressions: write get_json_object({name}, '$.member')."
    return ""


def _instead_of_syntax(text: str, query: BoundQuery, output: Output) -> str:
    """Return what to write in place of what Spark cannot read. *text* is its error, which says where it stops."""
    stop = re.search(r"at or near '(\S+?)'", text)
    known = [found for sign, found in _SIGNS.items() if stop and stop[1].startswith(sign)]
    tokens = tokens_of(output.text)
    words = tuple(token.text.upper() for token in tokens)
    for at in range(len(words)):
        if words[at : at + 3] == _AT_TIME_ZONE:
            return _instead_of_zone(tokens[at - 1].text if at else "", query)
        known += [found for word, found in _WORDS.items() if words[at : at + len(word)] == word]
    return next((f" For {what}, write {instead}." for what, instead in known), "")


def _instead_of_zone(column: str, query: BoundQuery) -> str:
    """Return what to write in place of *column* AT TIME ZONE: in PostgreSQL it depends on the type."""
    kinds = {each.type.kind for each in query.schema.columns if each.name.lower() == column.lower()}
    if kinds == {Kind.TIMESTAMP}:
        return f" For AT TIME ZONE, write {_OF_LOCAL}."
    more = "" if kinds == {Kind.TIMESTAMPTZ} else f" For a timestamp without time zone, write {_OF_LOCAL}."
    return f" For AT TIME ZONE, write {_OF_INSTANT}.{more}"


def _shown(error: PySparkException | Py4JJavaError) -> str:
    """Return Spark's message without its class, its state, and our names of columns."""
    text = str(error).strip().splitlines()[0]
    if isinstance(error, Py4JJavaError):  # a refusal that Pyspark does not know as one
        refused = _REFUSED.search(str(error))
        if refused is None:
            raise error
        text = refused[1]
    text = re.sub(r"^\[[\w.]+\]\s*", "", text)
    text = re.split(r"\s+SQLSTATE: ", text)[0]
    return named(text).strip()


_UNITS_OF_DATES = ("year", "quarter", "month", "week")
_UNITS = {
    "TruncDate": _UNITS_OF_DATES,
    "TruncTimestamp": (*_UNITS_OF_DATES, "day", "hour", "minute", "second", "millisecond", "microsecond"),
}
"""What `trunc` and `date_trunc` can truncate to."""
_PATTERNS = {"RLike", "RegExpReplace", "RegExpExtract", "RegExpExtractAll", "RegExpInStr", "StringSplit"}
"""Expressions whose second operand is a regular expression."""
_ZONES = {"FromUTCTimestamp": (1,), "ToUTCTimestamp": (1,), "ConvertTimezone": (0, 1), "MakeTimestamp": (6,)}
_LENGTHS = {"StringLPad": 1, "StringRPad": 1, "StringRepeat": 1, "StringSpace": 0, "ArrayRepeat": 1}
"""Expressions, and which of their operands are time zones, or say how long the value is."""
_MAX_LENGTH = 10_000_000
_OTHER_NAMES = {"yyyy": "year", "yy": "year", "mon": "month", "mm": "month", "dd": "day"}
_CHARSETS = ("US-ASCII", "ISO-8859-1", "UTF-8", "UTF-16BE", "UTF-16LE", "UTF-16", "UTF-32")


def unusable(expression: JavaObject, times: Collection[str]) -> str:
    """Return why no query can have *expression*: it reads the clock, or has a bad constant. Empty if one can.

    The columns *times* are times of day.
    """
    return clock_reading(expression, times) or _bad_constant(expression)


def _bad_constant(expression: JavaObject) -> str:
    """Return which constant Spark takes for null, fails for, or makes too large a value of; empty if there is none."""
    kind, operands = expression.nodeName(), list(items(expression.children()))
    if units := _UNITS.get(kind):
        unit = _constant(expression.format()).lower()
        if unit and _OTHER_NAMES.get(unit, unit) not in units:
            return f"there is no unit '{unit}'; write one of {', '.join(units)}"
    if kind == "GetJsonObject" and (path := _constant(expression.path())) and not path.startswith("$"):
        return f"'{path}' is not a path; write '$.{path}'"
    if kind == "StaticInvoke" and expression.staticObject().getSimpleName() in ("Encode", "StringDecode"):
        charset = _constant(operands[1])
        if charset and charset.upper() not in _CHARSETS:
            return f"there is no character set '{charset}'; for digits, write hex, unhex, base64 or unbase64"
    if kind in _PATTERNS and (reason := pattern_refusal(pattern := _constant(operands[1]))):
        return f"'{pattern}' is not a regular expression: {reason}"
    for zone in (_constant(operands[index]) for index in _ZONES.get(kind, ()) if index < len(operands)):
        if zone and not is_time_zone(zone):
            return f"there is no time zone '{zone}'; write a name such as Europe/Berlin"
    length = _constant(operands[_LENGTHS[kind]]) if kind in _LENGTHS else ""
    if length and int(length) > _MAX_LENGTH:
        return f"a value of length {int(length):,} is too large; at most {_MAX_LENGTH:,} are possible"
    return next(filter(None, map(_bad_constant, operands)), "")


_TIME_TYPES = ("date", "timestamp", "timestamp_ntz")
_CLOCK_WORD = re.compile(r"(now|today|tomorrow|yesterday)\b", re.IGNORECASE)
_NAME_OF_ZONE = re.compile(r"[A-Za-z]{2}")
"""In a text of a time of day: the hour in UTC then depends on the date, for summer time."""
_OF_THE_TIME = frozenset({"Hour", "Minute", "Second", "SecondWithFraction"})
"""Expressions of a timestamp, in UTC, that do not depend on its date."""
_FORMATTED = "DateFormatClass"
_NO_LETTER_OF_A_TIME = re.compile(r"[^\W\d_HhKkmsSa]")
"""A letter in a pattern of `date_format` that shows something else than the time."""


def clock_reading(expression: JavaObject, times: Collection[str], *, only_time: bool = False) -> str:
    """Return why *expression* reads the clock: it makes a time of 'today', or of a time of day without a date.

    Spark does so wherever it needs a time, as in day < 'today', and for what it can compute in advance. The columns
    *times* are times of day. With *only_time*, the date of what *expression* gives does not matter. Empty when it does
    not read the clock.
    """
    if expression.nodeName() == "Cast" and expression.dataType().typeName() in _TIME_TYPES:
        text, of_zone = expression.child(), expression.dataType().typeName() == "timestamp"
        constant = _constant(text).strip() if text.dataType().typeName() == "string" else ""
        if found := _CLOCK_WORD.match(constant):
            return f"'{found[0].lower()}' reads the clock; the time of the commit is statement_timestamp()"
        adds_date = of_zone and not only_time
        if (adds_date or (of_zone and _NAME_OF_ZONE.search(constant))) and TIME_OF_DAY.match(constant):
            return no_date(f"'{constant}'")
        column = next(iter(typed_columns(text.sql())), None) if text.nodeName() == "GetStructField" else None
        if adds_date and column in times:
            return no_date(f"column {column}")
    only_time = _shows_only_the_time(expression)
    found_below = (clock_reading(child, times, only_time=only_time) for child in items(expression.children()))
    return next(filter(None, found_below), "")


def _shows_only_the_time(expression: JavaObject) -> bool:
    if expression.nodeName() in _OF_THE_TIME:
        return True
    if expression.nodeName() != _FORMATTED:
        return False
    pattern = _constant(expression.right())
    return bool(pattern) and not _NO_LETTER_OF_A_TIME.search(pattern)


def _constant(text: JavaObject) -> str:
    """Return a text or a number that is the same for all rows; empty for others, and where it cannot be computed."""
    try:
        value = text.eval(None) if text.foldable() else None
    except (Py4JError, PySparkException):
        return ""
    return "" if value is None else str(value if isinstance(value, int) else value.toString())
