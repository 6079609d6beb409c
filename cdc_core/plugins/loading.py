"""Loading one plugin: its module, its hooks, what they return, and what can be wrong with each."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Iterable
from dataclasses import MISSING, dataclass, fields
from typing import Any

import pluggy

from cdc_core import hookspecs
from cdc_core.envelope import ENVELOPE_OPTIONS
from cdc_core.plugins.entry_points import Published
from cdc_core.registrations import EncoderRegistration, RangefeedRegistration, Registration, SinkRegistration

__all__ = ["KINDS", "Loaded", "load_plugin"]

KINDS: dict[str, type[Registration]] = {
    kind.KIND: kind for kind in (RangefeedRegistration, EncoderRegistration, SinkRegistration)
}
_NAME = re.compile(r"[a-z0-9][a-z0-9_.+-]*")
_TARGET = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_OUTPUTS = frozenset({"messages", "files"})


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
        plugin = source.load()
    except (Exception, SystemExit) as error:  # whatever a stranger's module does when it is imported
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
    """Say what is wrong with a registration; empty when it is valid."""
    if not isinstance(registration, cls):
        return f"{_shown(registration)}, not {cls.__name__}"
    name = f"{cls.__name__} '{registration.name}'"
    if not isinstance(registration.name, str) or not _NAME.fullmatch(registration.name):
        return f"{name}, whose name has other characters than lower-case letters, digits and . _ + -"
    required = {field.name for field in fields(cls) if field.default is MISSING}
    for which in ("options", *cls.CLASSES):
        value = getattr(registration, which)
        if not isinstance(value, str) or not (_TARGET.fullmatch(value) or (which not in required and not value)):
            return f"{name} with {which}={value!r}, which is not 'module:Class'"
    if isinstance(registration, RangefeedRegistration | SinkRegistration):
        schemes: Any = registration.schemes
        if not isinstance(schemes, tuple) or not schemes or not all(_is_scheme(scheme) for scheme in schemes):
            return f"{name} with schemes={schemes!r}, which is not a tuple of URI schemes"
    if isinstance(registration, SinkRegistration):
        if registration.output not in _OUTPUTS:
            return f"{name} with output={registration.output!r}, which is neither 'messages' nor 'files'"
        if not registration.forced <= frozenset(ENVELOPE_OPTIONS):
            return f"{name} with forced={sorted(registration.forced)!r}, which are not all envelope options"
    if isinstance(registration, EncoderRegistration) and not (
        registration.outputs and registration.outputs <= _OUTPUTS
    ):
        return f"{name} with outputs={sorted(registration.outputs)!r}, which must be 'messages', 'files' or both"
    return ""


def _is_scheme(scheme: object) -> bool:
    return isinstance(scheme, str) and _NAME.fullmatch(scheme) is not None


def _shown(value: object) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
