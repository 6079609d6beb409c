"""A plugin's component as one changefeed uses it: its registration, and the options that the user gave it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from cdc_core.options import parse_options
from cdc_core.plugins.classes import load_class, load_options
from cdc_core.registrations import Registration

R = TypeVar("R", bound=Registration)


@dataclass(frozen=True, slots=True, kw_only=True)
class Component(Generic[R]):
    """A component by its registration, so that no process has to look it up. Holds secrets; `repr` does not.

    `values` are the options as written, still to be parsed.
    """

    registration: R
    values: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        return self.registration.name

    @property
    def owner(self) -> str:
        """How messages name this component."""
        return f"{self.registration.KIND} '{self.name}'"

    def load(self, part: str, base: type) -> type[Any]:
        """Return the class that the registration names as *part*, a subclass of *base*.

        Raises: PluginLoadError, ContractError.
        """
        target: str = getattr(self.registration, part)
        return load_class(target, owner=self.owner, base=base, install_hint=self.registration.install_hint)

    def load_options(self) -> type[Any]:
        """Return the class of the options. Raises: PluginLoadError, ContractError."""
        return load_options(self.registration)

    def parsed(self) -> Any:
        """Return the options instance. Raises: OptionError, PluginLoadError."""
        return parse_options(self.load_options(), self.values, owner=self.owner)
