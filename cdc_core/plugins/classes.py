"""Loading what may not be there: classes and functions by name, and libraries that only some uses need.

This is the only place of the core that imports modules it does not know.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cdc_core.errors import ConfigError, ContractError, PluginLoadError
from cdc_core.options import fault_of
from cdc_core.registrations import Registration


def load_class(target: str, *, owner: str, base: type | None = None, install_hint: str = "") -> type[Any]:
    """Return the class called *target*, "module:Class".

    *owner* names the component in messages ("sink 'kafka'"); *install_hint* says what to install when the import
    fails. Raises: PluginLoadError when it cannot be loaded, ContractError when it is not a complete subclass of *base*,
    or a method that *base* requires has other parameters.
    """
    module_name, _, class_name = target.partition(":")
    found = _member(module_name, class_name, owner=owner, install_hint=install_hint)
    if not isinstance(found, type):
        raise PluginLoadError(f"{owner} cannot be loaded: module '{module_name}' has no class '{class_name}'")
    if base is not None and not issubclass(found, base):
        raise ContractError(f"{owner}: '{target}' must be a subclass of {base.__module__}.{base.__name__}")
    missing = () if base is None else getattr(found, "__abstractmethods__", ())
    if missing:
        raise ContractError(f"{owner}: '{target}' does not define {', '.join(sorted(missing))}")
    for name in sorted(getattr(base, "__abstractmethods__", ())):
        if fault := _call_fault(found, name, getattr(base, name)):
            raise ContractError(f"{owner}: '{target}' defines {name} with other parameters than its contract: {fault}")
    return found


def _call_fault(class_: type[Any], name: str, contract: Any) -> str:
    """Say why the method *name* of *class_* does not take the arguments that *contract* takes; empty if it does."""
    method = getattr(class_, name)
    if not (inspect.isfunction(method) and inspect.isfunction(contract)):
        return ""
    try:
        given = list(inspect.signature(contract).parameters.values())
        taken = inspect.signature(method, follow_wrapped=False)
    except Exception:  # Python 3.14 evaluates annotations, whose imports may be for type checkers only
        return ""
    if isinstance(inspect.getattr_static(class_, name), staticmethod):
        del given[0]
    keywords = {each.name: each for each in given if each.kind is each.KEYWORD_ONLY}
    try:
        taken.bind(*(each for each in given if each.name not in keywords), **keywords)
    except TypeError as error:
        return str(error)
    return ""


def load_options(registration: Registration) -> type[Any]:
    """Return the class of a component's options. Raises: PluginLoadError, ContractError when users cannot set them."""
    owner = f"{registration.KIND} '{registration.name}'"
    found = load_class(registration.options, owner=owner, install_hint=registration.install_hint)
    if fault := fault_of(found):
        raise ContractError(f"{owner}: '{registration.options}' {fault}")
    return found


def load_function(target: str, *, owner: str, install_hint: str = "") -> Callable[..., Any]:
    """Return the function called *target*, "module:function". Raises: PluginLoadError; the rest is as above."""
    module_name, _, name = target.partition(":")
    found = _member(module_name, name, owner=owner, install_hint=install_hint)
    if not callable(found):
        raise PluginLoadError(f"{owner} cannot be loaded: module '{module_name}' has no function '{name}'")
    return found  # type: ignore[no-any-return]


@contextmanager
def needing(*packages: str, otherwise: str) -> Iterator[None]:
    """Import what needs *packages* inside the block. Raises: ConfigError, *otherwise*, when one is not installed."""
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] in packages:
            raise ConfigError(otherwise) from error
        raise


def _member(module_name: str, name: str, *, owner: str, install_hint: str) -> Any:
    try:
        module = importlib.import_module(module_name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever a stranger's module does when it is imported
        hint = f"; {install_hint}" if install_hint else ""
        raise PluginLoadError(f"{owner} cannot be loaded: {type(error).__name__}: {error}{hint}") from error
    return getattr(module, name, None)
