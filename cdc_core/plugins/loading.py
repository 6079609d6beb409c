"""Loading one plugin: its module, its hooks, what they return, and what can be wrong with each."""

from __future__ import annotations

import difflib
import inspect
import re
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from dataclasses import dataclass, fields
from functools import cache
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pluggy
import pyarrow as pa

from cdc_core import hookspecs
from cdc_core.envelope import ENVELOPE_OPTIONS, ENVELOPES
from cdc_core.errors import PluginLoadError
from cdc_core.function_registration import FunctionRegistration
from cdc_core.plugins.entry_points import Published
from cdc_core.registrations import EncoderRegistration, RangefeedRegistration, Registration
from cdc_core.sink_registration import SinkRegistration

KINDS: dict[str, type[Registration]] = {
    kind.KIND: kind for kind in (RangefeedRegistration, EncoderRegistration, SinkRegistration, FunctionRegistration)
}
_NAME = re.compile(r"[a-z0-9][a-z0-9_.+-]*")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")
_TARGET = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_REDIRECTING = threading.RLock()
"""One thread at a time redirects the standard output of the process. A plugin may load others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A plugin after loading: its registrations by kind, and the first problem with it, if any."""

    source: Published
    registrations: tuple[tuple[str, Registration], ...] = ()
    problem: str = ""


def load_plugin(manager: pluggy.PluginManager, source: Published) -> Loaded:
    """Return what *source* registers. Raises nothing: any error of a plugin becomes its `problem`.

    *manager* knows the hook specifications; a faulty plugin does not stay registered with it.
    """
    try:
        with _REDIRECTING, redirect_stdout(sys.stderr):  # the output of `cdc --json` is JSON
            plugin = source.load()
    except KeyboardInterrupt:
        raise
    except PluginLoadError as error:
        return Loaded(source=source, problem=str(error))
    except BaseException as error:  # whatever a stranger's module does when it is imported
        return Loaded(source=source, problem=f"cannot be imported: {_reason(error)}")
    problem = _misspelled(plugin)
    try:
        manager.register(plugin, name=f"{source.distribution}:{source.name}")
        manager.check_pending()
    except (pluggy.PluginValidationError, ValueError) as error:
        problem = problem or _reason(error)
    registrations: list[tuple[str, Registration]] = []
    for kind, cls in KINDS.items():
        found, wrong = _call(manager, plugin, kind, cls)
        registrations += [(kind, registration) for registration in found]
        problem = problem or wrong
    if problem and manager.is_registered(plugin):
        manager.unregister(plugin)
    if not registrations:
        problem = problem or "registers nothing"
    return Loaded(source=source, registrations=tuple(registrations), problem=problem)


def _misspelled(plugin: object) -> str:
    """Say which function is named like a hook and is not a hook."""
    known = [name for name in vars(hookspecs) if name.startswith("cdc_")]
    for name, member in inspect.getmembers(plugin, inspect.isroutine):
        if not name.startswith("cdc_"):
            continue
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"the hooks are {', '.join(known)}"
            return f"'{name}' is not a hook; {hint}"
        if not hasattr(member, f"{hookspecs.PROJECT}_impl"):
            return f"'{name}' is not marked as a hook; put @cdc_core.hookimpl above it"
    return ""


def _call(
    manager: pluggy.PluginManager, plugin: object, kind: str, cls: type[Registration]
) -> tuple[list[Registration], str]:
    """Return the valid registrations of one hook, and what is wrong with the first invalid one."""
    hook = f"cdc_register_{kind}s"
    implementations = [
        implementation
        for caller in manager.get_hookcallers(plugin) or ()
        if caller.name == hook
        for implementation in caller.get_hookimpls()
        if implementation.plugin is plugin
    ]
    good: list[Registration] = []
    for implementation in implementations:
        try:
            returned = implementation.function()
            if not isinstance(returned, Iterable) or isinstance(returned, str | bytes):
                return good, f"'{hook}' returned {_shown(returned)}, not a list of {cls.__name__}"
            for registration in returned:
                wrong = _wrong(registration, cls)
                if wrong:
                    return good, f"'{hook}' returned {wrong}"
                good.append(registration)
        except Exception as error:  # a stranger's code
            return good, f"'{hook}' failed: {_reason(error)}"
    return good, ""


def _wrong(registration: object, cls: type[Registration]) -> str:
    """Say which field of a registration is wrong, and what it must be; empty when all are right."""
    if not isinstance(registration, cls):
        return f"{_shown(registration)}, not {cls.__name__}"
    types = _types(cls)  # type: ignore[arg-type]  # a class can be hashed
    for field in fields(cls):
        value, type_ = getattr(registration, field.name), types[field.name]
        fits, expected = _VALUES.get(field.name, (lambda _: True, ""))
        if field.name in ("options", *cls.CLASSES):
            fits, expected = _is_target, "'module:Class'" if cls is not FunctionRegistration else "'module:function'"
        elif cls is FunctionRegistration and field.name == "name":
            fits, expected = _is_new_to_sql, "a name of lowercase letters, digits and _ that SQL does not have"
        if not _has_type(value, type_):
            expected = type_.__name__ if isinstance(type_, type) else str(type_)
        elif value == field.default or fits(value):
            continue
        return f"{cls.__name__} {registration.name!r} with {field.name}={_short(value)}; expected {expected}"
    return ""


@cache
def _types(cls: type[Registration]) -> dict[str, Any]:
    return get_type_hints(cls)


def _has_type(value: object, type_: Any) -> bool:
    """Return whether *value* is what the annotation *type_* of a registration's field says."""
    inner = get_args(type_)
    if isinstance(type_, UnionType):
        return any(_has_type(value, each) for each in inner)
    if inner:  # tuple[T, ...] or frozenset[T]
        return isinstance(value, get_origin(type_)) and all(_has_type(each, inner[0]) for each in value)
    if type_ is pa.DataType:
        return isinstance(value, type_)
    return type(value) in ((int, float) if type_ is float else (type_,))


def _is_name(value: str) -> bool:
    return _NAME.fullmatch(value) is not None


def _are_schemes(value: tuple[str, ...]) -> bool:
    return bool(value) and all(map(_SCHEME.fullmatch, value))


def _is_new_to_sql(value: str) -> bool:
    from cdc_core.queries.functions import refused_name  # with the parser of queries, and most plugins have no function

    return refused_name(value) is None


def _is_value_type(type_: pa.DataType) -> bool:
    return type_ in _VALUE_TYPES or pa.types.is_decimal128(type_)


def _is_target(value: str) -> bool:
    return _TARGET.fullmatch(value) is not None


def _words(known: tuple[str, ...]) -> tuple[Callable[[Any], bool], str]:
    """Return the rule of a field that holds one of the *known* words, or a set of them."""

    def fits(value: str | frozenset[str]) -> bool:
        return value in known if isinstance(value, str) else bool(value) and value <= set(known)

    return fits, f"{', '.join(map(repr, known[:-1]))} or {known[-1]!r}"


_VALUE_TYPES = (
    *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    *(pa.string(), pa.binary(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", tz="UTC")),
)
_LISTED_TYPES = f"{', '.join(map(str, _VALUE_TYPES))} or decimal128"

_VALUES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "name": (_is_name, "lowercase letters, digits and . _ + -"),
    "schemes": (_are_schemes, "one or more URI schemes in lower case, without _"),
    "output": _words(("messages", "files")),
    "outputs": _words(("messages", "files")),
    "envelopes": _words(ENVELOPES),
    "forced": _words(ENVELOPE_OPTIONS),
    "arguments": (
        lambda value: bool(value) and all(map(_is_value_type, value)),
        f"one or more of {_LISTED_TYPES}",
    ),
    "returns": (_is_value_type, _LISTED_TYPES),
    "deterministic": (bool, "True, because a change that is delivered again must return the same row"),
    "min_checkpoint_frequency_s": (lambda value: 0 <= value < float("inf"), "a number of seconds, 0 or more"),
}
"""By field, what its value must be apart from its type and its default; then the same in words."""


def _shown(value: object) -> str:
    return f"{type(value).__name__} {_short(value)}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
