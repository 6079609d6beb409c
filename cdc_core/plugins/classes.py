"""Loading classes by name: the only place of the core that imports modules it does not know."""

from __future__ import annotations

import importlib
from typing import Any

from cdc_core.errors import ContractError, PluginLoadError

__all__ = ["load_class"]


def load_class(target: str, *, owner: str, base: type | None = None, install_hint: str = "") -> type[Any]:
    """Return the class called *target*, "module:Class".

    *owner* names the component in messages ("sink 'kafka'"); *install_hint* says what to install when the import
    fails. Raises: PluginLoadError when it cannot be loaded, ContractError when it is not a subclass of *base*.
    """
    module_name, _, class_name = target.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever a stranger's module does when it is imported
        hint = f"; {install_hint}" if install_hint else ""
        raise PluginLoadError(f"{owner} cannot be loaded: {type(error).__name__}: {error}{hint}") from error
    found = getattr(module, class_name, None)
    if not isinstance(found, type):
        raise PluginLoadError(f"{owner} cannot be loaded: module '{module_name}' has no class '{class_name}'")
    if base is not None and not issubclass(found, base):
        raise ContractError(f"{owner}: '{target}' must be a subclass of {base.__module__}.{base.__name__}")
    return found
