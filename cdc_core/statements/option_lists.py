"""Options in a statement: `WITH name [= value], …`."""

from __future__ import annotations

from datetime import datetime

from sqlglot.tokenizer_core import TokenType

from cdc_core.statements.options import translated
from cdc_core.statements.reading import Reading

__all__ = ["assignments", "names", "pairs"]

_VALUE = "a value is a text in single quotation marks, a number or a word"


def assignments(reading: Reading, *, now: datetime, altering: bool = False) -> dict[str, str | bool]:
    """Take a list of options and return them by our names, as `translated` does. Raises: OptionError."""
    found: dict[str, str | bool] = {}
    for at, name, value in pairs(reading):
        try:
            ours, meaning = translated(name, value, now=now, altering=altering)
        except ValueError as error:
            raise reading.refused(str(error), at) from None
        if ours in found:
            also = "" if ours == name.lower() else f": {name} is another way to write it"
            raise reading.refused(f"option '{ours}' is given twice{also}; keep one of them", at)
        found[ours] = meaning
    return found


def pairs(reading: Reading) -> list[tuple[int, str, str | None]]:
    """Take a list of names with or without values; return each with its offset. Raises: OptionError."""
    found = []
    while True:
        at, name = reading.at, _name(reading)
        found.append((at, name, _value(reading) if reading.has_mark(TokenType.EQ) else None))
        if not reading.has_mark(TokenType.COMMA):
            return found


def names(reading: Reading) -> list[tuple[int, str]]:
    """Take a list of names of options; return each with its offset. Raises: OptionError."""
    found = [(reading.at, _name(reading))]
    while reading.has_mark(TokenType.COMMA):
        found.append((reading.at, _name(reading)))
    return found


def _name(reading: Reading) -> str:
    """Take the name of an option, which may have dots: `librdkafka.linger.ms`."""
    parts = [reading.name("the name of an option")]
    while reading.has_mark(TokenType.DOT):
        parts.append(reading.name("the name of an option"))
    return ".".join(parts)


def _value(reading: Reading) -> str:
    sign = "-" if reading.has_mark(TokenType.DASH) else ""
    token = reading.token
    if token is None or reading.at_end or token.token_type in (TokenType.COMMA, TokenType.PARAMETER):
        raise reading.refused(f"the value is missing here; {_VALUE}")
    number = token.token_type is TokenType.NUMBER
    if (sign and not number) or not (number or token.token_type is TokenType.STRING or token.text[:1].isalpha()):
        raise reading.refused(f"this is not a value; {_VALUE}")
    reading.skip()
    after = reading.token
    if number and after is not None and after.start <= token.end + 1 and after.token_type is TokenType.DCOLON:
        raise reading.refused(f"put this value in single quotation marks; {_VALUE}", token.start)
    return f"{sign}{token.text}"
